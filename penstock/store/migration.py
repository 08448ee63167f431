"""Brings a database to this version's schema, and refuses one that is ahead of it."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from penstock.errors import SchemaMismatch, StoreError
from penstock.settings import mask_url
from penstock.store.database import Database
from penstock.store.schema import metadata, workers

if TYPE_CHECKING:
    from alembic.config import Config

# Asking Alembic would cost every quick command half a second; a test holds this to its answer.
HEAD = "0018"
_MIGRATION_LOCK = 0x70656E73
_LOOK_SECONDS = 0.1
_WORKERS_SHOWN = 5
_LOCK_MILLISECONDS = 200
_LOCK_NOT_AVAILABLE = "55P03"
# Revisions after this one take the indexes that are there already.
_INDEXED_BEFOREHAND = "0009"
_FLAG = "BOOLEAN NOT NULL DEFAULT false"
# Columns that such indexes need; with a constant default, adding one rewrites no rows.
_ADDED_BEFOREHAND = tuple(
    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} {kind}"
    for table, column, kind in (
        ("work_items", "interrupted", _FLAG),
        ("nodes", "needs_review", _FLAG),
        ("nodes", "review_value", "INTEGER"),
        ("run_documents", "needs_review", _FLAG),
    )
)
# What those revisions drop.
_DROPPED_BEFOREHAND = (
    *("ix_run_documents_status", "ix_work_items_run"),
    *("ix_work_items_due", "ix_work_items_run_active"),
    *("ix_model_calls_run", "ix_model_calls_tenant"),
)
_CREATE = re.compile(r"^CREATE (UNIQUE )?INDEX")
_WORD = re.compile(r"\w+")
_VALID_INDEXES = """
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema()::regnamespace
"""


@dataclass(frozen=True, slots=True)
class Revision:
    """One step of a migration."""

    id: str
    what: str


def migrate_when_idle(
    database: Database, *, lease_seconds: float, wait_seconds: float = 0.0
) -> bool:
    """Bring the schema to HEAD if it is behind and no worker uses the database.

    A worker uses it if its last heartbeat is not older than a lease. Workers are waited for, at
    most `wait_seconds`; then StoreError names them, and nothing was changed.
    """
    revision = current_revision(database)
    _refuse_newer(database, revision)
    if revision not in (None, HEAD):
        _wait_for_workers(database, lease_seconds, wait_seconds)
    return migrate(database)


def migrate(database: Database) -> bool:
    """Bring the schema to HEAD if it is behind, whoever uses it; True when something was done."""
    done = _migrate(database)
    database.revision = HEAD
    return done


def _migrate(database: Database) -> bool:
    if current_revision(database) == HEAD:
        return False
    with _one_migrator(database):
        revision = current_revision(database)
        _refuse_newer(database, revision)
        if not database.is_sqlite and (revision or "") >= _INDEXED_BEFOREHAND:
            _prepare(database)
        with database.write(lasting=True) as tx:
            from alembic import command

            command.upgrade(alembic_config(tx.connection), "head")
    return True


def check(database: Database) -> None:
    """Raise SchemaMismatch unless the schema is exactly HEAD."""
    revision = current_revision(database)
    _refuse_newer(database, revision)
    if revision != HEAD:
        raise SchemaMismatch(
            f"{_stands_at(database, revision)}: nothing was changed and no job is lost. Run "
            "`penstock migrate` when the workers of the older version have ended"
        )
    database.revision = HEAD


def pending_revisions(database: Database) -> list[Revision]:
    """What `migrate` would do, in order; SchemaMismatch if a newer version wrote the database."""
    revision = current_revision(database)
    _refuse_newer(database, revision)
    if revision == HEAD:
        return []
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(alembic_config())
    found = scripts.iterate_revisions(HEAD, revision or "base")
    return [Revision(one.revision, one.doc.rstrip(".")) for one in reversed(list(found))]


def _wait_for_workers(database: Database, lease_seconds: float, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while live := _live_workers(database, lease_seconds):
        if time.monotonic() >= deadline:
            shown = ", ".join(live[:_WORKERS_SHOWN])
            more = f" and {len(live) - _WORKERS_SHOWN} more" * (len(live) > _WORKERS_SHOWN)
            raise StoreError(
                f"{_stands_at(database, current_revision(database))}, and workers use it: {shown}"
                f"{more}. Nothing was changed. Pause the work pool (`prefect work-pool pause "
                "penstock`) and stop other workers, then run `penstock migrate --wait 600`; "
                "`penstock migrate --force` does not wait: workers of the older version then end "
                "with an error, and their jobs stay"
            )
        time.sleep(_LOOK_SECONDS)


def _live_workers(database: Database, lease_seconds: float) -> list[str]:
    """Only by columns that every revision has."""
    c = workers.c
    with database.read() as tx:
        alive = c.heartbeat_at > tx.now - timedelta(seconds=lease_seconds)
        found = sa.select(c.id, c.version).where(c.status == "running", alive).order_by(c.id)
        return [f"{row.id} (version {row.version})" for row in tx.execute(found)]


def _stands_at(database: Database, revision: str | None) -> str:
    return (
        f"the database {mask_url(database.url)} is at revision {revision or 'none'}, "
        f"this version of Penstock needs {HEAD}"
    )


def current_revision(database: Database) -> str | None:
    with database.read() as tx:
        if not sa.inspect(tx.connection).has_table("alembic_version"):
            return None
        read = sa.text("SELECT version_num FROM alembic_version")
        found: str | None = tx.execute(read).scalar_one_or_none()
        return found


def alembic_config(connection: sa.Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_newer(database: Database, revision: str | None) -> None:
    if revision is not None and revision > HEAD:
        raise SchemaMismatch(
            f"the database {mask_url(database.url)} was written by a newer Penstock (revision "
            f"{revision}; this version knows up to {HEAD}): nothing was changed and no job is "
            "lost. To go on, upgrade Penstock, or name another database in PENSTOCK_DSN or another "
            "folder in PENSTOCK_HOME"
        )


def _prepare(database: Database) -> None:
    """Make the indexes that a Postgres in use lacks, and drop those they replace, while others
    write, which a revision cannot do inside its transaction."""
    with database.outside() as connection:
        _build_indexes(connection)
        for statement in _ADDED_BEFOREHAND:
            _alter(connection, statement)
        _build_indexes(connection)
        for name in _DROPPED_BEFOREHAND:
            connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def _build_indexes(connection: sa.Connection) -> None:
    """Only on tables and columns that are there already."""
    inspector = sa.inspect(connection)
    there = {row[0]: row[1] for row in connection.exec_driver_sql(_VALID_INDEXES)}
    for name in metadata.tables.keys() & set(inspector.get_table_names()):
        table = metadata.tables[name]
        names = {column["name"] for column in inspector.get_columns(table.name)}
        for index in table.indexes:
            if not there.get(str(index.name)) and names.issuperset(_columns_of(index)):
                if index.name in there:
                    # One whose building was interrupted is kept up to date, and never used.
                    connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {index.name}")
                statement = str(sa.schema.CreateIndex(index).compile(connection))
                statement = _CREATE.sub(r"CREATE \1INDEX CONCURRENTLY", statement)
                connection.exec_driver_sql(statement)


def _columns_of(index: sa.Index) -> set[str]:
    """Also those in expressions such as `priority DESC`, and in its condition."""
    assert index.table is not None, "indexes are defined with their tables"
    named = {str(one).partition(" ")[0].rpartition(".")[2] for one in index.expressions}
    condition = str(index.dialect_options["postgresql"]["where"])
    return named | {one for one in _WORD.findall(condition) if one in index.table.columns}


def _alter(connection: sa.Connection, statement: str) -> None:
    """Every writer would wait behind a change that waits for one of them: it gives up soon, and
    tries again."""
    while True:
        try:
            connection.exec_driver_sql(f"SET lock_timeout = {_LOCK_MILLISECONDS}")
            connection.exec_driver_sql(statement)
            return
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            time.sleep(_LOOK_SECONDS)
        finally:
            connection.exec_driver_sql("RESET lock_timeout")


@contextmanager
def _one_migrator(database: Database) -> Iterator[None]:
    """Two first commands at once: one migrates, the other waits and finds it done."""
    if database.is_sqlite:
        from filelock import FileLock

        with FileLock(f"{database.engine.url.database}.migrating", mode=0o600):
            yield
        return
    with database.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        while not _take_lock(driver):
            driver.execute("ROLLBACK")
            time.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            driver.execute("ROLLBACK")


def _take_lock(driver: Any) -> bool:
    """A lock of a transaction, which a pooler keeps in one session.

    Asked for in one message without parameters: after any other, the transaction would keep a
    snapshot, which keeps indexes from being built. Building them takes long, hence no limit.
    """
    answers = driver.execute(
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; "
        f"SELECT pg_try_advisory_xact_lock({_MIGRATION_LOCK})"
    )
    while answers.nextset():
        pass
    return bool(answers.fetchone()[0])
