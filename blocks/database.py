"""Where records are kept."""

from typing import Any

from pydantic import Field, SecretStr

from blocks.part import ConfigurationPart
from penstock.settings import load_settings
from penstock.store.database import Database


class PenstockDatabase(ConfigurationPart):
    """A SQLite file or a Postgres 14+ server with pgvector."""

    _block_type_name = "Penstock Database"
    _block_type_slug = "penstock-database"
    _description = "The database that holds documents, runs and work items."

    dsn: SecretStr = Field(
        description="Its address, such as postgresql://user:password@host/database"
    )

    def overrides(self) -> dict[str, Any]:
        return {"dsn": self.dsn}

    def get_client(self) -> Database:
        return Database(load_settings(**self.overrides()).database_url)
