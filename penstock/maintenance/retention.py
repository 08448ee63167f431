"""What is forgotten when it is old: logs, jobs, documents of runs, calls to models.

Never anything that is active or of a run that is. A run's own row stays, with its final counts and
its figures; nodes, answers of models and change marks are not touched at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.intake.idempotency import forget_old_keys, old_keys
from penstock.maintenance.forgetting import Old, Rows, count_old, forget
from penstock.maintenance.keeping import Keeping, before
from penstock.runs.figures import keep_figures
from penstock.runs.vocabulary import ENDED_STATUSES
from penstock.store.database import Database, Tx
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
from penstock.store.tallies import FAILED_ATTEMPTS, add_to_tally
from penstock.work.heart import forget_old_workers, old_workers
from penstock.work.items import ItemStatus


@dataclass(frozen=True, slots=True)
class Retention:
    """Forgets what has been kept long enough, or counts it; each way answers how many."""

    database: Database
    now: datetime
    keeping: Keeping
    dry_run: bool

    def forget_events(self) -> int:
        """Lines of logs."""
        return self._by_age("events", events.c.seq, events.c.at, self.keeping.events)

    def forget_jobs(self) -> int:
        """Jobs that are complete or cancelled."""
        ended = work_items.c.status.in_([ItemStatus.COMPLETE, ItemStatus.CANCELLED])
        return self._items("jobs", ended, self.keeping.jobs)

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
        """What was spent: kept for ever unless somebody says otherwise."""
        c = model_calls.c
        return self._by_age("model calls", c.id, c.called_at, self.keeping.model_calls)

    def forget_request_keys(self) -> int:
        """Idempotency keys, as recovery does it all the time."""
        if self.dry_run:
            return self._count(idempotency_keys, old_keys(self.now))
        with self.database.write() as tx:
            return forget_old_keys(replace(tx, now=self.now))

    def forget_workers(self) -> int:
        """Workers that were not heard of for long, as recovery does it all the time."""
        if self.dry_run:
            return self._count(workers, old_workers(self.now))
        with self.database.write() as tx:
            return forget_old_workers(replace(tx, now=self.now))

    def _by_age(self, name: str, key: sa.Column[Any], time: sa.Column[Any], days: int) -> int:
        oldest = before(self.now, days)
        if oldest is None:
            return 0
        return self._forget(Old(name, key, (time < oldest, _of_no_active_run(key.table))))

    def _items(self, name: str, ended: sa.ColumnElement[bool], days: int) -> int:
        oldest, c = before(self.now, days), work_items.c
        if oldest is None:
            return 0
        old = Old(
            name,
            c.id,
            (ended, c.finished_at < oldest, _of_no_active_run(work_items)),
            columns=(c.run_id,),
            prepare=_keep_figures_of,
            account=_tally_attempts,
        )
        return self._forget(old)

    def _forget(self, old: Old) -> int:
        return count_old(self.database, old) if self.dry_run else forget(self.database, old)

    def _count(self, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        with self.database.read() as tx:
            counted = sa.select(sa.func.count()).select_from(table).where(condition)
            return int(tx.execute(counted).scalar_one())


def _keep_figures_of(database: Database, rows: Rows) -> None:
    keep_figures(database, {row.run_id for row in rows if row.run_id is not None})


def _tally_attempts(tx: Tx, rows: Rows) -> None:
    """They go with their jobs; how many there were is still told."""
    theirs = tx.among(attempts.c.item_id, [row.key for row in rows])
    counted = sa.select(attempts.c.error_class, sa.func.count()).where(theirs)
    found = tx.execute(counted.group_by(attempts.c.error_class))
    add_to_tally(tx, FAILED_ATTEMPTS, {row[0]: row[1] for row in found})


def _documents_of(database: Database, oldest: datetime) -> Iterator[Old]:
    """A run at a time, for their figures are kept first."""
    has_documents = sa.exists().where(run_documents.c.run_id == runs.c.id)
    ended = sa.and_(runs.c.status.in_(ENDED_STATUSES), runs.c.finished_at < oldest)
    query = sa.select(runs.c.id).where(ended, has_documents).order_by(runs.c.id)
    with database.read() as tx:
        ids = tx.execute(query).scalars().all()
    for run_id in ids:
        yield Old(
            f"documents of run {run_id}",
            run_documents.c.external_id,
            (run_documents.c.run_id == run_id,),
            columns=(run_documents.c.run_id,),
            prepare=_keep_figures_of,
        )


def _of_no_active_run(table: sa.Table) -> sa.ColumnElement[bool]:
    return ~sa.exists().where(runs.c.id == table.c.run_id, ACTIVE_RUN)
