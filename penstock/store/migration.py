"""Brings a database to this version's schema, and refuses one that is ahead of it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from penstock.errors import SchemaMismatch
from penstock.settings import mask_url
from penstock.store.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

# Asking Alembic would cost every quick command half a second; a test holds this to its answer.
HEAD = "0009"
_MIGRATION_LOCK = 0x70656E73


def migrate(database: Database) -> bool:
    """Bring the schema to HEAD if it is behind; True when something was done."""
    if current_revision(database) == HEAD:
        return False
    with _one_migrator(database), database.write() as tx:
        _refuse_newer(database, _read_revision(tx.connection))
        _upgrade(tx.connection)
    return True


def check(database: Database) -> None:
    """Raise SchemaMismatch unless the schema is exactly HEAD."""
    revision = current_revision(database)
    _refuse_newer(database, revision)
    if revision != HEAD:
        raise SchemaMismatch(
            f"the database {mask_url(database.url)} is at revision {revision or 'none'}, "
            f"this version needs {HEAD}: run `penstock doctor --fix`"
        )


def current_revision(database: Database) -> str | None:
    with database.read() as tx:
        return _read_revision(tx.connection)


def alembic_config(connection: sa.Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _read_revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(
        sa.text("SELECT version_num FROM alembic_version")
    ).scalar_one_or_none()
    return found


def _refuse_newer(database: Database, revision: str | None) -> None:
    if revision is not None and revision > HEAD:
        raise SchemaMismatch(
            f"the database {mask_url(database.url)} was written by a newer Penstock (revision "
            f"{revision}; this version knows up to {HEAD}): upgrade Penstock, or name another "
            "database in PENSTOCK_DSN or another folder in PENSTOCK_HOME"
        )


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


@contextmanager
def _one_migrator(database: Database) -> Iterator[None]:
    """Two first commands at once: one migrates, the other waits and finds it done."""
    if database.is_sqlite:
        with _file_lock(Path(f"{database.engine.url.database}.migrating")):
            yield
        return
    with database.engine.connect() as connection:
        connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
        try:
            yield
        finally:
            connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
