"""What holds for every block."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import blocks
from blocks import (
    ALL_BLOCKS,
    GroqModels,
    LocalRawFolder,
    PenstockDatabase,
    RedisServer,
    S3RawBucket,
    TextEmbedder,
)
from blocks.part import ConfigurationPart
from penstock.settings import load_settings

EXAMPLES: dict[type[ConfigurationPart], dict[str, Any]] = {
    PenstockDatabase: {"dsn": "postgresql://user:hidden@host/db"},
    LocalRawFolder: {"path": Path("raw")},
    S3RawBucket: {
        "bucket_path": "mills/raw",
        "credentials": {"minio_root_user": "user", "minio_root_password": "hidden"},
    },
    GroqModels: {"api_key": "hidden"},
    RedisServer: {"url": "redis://:hidden@host:6379/0"},
    TextEmbedder: {"backend": "hash"},
}
SECRET_NAMES = ("key", "password", "token", "dsn", "url")

each_block = pytest.mark.parametrize("block", ALL_BLOCKS, ids=lambda block: block.__name__)


def test_every_block_is_exported_and_has_an_example() -> None:
    exported = {
        member
        for _, member in inspect.getmembers(blocks, inspect.isclass)
        if issubclass(member, ConfigurationPart)
    }

    assert exported == set(ALL_BLOCKS) == set(EXAMPLES)


@each_block
def test_a_block_is_described(block: type[ConfigurationPart]) -> None:
    assert block.get_description()
    assert block.get_block_type_slug().startswith("penstock-")
    assert str(block._block_type_name).startswith("Penstock ")


@each_block
def test_every_field_is_described(block: type[ConfigurationPart]) -> None:
    own = {name: info for name, info in block.model_fields.items() if not name.startswith("_")}

    assert all(info.description for info in own.values()), own


@each_block
def test_what_may_hold_a_secret_is_a_secret(block: type[ConfigurationPart]) -> None:
    for name, info in block.model_fields.items():
        if name.endswith(SECRET_NAMES) and name != "base_url":
            assert info.annotation is SecretStr, name


@each_block
def test_a_secret_is_in_no_representation(block: type[ConfigurationPart]) -> None:
    made = block(**EXAMPLES[block])

    assert "hidden" not in repr(made)
    assert "hidden" not in str(made.model_dump())


@each_block
def test_a_block_overrides_settings_that_exist(
    block: type[ConfigurationPart],
) -> None:
    overrides = block(**EXAMPLES[block]).overrides()

    settings = load_settings(**overrides)

    assert all(getattr(settings, name) == value for name, value in overrides.items())


@each_block
def test_a_block_builds_its_client_without_a_server(block: type[ConfigurationPart]) -> None:
    client = block(**EXAMPLES[block]).get_client()

    assert client is not None
    if hasattr(client, "close"):
        client.close()
