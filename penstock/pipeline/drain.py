"""Claims batch after batch and processes them, in a few lanes side by side, until told to end."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import sqlalchemy as sa

from penstock.pipeline.lane import Lane
from penstock.pipeline.processor import Processor
from penstock.store.database import Database
from penstock.store.patience import patient
from penstock.store.schema import ACTIVE_ITEM, WAITING_ITEM, work_items
from penstock.work.heart import Heart
from penstock.work.queue import WorkQueue, not_of_runs

TICK_SECONDS = 0.5
# How long a thread may take from its start to its first line.
_START_SECONDS = 0.5


@dataclass(slots=True)
class Drain:
    """Several lanes keep the parsers busy while one of them writes to the database."""

    database: Database
    queue: WorkQueue
    processor: Processor
    heart: Heart
    batch_size: int
    lanes: int
    poll_seconds: float
    run_id: int | None = None
    on_idle: Callable[[], None] = lambda: None
    _blocked_runs: set[int] = field(default_factory=set)
    _failed: list[BaseException] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Work until nothing is left and `is_over` says that nothing will come.

        The first error of a lane stops all of them and is raised here; what they held is given
        back. So it is when this thread is interrupted, as a cancelled flow run is.
        """
        lanes = [_LaneThread(self, is_over, number) for number in range(self.lanes)]
        try:
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.ended.wait()
        except BaseException:
            # Also one that comes while the lanes are being started: those that were must end.
            self.stop()
            for lane in lanes:
                lane.wait_if_started()
            raise
        self.check()

    @contextmanager
    def beside(self, tick: Callable[[], None]) -> Iterator[Self]:
        """Work while the block brings work in; the block ends when all of it is done.

        `tick` is called every now and then while waiting. An error in the block stops the lanes
        after the batches they hold.
        """
        nothing_will_come = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-drain") as pool:
            draining = pool.submit(
                contextvars.copy_context().run, self.run, nothing_will_come.is_set
            )
            try:
                yield self
                nothing_will_come.set()
                self.wake()
                while not wait([draining], timeout=TICK_SECONDS).done:
                    tick()
            finally:
                if not nothing_will_come.is_set() or not draining.done():
                    self.stop()
            draining.result()

    def check(self) -> None:
        """Raise what a lane has failed with, so that whoever brings work in stops."""
        if self._failed:
            raise self._failed[0]

    def stop(self) -> None:
        """Let the lanes end after the batches they hold."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Something may have become due: look now rather than at the next poll."""
        with self._changed:
            self._changed.notify_all()

    def work(self, is_over: Callable[[], bool]) -> None:
        """One lane, in a thread of its own."""
        lane = self._lane()
        try:
            while not self._stopping.is_set():
                if lane.do_one_batch():
                    self.wake()
                    continue
                # Asked first: what is recorded before the answer is found by the count after it.
                nothing_will_come = is_over()
                if nothing_will_come and not self._anything_left():
                    return
                self._wait()
        except BaseException as error:
            self._failed.append(error)
            self._stopping.set()
        finally:
            self.wake()

    def _lane(self) -> Lane:
        return Lane(
            self.database,
            self.queue,
            self.processor,
            self.heart.owner,
            self.batch_size,
            self._stopping,
            self.run_id,
            blocked_runs=self._blocked_runs,
        )

    @patient
    def _anything_left(self) -> bool:
        """Whether this drain has more to wait for: retries, and for a run other workers' items."""
        left = sa.select(sa.literal(1)).limit(1)
        if self.run_id is not None:
            left = left.where(ACTIVE_ITEM, work_items.c.run_id == self.run_id)
        else:
            left = left.where(WAITING_ITEM, work_items.c.stage.in_(self.processor.stages))
            left = left.where(not_of_runs(self._blocked_runs))
        with self.database.read() as tx:
            return tx.execute(left).first() is not None

    def _wait(self) -> None:
        self.on_idle()
        with self._changed:
            if not self._stopping.is_set():
                self._changed.wait(self.poll_seconds)


class _LaneThread(threading.Thread):
    """One lane at work. Its end is an event of its own: Python takes a thread for ended when a
    `join` is interrupted."""

    def __init__(self, drain: Drain, is_over: Callable[[], bool], number: int) -> None:
        super().__init__(name=f"penstock-lane-{number}")
        self._drain = drain
        self._is_over = is_over
        # Each lane sees the caller's context: Prefect finds its flow run through it.
        self._context = contextvars.copy_context()
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self._context.run(self._drain.work, self._is_over)
        finally:
            self.ended.set()

    def wait_if_started(self) -> None:
        """After an interruption, which may have come in the middle of its start."""
        self.ended.wait(None if self.ident is not None else _START_SECONDS)
