"""A block that is named explicitly wins over the environment, which wins over the defaults."""

from collections.abc import Sequence
from typing import Any

from prefect.blocks.core import Block

from blocks.part import ConfigurationPart
from penstock.errors import ConfigurationError
from penstock.settings import Settings, load_settings


def settings_with(names: Sequence[str]) -> Settings:
    """The environment's settings, with each named block's part of them replaced."""
    overrides: dict[str, Any] = {}
    for name in names:
        overrides |= load_part(name).overrides()
    return load_settings(**overrides)


def load_part(name: str) -> ConfigurationPart:
    """A saved block by its `type/name`."""
    # Loading any block imports prefect-aws, so the one that needs it costs nothing here.
    import blocks.s3_raw  # noqa: F401 - imported for its block type to be known

    try:
        block = Block.load(name)
    except ValueError as error:
        raise ConfigurationError(
            f"there is no saved block {name!r}: {error}. `prefect block ls` lists them; names look "
            "like penstock-database/production"
        ) from error
    if not isinstance(block, ConfigurationPart):
        raise ConfigurationError(f"block {name!r} is not one of Penstock's configuration blocks")
    return block
