"""All parts of maintenance, one after the other; one that fails does not stop the others."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from penstock.crawl.rawstore import RawStore
from penstock.errors import Interrupted, PenstockError, StoreError
from penstock.maintenance.raw_objects import RawObjects
from penstock.maintenance.retention import (
    Figure,
    Maintained,
    MaintenanceStep,
    Retention,
    RetentionPolicy,
    in_short,
)
from penstock.store.database import Database
from penstock.store.schema import LEASED_ITEM, work_items, workers

log = logging.getLogger(__name__)

BUSY_TABLES = (
    *("work_items", "attempts", "events", "run_documents", "nodes", "texts", "embeddings"),
    *("runs", "workers", "idempotency_keys"),
)
# A file is rewritten only if that makes it much smaller.
WORTH_SHARE = 0.25
WORTH_BYTES = 16_000_000
BUSY_MILLISECONDS = 250
_ALIVE = timedelta(minutes=1)


def vacuum(database: Database, *, dry_run: bool) -> str:
    """Give free pages back to the file system; what was done, or would be."""
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
    with database.outside() as connection, _short_timeout(connection):
        connection.exec_driver_sql("PRAGMA optimize")
        if reason is None:
            connection.exec_driver_sql("VACUUM")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return f"{room}, left: {reason}" if reason else f"{in_short(free)} given back"


@contextmanager
def _short_timeout(connection: sa.Connection) -> Iterator[None]:
    """Give up soon: waiting here for readers keeps all writers waiting."""
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
        return "workers are running"
    # A whole copy, and the log of copying it back.
    if shutil.disk_usage(database.files[0].parent).free < 2 * size:
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


Result = tuple[Sequence[Figure], str]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """All parts of maintenance over one database and raw store."""

    database: Database
    raw: Callable[[], RawStore]
    """Opened when its turn comes: a store that cannot be opened fails one part only."""
    recover: Callable[[], object]
    """Reconciles Redis with the database, among other things; what it found."""
    keeping: RetentionPolicy
    now: datetime | None = None
    """None: by the database's clock."""

    def run(self, *, dry_run: bool = False) -> Maintained:
        """Do it all, or, in a dry run, only count what would be done."""
        with self.database.read() as tx:
            now = self.now or tx.now
        parts = []
        for name, do in self._parts(now, dry_run).items():
            parts.append(_try(name, do))
            log.info("%s", parts[-1])
        return Maintained(parts, dry_run)

    def _parts(self, now: datetime, dry_run: bool) -> dict[str, Callable[[], Result]]:
        kept = self.keeping
        old = Retention(self.database, now, kept, dry_run)
        forget: dict[str, Callable[[], int]] = {
            "events": old.forget_events,
            "dead letters": old.forget_dead_letters,
            "jobs": old.forget_jobs,
            "run documents": old.forget_run_documents,
            "model calls": old.forget_model_calls,
            "request keys": old.forget_request_keys,
            "workers": old.forget_workers,
        }

        def tidy_raw() -> Result:
            days = (kept.expired_raw, kept.old_raw)
            return RawObjects(self.database, self.raw(), now, *days, dry_run).tidy(), ""

        return {
            "reconcile": lambda: ((), "not in a dry run" if dry_run else str(self.recover())),
            **{name: partial(_count, name, delete) for name, delete in forget.items()},
            "raw objects": tidy_raw,
            "vacuum": lambda: ((), vacuum(self.database, dry_run=dry_run)),
        }


def _count(what: str, forget: Callable[[], int]) -> Result:
    return [Figure(what, forget())], ""


def _try(name: str, do: Callable[[], Result]) -> MaintenanceStep:
    began = time.monotonic()
    figures: Sequence[Figure] = ()
    note, failure = "", None
    try:
        figures, note = do()
    except Interrupted:
        raise
    except Exception as error:
        if not isinstance(error, PenstockError):
            log.exception("%s failed unexpectedly", name)
        failure = str(error) or type(error).__name__
    return MaintenanceStep(name, time.monotonic() - began, figures, note, failure)
