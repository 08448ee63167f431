"""A worker's heartbeat: a thread that renews its leases and says in the database that it lives."""

import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from penstock import __version__
from penstock.store.database import Database, Tx
from penstock.store.schema import LEASED_ITEM, work_items, workers
from penstock.store.tallies import COMPLETED_ITEMS, add_to_tally
from penstock.work.items import Verdict, WorkItem
from penstock.work.queue import WorkQueue

log = logging.getLogger(__name__)
REMEMBERED = timedelta(days=7)


def new_owner() -> str:
    """A name for one worker: readable, and never used twice."""
    return f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def forget_old_workers(tx: Tx) -> int:
    """Whoever has not been heard of for a week, and holds nothing; how many."""
    gone = sa.delete(workers).where(old_workers(tx.now)).returning(workers.c.completed)
    completed = tx.execute(gone).scalars().all()
    add_to_tally(tx, COMPLETED_ITEMS, {"": sum(completed)})
    return len(completed)


def old_workers(now: datetime) -> sa.ColumnElement[bool]:
    """Which workers are forgotten."""
    holds = sa.exists().where(work_items.c.lease_owner == workers.c.id, LEASED_ITEM)
    return sa.and_(workers.c.heartbeat_at < now - REMEMBERED, ~holds)


class Heart:
    """Beats from entering the block to leaving it."""

    def __init__(self, database: Database, queue: WorkQueue, *, every_seconds: float) -> None:
        self.owner = new_owner()
        self.items_completed = 0
        self.items_failed = 0
        self._counting = threading.Lock()
        self._database = database
        self._queue = queue
        self._every_seconds = every_seconds
        self._beat_at = time.monotonic()
        self._kept: list[Callable[[Tx], object]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="penstock-heart", daemon=True)

    def __enter__(self) -> Self:
        with self._database.write() as tx:
            tx.execute(sa.insert(workers).values(self._birth(tx)))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Beat for the last time; stopping a heart twice changes nothing."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self._beat("stopped")

    @property
    def quiet_seconds(self) -> float:
        """How long ago the database last heard of this worker."""
        return time.monotonic() - self._beat_at

    def started(self, items: Sequence[WorkItem]) -> None:
        """As an observer of the path, a heart only counts."""
        del items

    def completed(self, item: WorkItem, result: object) -> None:
        del item, result
        with self._counting:
            self.items_completed += 1

    def failed(self, verdict: Verdict) -> None:
        with self._counting:
            self.items_failed += 1 if verdict.dead else 0

    def keep(self, renew: Callable[[Tx], object]) -> None:
        """Renew something else with every beat: a run's lease."""
        self._kept.append(renew)

    def _beat_on(self) -> None:
        while not self._stopping.wait(self._every_seconds):
            self._beat("running")

    def _beat(self, status: str) -> None:
        show_life = partial(self._show_life, status=status)
        renewals: list[Callable[[Tx], object]] = [self._renew_items, *self._kept, show_life]
        for renew in renewals:
            try:
                # Each in a transaction of its own: whoever holds one row must not wait for another.
                with self._database.write() as tx:
                    renew(tx)
                self._beat_at = time.monotonic()
            except Exception as error:
                # A heart that stops at an error loses every lease of a worker that lives. The
                # lease outlasts several beats; the next one may get through.
                log.warning("worker %s could not renew its leases: %s", self.owner, error)

    def _birth(self, tx: Tx) -> dict[str, object]:
        return {
            "id": self.owner,
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
        self._queue.renew(tx, self.owner)

    def _show_life(self, tx: Tx, status: str) -> None:
        signs = {
            "status": status,
            "heartbeat_at": tx.now,
            "completed": self.items_completed,
            "failed": self.items_failed,
        }
        tx.execute(sa.update(workers).where(workers.c.id == self.owner).values(signs))
