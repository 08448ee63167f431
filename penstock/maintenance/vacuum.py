"""Gives room back to the database, or to the disk. Nothing depends on it, so it never fails."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.errors import StoreError
from penstock.maintenance.outcome import in_short
from penstock.store.database import Database
from penstock.store.schema import LEASED_ITEM, work_items, workers

log = logging.getLogger(__name__)

BUSY_TABLES = (
    "work_items",
    "attempts",
    "events",
    "run_documents",
    "nodes",
    "texts",
    "embeddings",
    "runs",
    "workers",
    "idempotency_keys",
)
# A file is written anew only if that makes it a good deal smaller.
WORTH_SHARE = 0.25
WORTH_BYTES = 16_000_000
BUSY_MILLISECONDS = 250
_ALIVE = timedelta(minutes=1)


def vacuum(database: Database, *, dry_run: bool) -> str:
    """What was done, or would be."""
    try:
        if database.is_sqlite:
            return _vacuum_sqlite(database, dry_run)
        return "not in a dry run" if dry_run else _vacuum_postgres(database)
    except StoreError as error:
        log.warning("left for the next time: %s", error)
        return f"left for the next time: {error}"


def _vacuum_sqlite(database: Database, dry_run: bool) -> str:
    free, size = _measure(database)
    room = f"{in_short(free)} of {in_short(size)} are free"
    reason = _why_not(database, free, size)
    if dry_run:
        return f"{room}; would be {f'left, {reason}' if reason else 'written anew'}"
    with database.outside() as connection, _impatient(connection):
        connection.exec_driver_sql("PRAGMA optimize")
        if reason is None:
            connection.exec_driver_sql("VACUUM")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return f"{room}, left: {reason}" if reason else f"{in_short(free)} given back"


@contextmanager
def _impatient(connection: sa.Connection) -> Iterator[None]:
    """Give up soon: who waits here for readers keeps all writers waiting."""
    usual = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {min(BUSY_MILLISECONDS, usual)}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {usual}")


def _why_not(database: Database, free: int, size: int) -> str | None:
    """Why the file is better left as it is."""
    if free < WORTH_BYTES or free < size * WORTH_SHARE:
        return "not worth it"
    if _is_at_work(database):
        return "somebody is at work"
    folder = Path(str(database.engine.url.database)).parent
    # A whole copy, and the log of copying it back.
    if shutil.disk_usage(folder).free < 2 * size:
        return "the disk has no room for a copy"
    return None


def _measure(database: Database) -> tuple[int, int]:
    """Free bytes, and all bytes, of the file."""
    with database.read() as tx:

        def ask(pragma: str) -> int:
            return int(tx.connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one())

        page = ask("page_size")
        return page * ask("freelist_count"), page * ask("page_count")


def _is_at_work(database: Database) -> bool:
    with database.read() as tx:
        leased = sa.select(work_items.c.id).where(LEASED_ITEM).limit(1)
        alive = sa.select(workers.c.id).where(
            workers.c.status == "running", workers.c.heartbeat_at > tx.now - _ALIVE
        )
        return any(tx.execute(query).first() is not None for query in (leased, alive))


def _vacuum_postgres(database: Database) -> str:
    """Tables that are locked, or that are not the account's own, are passed over by Postgres."""
    said: list[str] = []
    with database.outside() as connection:
        driver: Any = connection.connection.dbapi_connection

        def note(diagnostic: Any) -> None:
            said.append(str(diagnostic.message_primary))

        driver.add_notice_handler(note)
        try:
            for table in BUSY_TABLES:
                connection.exec_driver_sql(f"VACUUM (ANALYZE, SKIP_LOCKED) {table}")
        finally:
            driver.remove_notice_handler(note)
    passed_over = f"; {'; '.join(said)}" if said else ""
    return f"{len(BUSY_TABLES)} tables looked at{passed_over}"
