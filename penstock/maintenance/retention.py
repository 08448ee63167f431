"""Deletes old logs, jobs, run documents and model calls, in small transactions.

Nothing active is deleted, nor anything of an active run. The row of a run stays, with its final
counts and figures; nodes, answers of models and change marks are not touched.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

import sqlalchemy as sa

from penstock.errors import Unmaintained
from penstock.intake.nodes import forget_old_keys, old_keys
from penstock.queue.heartbeat import forget_old_workers, old_workers
from penstock.queue.items import ItemStatus
from penstock.runs.report import keep_figures
from penstock.runs.run import ENDED_STATUSES
from penstock.store.database import Database, Tx
from penstock.store.lifetime_counters import FAILED_ATTEMPTS, add_to_counter
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import (
    ACTIVE_RUN,
    attempts,
    events,
    idempotency_keys,
    model_calls,
    run_documents,
    runs,
    work_items,
    workers,
)

log = logging.getLogger(__name__)

ROWS = 2000
LOG_EVERY_SECONDS = 5.0
Rows = Sequence[sa.Row[Any]]


@dataclass(frozen=True, slots=True)
class OldRows:
    """Rows of one table that are old enough to be deleted."""

    name: str
    key: sa.Column[Any]
    """The rows are gone through in its order; unique among these rows."""
    conditions: tuple[sa.ColumnElement[bool], ...]
    run_id: sa.Column[Any] | None = None
    """The run whose figures are computed from these rows, and kept before they are deleted."""

    @property
    def table(self) -> sa.Table:
        return self.key.table

    def select(self) -> sa.Select[Any]:
        run = () if self.run_id is None else (self.run_id,)
        return sa.select(self.key.label("key"), *run).where(*self.conditions)


def delete_in_batches(database: Database, old: OldRows) -> int:
    """Delete them all; how many.

    They are found without any lock. Those of them that are still old and not locked are deleted:
    deleting never waits for another transaction. When it is interrupted, what was deleted stays
    deleted; two that do this at once share the work.
    """
    deleted, logged_at = 0, time.monotonic()
    for rows in read_pages(database, old.key, old.select(), ROWS):
        if old.run_id is not None:
            keep_figures(database, {row.run_id for row in rows if row.run_id is not None})
        began = time.monotonic()
        deleted += _delete(database, old, [row.key for row in rows])
        ended = time.monotonic()
        if ended - logged_at > LOG_EVERY_SECONDS:
            log.info("%s: %d forgotten so far", old.name, deleted)
            logged_at = ended
        # SQLite has one writer, and no queue of those that wait for their turn.
        time.sleep(ended - began)
    return deleted


def read_pages(
    database: Database, key: sa.Column[Any], query: sa.Select[Any], size: int
) -> Iterator[Rows]:
    """So many rows at a time, in the order of the column that the query names `key`: no transaction
    lasts as long as all of it."""
    ordered = query.order_by(key).limit(size)
    rows = _read_page(database, ordered)
    while rows:
        yield rows
        # By the key: otherwise Postgres would read deleted rows before them again each time.
        rows = _read_page(database, ordered.where(key > rows[-1].key))


@retry_while_unavailable
def _read_page(database: Database, query: sa.Select[Any]) -> Rows:
    with database.read() as tx:
        return tx.execute(query).all()


@retry_while_unavailable
def _delete(database: Database, old: OldRows, keys: list[Any]) -> int:
    with database.write() as tx:
        still = old.select().where(tx.among(old.key, keys)).order_by(old.key)
        rows = tx.execute(still.with_for_update(skip_locked=True, of=old.table)).all()
        if old.table is work_items:
            _tally_attempts(tx, rows)
        own = tx.among(old.key, [row.key for row in rows])
        # With the conditions: the key may be unique among these rows alone.
        tx.execute(sa.delete(old.table).where(own, *old.conditions))
        return len(rows)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days after which things are forgotten; 0 keeps them for ever."""

    events: int = 30
    jobs: int = 30
    dead_letters: int = 90
    run_documents: int = 180
    model_calls: int = 0
    expired_raw: int = 90
    old_raw: int = 30

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """From settings named `keep_…_days`."""
        return cls(**{name: settings[f"keep_{name}_days"] for name in cls.__dataclass_fields__})


def before(now: datetime, days: int) -> datetime | None:
    """What is older than this may be deleted; None: keep all."""
    return now - timedelta(days=days) if days else None


@dataclass(frozen=True, slots=True)
class Retention:
    """Deletes what has been kept long enough, or, in a dry run, counts it; each method returns how
    many rows."""

    database: Database
    now: datetime
    keeping: RetentionPolicy
    dry_run: bool

    def forget_events(self) -> int:
        """Lines of logs."""
        return self._by_age("events", events.c.seq, events.c.at, self.keeping.events)

    def forget_jobs(self) -> int:
        """Jobs that are complete or cancelled, but for those that came after a dead letter of the
        same work: they show that it was done since."""
        ended = work_items.c.status.in_([ItemStatus.COMPLETE, ItemStatus.CANCELLED])
        return self._items("jobs", sa.and_(ended, ~_has_dead_letter()), self.keeping.jobs)

    def forget_dead_letters(self) -> int:
        """Jobs that failed, with their history."""
        failed = work_items.c.status == ItemStatus.FAILED
        return self._items("dead letters", failed, self.keeping.dead_letters)

    def forget_run_documents(self) -> int:
        """The documents of runs that ended long ago."""
        oldest = before(self.now, self.keeping.run_documents)
        if oldest is None:
            return 0
        return sum(self._forget(old) for old in _documents_of(self.database, oldest))

    def forget_model_calls(self) -> int:
        """Calls to models, with what they cost; kept for ever by default."""
        c = model_calls.c
        return self._by_age("model calls", c.id, c.called_at, self.keeping.model_calls)

    def forget_request_keys(self) -> int:
        """Idempotency keys, as recovery does it all the time."""
        if self.dry_run:
            return _count(self.database, idempotency_keys, old_keys(self.now))
        with self.database.write() as tx:
            return forget_old_keys(replace(tx, now=self.now))

    def forget_workers(self) -> int:
        """Workers without a heartbeat for long, as recovery does it all the time."""
        if self.dry_run:
            return _count(self.database, workers, old_workers(self.now))
        with self.database.write() as tx:
            return forget_old_workers(replace(tx, now=self.now))

    def _by_age(self, name: str, key: sa.Column[Any], time: sa.Column[Any], days: int) -> int:
        oldest = before(self.now, days)
        if oldest is None:
            return 0
        return self._forget(OldRows(name, key, (time < oldest, _of_no_active_run(key.table))))

    def _items(self, name: str, ended: sa.ColumnElement[bool], days: int) -> int:
        oldest, c = before(self.now, days), work_items.c
        if oldest is None:
            return 0
        conditions = (ended, c.finished_at < oldest, _of_no_active_run(work_items))
        return self._forget(OldRows(name, c.id, conditions, c.run_id))

    def _forget(self, old: OldRows) -> int:
        if self.dry_run:
            return _count(self.database, old.table, *old.conditions)
        return delete_in_batches(self.database, old)


def _count(database: Database, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    with database.read() as tx:
        counted = sa.select(sa.func.count()).select_from(table).where(*conditions)
        return int(tx.execute(counted).scalar_one())


def _tally_attempts(tx: Tx, rows: Rows) -> None:
    """Attempts are deleted with their jobs; the metrics still count them."""
    theirs = tx.among(attempts.c.item_id, [row.key for row in rows])
    counted = sa.select(attempts.c.error_class, sa.func.count()).where(theirs)
    found = tx.execute(counted.group_by(attempts.c.error_class))
    add_to_counter(tx, FAILED_ATTEMPTS, {row[0]: row[1] for row in found})


def _documents_of(database: Database, oldest: datetime) -> Iterator[OldRows]:
    """One run at a time, since the figures of each are kept first."""
    has_documents = sa.exists().where(run_documents.c.run_id == runs.c.id)
    ended = sa.and_(runs.c.status.in_(ENDED_STATUSES), runs.c.finished_at < oldest)
    query = sa.select(runs.c.id).where(ended, has_documents).order_by(runs.c.id)
    with database.read() as tx:
        ids = tx.execute(query).scalars().all()
    c = run_documents.c
    for run_id in ids:
        yield OldRows(f"documents of run {run_id}", c.external_id, (c.run_id == run_id,), c.run_id)


def _has_dead_letter() -> sa.ColumnElement[bool]:
    dead, c = work_items.alias("dead"), work_items.c
    same = sa.and_(dead.c.node_id == c.node_id, dead.c.stage == c.stage, dead.c.id < c.id)
    return sa.exists().where(same, dead.c.status == ItemStatus.FAILED)


def _of_no_active_run(table: sa.Table) -> sa.ColumnElement[bool]:
    return ~sa.exists().where(runs.c.id == table.c.run_id, ACTIVE_RUN)


@dataclass(frozen=True, slots=True)
class Figure:
    """How many of something, and their size together, where it is known."""

    what: str
    count: int
    bytes: int | None = None

    def __str__(self) -> str:
        size = "" if self.bytes is None else f" ({in_short(self.bytes)})"
        return f"{self.count:,} {self.what}{size}"


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """One part of maintenance."""

    name: str
    seconds: float
    figures: Sequence[Figure] = ()
    note: str = ""
    error: str | None = None

    def __str__(self) -> str:
        """One line about it."""
        said = [str(figure).removesuffix(f" {self.name}") for figure in self.figures]
        said += [text for text in (self.note, self.error and f"failed: {self.error}") if text]
        return f"{self.name}: {', '.join(said)}"


@dataclass(frozen=True, slots=True)
class Maintained:
    """The parts of maintenance that were done."""

    parts: Sequence[MaintenanceStep]
    dry_run: bool = False

    @property
    def failures(self) -> list[str]:
        return [f"{part.name}: {part.error}" for part in self.parts if part.error is not None]

    def raise_failures(self) -> None:
        """Raise Unmaintained with all reasons, if any part failed."""
        if self.failures:
            raise Unmaintained("; ".join(self.failures))

    def as_json(self) -> dict[str, Any]:
        parts = [asdict(part) | {"seconds": round(part.seconds, 3)} for part in self.parts]
        return {"dry_run": self.dry_run, "parts": parts, "failures": self.failures}


def in_short(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
