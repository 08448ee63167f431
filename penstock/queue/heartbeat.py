"""The heartbeat of a worker process: one thread renews its leases and its rows in `workers`."""

import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Self

import sqlalchemy as sa

from penstock import __version__
from penstock.errors import SchemaMismatch
from penstock.queue.queue import WorkQueue
from penstock.store.database import Database, Tx
from penstock.store.lifetime_counters import COMPLETED_ITEMS, add_to_counter
from penstock.store.schema import LEASED_ITEM, work_items, workers

log = logging.getLogger(__name__)
REMEMBERED = timedelta(days=7)


def new_owner() -> str:
    """A name for one worker: readable, and never used twice."""
    return f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class WorkerRow:
    """One row of `workers`: an owner of leases, and what it has done since its start."""

    def __init__(self) -> None:
        self.owner = new_owner()
        self.completed = 0
        self.failed = 0
        # The threads of a flow share one row.
        self._lock = threading.Lock()

    def count(self, *, completed: int = 0, failed: int = 0) -> None:
        with self._lock:
            self.completed += completed
            self.failed += failed


class Heartbeat:
    """Renews from `start` to `stop`, or within a block, the leases of all `rows`."""

    def __init__(
        self, database: Database, queue: WorkQueue, *, every_seconds: float, rows: int = 1
    ) -> None:
        self.rows = tuple(WorkerRow() for _ in range(rows))
        self._database = database
        self._queue = queue
        self._every_seconds = every_seconds
        self._beat_at = time.monotonic()
        self._mismatch: SchemaMismatch | None = None
        self._also_renewed: list[Callable[[Tx], object]] = []
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Record the rows and begin to beat, unless that has been done."""
        with self._starting:
            if self._thread.ident is not None or self._stopping.is_set():
                return
            with self._database.write() as tx:
                # They are there already when the answer to an earlier commit was lost.
                insert = tx.insert(workers).values([self._new_values(tx, row) for row in self.rows])
                tx.execute(insert.on_conflict_do_nothing())
            self._thread.start()

    def stop(self) -> None:
        """Beat for the last time; stopping a heartbeat twice changes nothing."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def owner(self) -> str:
        """The owner of the first row, often the only one."""
        return self.rows[0].owner

    @property
    def items_completed(self) -> int:
        return sum(row.completed for row in self.rows)

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the database was last reached."""
        return time.monotonic() - self._beat_at

    def also_renew(self, renew: Callable[[Tx], object]) -> None:
        """Renew something else with every beat: a run's lease."""
        self._also_renewed.append(renew)

    def check_schema(self) -> None:
        """Raise SchemaMismatch if the last beat found that the database has been migrated."""
        if self._mismatch is not None:
            raise self._mismatch

    def _run(self) -> None:
        while not self._stopping.wait(self._every_seconds):
            self._look_at_schema()
            self._beat("running")
        self._beat("stopped")

    def _look_at_schema(self) -> None:
        try:
            self._database.check_revision()
            self._mismatch = None
        except SchemaMismatch as error:
            self._mismatch = error

    def _beat(self, status: str) -> None:
        renewals: list[Callable[[Tx], object]] = [self._renew_items, *self._also_renewed]
        renewals += [partial(self._update_row, row=row, status=status) for row in self.rows]
        for renew in renewals:
            try:
                # Each in a transaction of its own, so that none waits with another's rows locked.
                with self._database.write() as tx:
                    renew(tx)
                self._beat_at = time.monotonic()
            except Exception as error:
                # A heartbeat that ended here would lose every lease of a worker that is alive. A
                # lease outlasts several beats; the next one may get through.
                log.warning("worker %s could not renew its leases: %s", self.owner, error)

    def _new_values(self, tx: Tx, row: WorkerRow) -> dict[str, object]:
        return {
            "id": row.owner,
            "host": platform.node(),
            "pid": os.getpid(),
            "version": __version__,
            "status": "running",
            "started_at": tx.now,
            "heartbeat_at": tx.now,
            "completed": 0,
            "failed": 0,
        }

    def _renew_items(self, tx: Tx) -> None:
        self._queue.renew(tx, *(row.owner for row in self.rows))

    def _update_row(self, tx: Tx, row: WorkerRow, status: str) -> None:
        # Completed items are counted in the transactions that complete them.
        values = {"status": status, "heartbeat_at": tx.now, "failed": row.failed}
        tx.execute(sa.update(workers).where(workers.c.id == row.owner).values(values))


def forget_old_workers(tx: Tx) -> int:
    """Delete workers that were last heard of a week ago and hold nothing; how many."""
    gone = sa.delete(workers).where(old_workers(tx.now)).returning(workers.c.completed)
    completed = tx.execute(gone).scalars().all()
    add_to_counter(tx, COMPLETED_ITEMS, {"": sum(completed)})
    return len(completed)


def old_workers(now: datetime) -> sa.ColumnElement[bool]:
    """The condition for workers that may be deleted."""
    holds = sa.exists().where(work_items.c.lease_owner == workers.c.id, LEASED_ITEM)
    return sa.and_(workers.c.heartbeat_at < now - REMEMBERED, ~holds)
