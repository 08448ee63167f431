"""What every configuration block is: a described part of the settings tree."""

from abc import abstractmethod
from typing import Any

from prefect.blocks.core import Block


class ConfigurationPart(Block):
    """Holds some settings, and builds the client that they describe."""

    @abstractmethod
    def overrides(self) -> dict[str, Any]:
        """The settings this block replaces, as `load_settings` takes them."""

    @abstractmethod
    def get_client(self) -> Any:
        """The client these settings describe, built by the same factory the product uses."""
