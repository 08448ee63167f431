"""Where raw bytes are kept."""

from pathlib import Path
from typing import Any

from pydantic import Field

from blocks.part import ConfigurationPart
from penstock.crawl.rawstore import LocalRawStore


class LocalRawFolder(ConfigurationPart):
    """A folder that every worker can reach."""

    _block_type_name = "Penstock Raw Folder"
    _block_type_slug = "penstock-raw-folder"
    _description = "The folder that holds documents as they were found, content-addressed."

    path: Path = Field(description="The folder; it is made when it does not exist")

    def overrides(self) -> dict[str, Any]:
        # A bucket in the environment would win over the folder.
        return {"raw_folder": self.path, "raw_store": None}

    def get_client(self) -> LocalRawStore:
        return LocalRawStore(self.path)
