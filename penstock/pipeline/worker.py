"""The worker: threads that claim batches of due items and process them."""

import contextvars
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Self

import sqlalchemy as sa

from penstock.errors import BudgetSpent, PenstockError, StagePaused
from penstock.failpoints import hit
from penstock.pipeline.gate import BatchGate
from penstock.pipeline.processor import Processor
from penstock.pipeline.stage import Result
from penstock.queue.configuration import served_by
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.items import Claim, Verdict, WorkItem
from penstock.queue.queue import WorkQueue, not_of_runs
from penstock.queue.sweep import Recovered
from penstock.runs.lifecycle import note_pause
from penstock.store.database import Database
from penstock.store.leader_lease import HELD_SECONDS
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import ACTIVE_ITEM, work_items

log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
# Pause of a thread after a configuration fault or a lasting fault of the database.
ERROR_SECONDS = 15.0
# Shortest time between two sweeps.
_SWEEP_SECONDS = 0.05
# Between two sweeps, when one has found a lease that has ended and could not be taken back.
_SOON_SECONDS = 0.5
# How long a thread may take from its start to its first line.
_START_SECONDS = 0.5


@dataclass(slots=True)
class Worker:
    """Claims and processes in several threads, and sweeps while they work.

    While one thread writes to the database, the others keep the parsers busy. Threads claim for
    the heartbeat's rows in turn: with one row, they share it.
    """

    database: Database
    queue: WorkQueue
    processor: Processor
    heartbeat: Heartbeat
    batch_size: int
    threads: int
    poll_seconds: float
    run_id: int | None = None
    tenant_id: str | None = None
    least_suspects: int = 1
    """As for `WorkQueue.claim`."""
    served: Callable[[], Collection[str]] | None = None
    """Keys of the configurations whose items it may take; None: those of any."""
    recover: Callable[[], Recovered] = Recovered
    sweep_seconds: float = 30.0
    cut_off: Callable[[], None] = lambda: None
    """Ends what the threads wait for, when there is no time to wait with them."""
    emit: Callable[..., object] = lambda *_: None
    """Called with `worker_started` and `worker_stopped` (owner), `job_started` (item, owner),
    `job_completed` (item, result) and, for the last failure, `job_failed` (verdict, attempts that
    the item does not count yet)."""
    survives_errors: bool = False
    """Whether a thread goes on after an error, instead of ending the worker with it."""
    daemon: bool = False
    blocked_runs: set[int] = field(default_factory=set)
    """Runs that may cost no more; their items wait for a worker that may spend more."""
    running: list["WorkerThread"] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    paused: bool = False
    wakes: int = 0
    """How often `wake` was called; read before a look for work, it shows what the look missed."""
    gate: BatchGate = field(default_factory=BatchGate)
    _failed: list[BaseException] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Work until nothing is left and `is_over` says that nothing will come.

        The first error of a thread stops all of them and is raised here; what they held is given
        back. The same happens when the calling thread is interrupted, as a cancelled flow run is.
        """
        try:
            self.start(is_over)
            self.supervise()
            self.wait()
        except BaseException as error:
            self._failed.append(error)
            # Also one that comes while the threads are being started: those that were must end.
            self.stop()
            for thread in self.running:
                # It may have been interrupted in the middle of a start.
                thread.ended.wait(None if thread.ident is not None else _START_SECONDS)
            raise
        self.check()

    @contextmanager
    def in_background(self, tick: Callable[[], None]) -> Iterator[Self]:
        """Work while the block brings work in; the block ends when all of it is done.

        `tick` is called every now and then while waiting. An error in the block stops the threads
        after the batches they hold; an interruption, such as Ctrl-C, does not wait for these.
        """
        nothing_will_come = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-supervisor") as pool:
            working = pool.submit(
                contextvars.copy_context().run, self.run, nothing_will_come.is_set
            )
            try:
                yield self
                nothing_will_come.set()
                self.wake()
                while not wait([working], timeout=TICK_SECONDS).done:
                    tick()
            except BaseException as error:
                self.stop()
                if not isinstance(error, Exception):
                    self.cut_off()
                raise
            working.result()

    def start(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Start the threads and return; `is_over` as for `run`."""
        self.running = [WorkerThread(self, number, is_over) for number in range(self.threads)]
        for thread in self.running:
            thread.start()

    def supervise(self, first_sweep_seconds: float | None = None) -> None:
        """Sweep when it is time, until the worker is stopped or its threads have ended."""
        seconds = self.sweep_seconds if first_sweep_seconds is None else first_sweep_seconds
        while not self.stopping.wait(max(seconds, _SWEEP_SECONDS)):
            seconds = self.sweep()

    def sweep(self) -> float:
        """One pass of recovery; seconds until the next one, which tries again what failed."""
        try:
            found = self.recover()
        except PenstockError as error:
            log.warning("Failed to recover orphaned jobs: %s; the next sweep tries again", error)
            return self.sweep_seconds
        for verdict in found.items.dead:
            self.emit("job_failed", verdict, 0)
        if found.items:
            self.wake()
        # Soon, if another process is at it: it may have died meanwhile. And when a lease ends: one
        # of a worker that is alive is renewed long before that.
        again = HELD_SECONDS if found.elsewhere else found.again_seconds
        if again is None:
            return self.sweep_seconds
        return min(max(again, _SOON_SECONDS), self.sweep_seconds)

    def stop(self) -> None:
        """Let the threads end after the batches they hold."""
        self.stopping.set()
        self.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every thread has ended; False if that takes longer than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self.running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not thread.ended.wait(left):
                return False
            thread.join(_START_SECONDS)
        return True

    def check(self) -> None:
        """Raise the error that ended a thread, so that no more work is brought in."""
        if self._failed:
            raise self._failed[0]

    def pause(self, wanted: bool) -> None:
        """Claim nothing, or go on; batches under way are finished."""
        self.paused = wanted
        self.wake()

    def wake(self) -> None:
        """Something may have become due: look now rather than at the next poll."""
        with self._changed:
            self.wakes += 1
            self._changed.notify_all()

    def wait_for_wake(self, wakes: int, seconds: float | None = None) -> None:
        """Wait until a wake-up after the first `wakes`, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.stopping.is_set() or self.wakes != wakes, timeout=seconds
            )

    @retry_while_unavailable
    def has_more(self) -> bool:
        """Whether there is more to wait for: retries, and items of other workers, who may die."""
        left = sa.select(sa.literal(1)).where(ACTIVE_ITEM).limit(1)
        if self.run_id is not None:
            left = left.where(work_items.c.run_id == self.run_id)
        else:
            left = left.where(work_items.c.stage.in_(self.processor.stages))
            left = left.where(not_of_runs(self.blocked_runs))
            if self.served is not None:
                left = left.where(served_by(self.served()))
        with self.database.read() as tx:
            return tx.execute(left).first() is not None

    def end_thread(self, ended: "WorkerThread", error: BaseException | None) -> None:
        """A thread has ended, by itself or by an error; the last one ends the worker."""
        if error is not None:
            self._failed.append(error)
            if self.survives_errors:
                log.critical("thread %s of the worker ended", ended.name, exc_info=error)
        # After its error was noted: the last thread to end lets `run` look for errors.
        ended.ended.set()
        fatal = error is not None and not self.survives_errors
        if fatal or all(thread.ended.is_set() for thread in self.running):
            self.stopping.set()
        self.wake()


class WorkerThread(threading.Thread):
    """Claims batches for one owner, processes them, and counts what becomes of their items.

    Its end is an event of its own: Python 3.11 takes a thread for ended when a `join` is
    interrupted.
    """

    def __init__(
        self, worker: Worker, number: int = 0, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(name=f"penstock-worker-{number}", daemon=worker.daemon)
        self.row = worker.heartbeat.rows[number % len(worker.heartbeat.rows)]
        self.held: Claim | None = None
        self.item_id: int | None = None
        """The item that was begun last and has not ended."""
        self.error: str | None = None
        """What keeps the thread from working, until it works again."""
        self.ended = threading.Event()
        self._worker = worker
        self._is_over = is_over
        self._processor = worker.processor.observed_by(self)
        self._owed: set[str] = set()
        """Tokens of claims that the database may know and we do not hold: it was away when we took
        them, or gave them back. Their leases would be renewed with ours for ever."""
        # Prefect finds its flow run through the caller's context.
        self._context = contextvars.copy_context()

    @property
    def owner(self) -> str:
        return self.row.owner

    @property
    def status(self) -> str:
        if self.ended.is_set():
            return "stopped"
        if self.held is not None:
            return "processing"
        return "paused" if self._worker.paused else "idle"

    def run(self) -> None:
        failed: BaseException | None = None
        try:
            self._worker.emit("worker_started", self.owner)
            self._context.run(self._work)
        except BaseException as error:
            failed = error
        finally:
            try:
                self._worker.emit("worker_stopped", self.owner)
            finally:
                self._worker.end_thread(self, failed)

    def do_one_batch(self) -> bool:
        """Claim and process; False when nothing was due. While the database is away, it waits."""
        return retry_while_unavailable(self._do_one_batch, wait=self._worker.stopping.wait)()

    def give_back(self) -> None:
        """Make pending again what is left of the batch; the thread can no longer write to it."""
        claim = self.held
        if claim is None:
            return
        try:
            self._processor.give_back(claim)
        except PenstockError as error:
            self._owed.add(claim.token)
            log.warning("could not give items back, it is tried again: %s", error)

    def started(self, items: Sequence[WorkItem]) -> None:
        for item in items:
            self.item_id = item.id
            self._worker.emit("job_started", item, self.owner)

    def completed(self, item: WorkItem, result: Result) -> None:
        self.item_id = None
        self.row.count(completed=1)
        self._worker.emit("job_completed", item, result)

    def failed(self, verdict: Verdict) -> None:
        self.item_id = None
        if verdict.dead:
            self.row.count(failed=1)
            self._worker.emit("job_failed", verdict, 1)

    def _work(self) -> None:
        worker = self._worker
        while not worker.stopping.is_set():
            wakes = worker.wakes
            if self._try_one_batch():
                if self._is_over():
                    # Threads that wait for the last batch may end now.
                    worker.wake()
                continue
            # Asked first: what is recorded before the answer is found by the look after it.
            nothing_will_come = self._is_over()
            if nothing_will_come and not worker.has_more():
                return
            seconds = None if worker.paused else worker.poll_seconds
            worker.wait_for_wake(wakes, ERROR_SECONDS if self.error else seconds)

    def _try_one_batch(self) -> bool:
        try:
            busy = self.do_one_batch()
        except Exception as error:
            if not self._worker.survives_errors:
                raise
            self._note(error)
            return False
        self.error = None
        return busy

    def _note(self, error: Exception) -> None:
        known = isinstance(error, PenstockError)
        if known and self._worker.stopping.is_set():
            return
        message = str(error) if known else f"{type(error).__name__}: {error}"
        if not known:
            log.exception("worker %s met an unexpected error", self.owner)
        if message != self.error:
            log.error("worker %s waits, its jobs stay as they are: %s", self.owner, message)
        self.error = message

    def _do_one_batch(self) -> bool:
        # What is completed is counted on the worker's row.
        self._worker.heartbeat.start()
        self._worker.heartbeat.check_schema()
        if self._worker.paused:
            return False
        with self._worker.gate.side_by_side():
            claim = self._claim()
            if claim:
                hit("claim.committed")
                self.held = claim
                self._process(claim)
            return bool(claim)

    def _process(self, claim: Claim) -> None:
        try:
            with self._worker.gate.alone() if claim.on_trial else nullcontext():
                self._processor.process(claim)
        except BudgetSpent as spent:
            self.give_back()
            if self._worker.run_id is not None:
                raise
            if spent.run_id not in self._worker.blocked_runs:
                log.error("%s", spent)
                self._worker.blocked_runs.add(spent.run_id)
                note_pause(self._worker.database, spent.run_id, spent.reason)
        except StagePaused as paused:
            self.give_back()
            if self._worker.run_id is None:
                # No flow of these runs may be left to say why they do not go on.
                for run_id in {item.run_id for item in claim.items if item.run_id is not None}:
                    note_pause(self._worker.database, run_id, paused.reason, unheld=True)
            raise
        except BaseException:
            self.give_back()
            raise
        finally:
            self.held = None

    def _claim(self) -> Claim:
        worker, token = self._worker, uuid.uuid4().hex
        owed = set(self._owed)
        self._owed.add(token)
        served = None if worker.served is None else worker.served()
        with worker.database.write() as tx:
            if owed:
                worker.queue.release(tx, *owed)
            claim = worker.queue.claim(
                tx,
                self.owner,
                token=token,
                stages=self._processor.stages,
                limit=worker.batch_size,
                run_id=worker.run_id,
                tenant_id=worker.tenant_id,
                not_runs=tuple(worker.blocked_runs),
                served=served,
                least_suspects=worker.least_suspects,
                begins=self._processor.first_begun,
            )
            if claim:
                hit("claim.uncommitted")
        self._owed.clear()
        return claim
