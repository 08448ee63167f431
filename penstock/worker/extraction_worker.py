"""A pool of worker threads for programs that embed Penstock."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from penstock.bootstrap import App, ensure_vector_index
from penstock.documents import Stage
from penstock.pipeline.lane import Lane
from penstock.store.schema import LEASED_ITEM, WAITING_ITEM, work_items
from penstock.work.items import ACTIVE_STATUSES, WorkItem
from penstock.worker.callbacks import Callbacks
from penstock.worker.control import Control
from penstock.worker.database import Database
from penstock.worker.queue import QueueManager
from penstock.worker.status import worker_status
from penstock.worker.sweeper import Sweeper
from penstock.worker.thread import JobTeller, WorkerThread

log = logging.getLogger(__name__)
MIN_TIMEOUT_SECONDS = 10.0
# A lease outlasts two lost heartbeats.
BEATS_PER_LEASE = 3
EXIT_SECONDS = 5.0
IDLE_LOOK_SECONDS = 0.05
# For what a claim costs beside the parsing: starting children, writing, the stages that follow.
CLAIM_GRACE_SECONDS = 300.0


class ExtractionWorker:
    """Threads that claim jobs and process them, each document in a child that can be killed.

    By default attachments become text; `stages=("text", "extract", "embed")` goes on to fields and
    vectors. Use `start` and `stop`, or a `with` block.
    """

    def __init__(
        self,
        db: Database,
        num_workers: int = 2,
        max_retries: int = 3,
        extraction_timeout: float = 300,
        heartbeat_interval: float = 10,
        poll_interval: float = 1.0,
        stages: Sequence[Stage | str] = (Stage.TEXT,),
        batch_size: int = 1,
        all_tenants: bool = False,
    ) -> None:
        """`extraction_timeout`: seconds until a document's child is killed, at least 10.
        `batch_size`: jobs that a thread claims together; more is quicker, one at a time is fairer.
        `all_tenants`: work, and be told, also of jobs of other tenants than the library's own.
        """
        if num_workers < 1 or max_retries < 0 or batch_size < 1:
            raise ValueError("num_workers and batch_size start at 1, max_retries at 0")
        if min(extraction_timeout, heartbeat_interval, poll_interval) <= 0:
            raise ValueError("timeouts and intervals are more than 0 seconds")
        self.num_workers = num_workers
        self.stages = _in_order(stages)
        self.queue = QueueManager(db, max_retries, self.stages)
        self.keeps_program_alive = False
        self._db = db
        self._tenant_id = None if all_tenants else db.tenant_id
        self._extraction_timeout = _with_floor(extraction_timeout)
        self._heartbeat_interval = heartbeat_interval
        self._poll_interval = poll_interval
        self._batch_size = batch_size
        self._callbacks = Callbacks()
        self._control = Control()
        self._lock = threading.Lock()
        self._threads: list[WorkerThread] = []
        self._sweeper: Sweeper | None = None
        self._app: App | None = None
        self._waker: AbstractContextManager[object] | None = None
        self._started_at: float | None = None
        self._stopped_at: float | None = None
        self._stopped = threading.Event()
        self._stopped.set()

    def start(self) -> None:
        """Start the threads; starting a worker that runs changes nothing."""
        # It ends the children at exit; exit handlers run in reverse, and ours still needs them.
        import pebble  # noqa: F401

        with self._lock:
            if self.is_running():
                return
            paused, self._control = self._control.paused, Control()
            self._control.pause(paused)
            self._app = self._build_app()
            if Stage.EMBED in self.stages:
                ensure_vector_index(self._app)
            self._threads = [self._build_thread(self._app) for _ in range(self.num_workers)]
            self._sweeper = Sweeper(self._app, self._control, self._callbacks, self._is_ours)
            self._waker = self._app.waker(self._control.wake)
            self._waker.__enter__()
            self._started_at, self._stopped_at = time.monotonic(), None
            self._stopped.clear()
            for thread in (*self._threads, self._sweeper):
                thread.start()
        atexit.register(self._stop_at_exit)

    def stop(self, timeout: float = 60.0) -> bool:
        """Finish the jobs under way, for at most `timeout` seconds. False when some did not
        finish: they are pending again, and the threads that were at them can no longer write.

        In a callback it only asks for the stop, since a thread cannot wait for itself."""
        if threading.current_thread() in (*self._threads, self._sweeper):
            threading.Thread(target=self.stop, args=(timeout,), name="penstock-stop").start()
            return False
        with self._lock:
            self._control.stop()
            deadline = time.monotonic() + timeout
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            late = [thread for thread in self._threads if thread.is_alive()]
            for thread in late:
                log.warning("worker %s did not finish in time, its job is released", thread.name)
                thread.lane.give_back()
            self._end_parts()
            if self._stopped_at is None:
                self._stopped_at = time.monotonic()
            self._stopped.set()
        atexit.unregister(self._stop_at_exit)
        return not late

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker has stopped, by a signal or another thread; True when it has."""
        return self._stopped.wait(timeout)

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until the queue is empty and nothing is under way, retries included; True when it
        is. A worker that does not run, or is paused, is not waited for."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_running() and not self.is_paused():
            stats = self.queue.get_queue_stats()
            if not any(stats[status] for status in ACTIVE_STATUSES):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._stopped.wait(IDLE_LOOK_SECONDS)
        return False

    def pause(self) -> None:
        """Start no further job; those under way are finished."""
        self._control.pause(True)
        self._callbacks.emit("worker_paused")

    def resume(self) -> None:
        self._control.pause(False)
        self._control.wake()
        self._callbacks.emit("worker_resumed")

    def is_running(self) -> bool:
        alive = any(thread.is_alive() for thread in self._threads)
        return alive and not self._control.stopping.is_set()

    def is_paused(self) -> bool:
        return self._control.paused

    def enqueue(self, attachment_id: int, priority: int = 0) -> int | None:
        """Ask for an attachment to be processed; the job's id, or None when one is active."""
        job_id = self.queue.enqueue(attachment_id, priority)
        self._control.wake()
        return job_id

    def enqueue_batch(self, attachment_ids: Sequence[int], priority: int = 0) -> list[int]:
        """All of them or, when one id is unknown, none; the ids of the new jobs."""
        job_ids = self.queue.enqueue_batch(attachment_ids, priority)
        self._control.wake()
        return job_ids

    def retry_failed_jobs(self, job_ids: Sequence[int] | None = None) -> int:
        """Give failed jobs, or these, all their retries again; how many there were."""
        chosen: Sequence[int | None] = [None] if job_ids is None else job_ids
        count = sum(self.queue.retry_failed(job_id) for job_id in chosen)
        self._control.wake()
        return count

    def get_status(self) -> dict[str, Any]:
        """What the worker is doing and how the queue stands, as plain values."""
        queue = self.queue.get_queue_stats()
        with self._db.app.database.read() as tx:
            return {
                "running": self.is_running(),
                "paused": self.is_paused(),
                "num_workers": self.num_workers,
                **worker_status(tx, self._threads, queue, self._uptime()),
            }

    def find_fault(self) -> str | None:
        """What keeps the worker from working, if anything does; asks nobody for it."""
        if not self.is_running():
            return "the worker does not run"
        dead = [thread.worker_id for thread in self._threads if not thread.is_alive()]
        if dead:
            return f"threads have ended: {', '.join(dead)}"
        trouble = next((thread.trouble for thread in self._threads if thread.trouble), None)
        if trouble is not None:
            return trouble
        quiet = max(thread.heart.quiet_seconds for thread in self._threads)
        if self._app is not None and quiet > self._app.settings.lease_seconds:
            return f"the database has not been reached for {quiet:.0f} s"
        return None

    def has_work(self) -> bool:
        """Whether anything waits, now or for a retry, that this worker would do, or is at."""
        c = work_items.c
        owners = [thread.worker_id for thread in self._threads]
        mine = sa.and_(LEASED_ITEM, c.lease_owner.in_(owners))
        waiting = sa.and_(WAITING_ITEM, c.stage.in_(self.stages))
        if self._tenant_id is not None:
            waiting = sa.and_(waiting, c.tenant_id == self._tenant_id)
        with self._db.app.database.read() as tx:
            left = (sa.select(sa.literal(1)).where(one).limit(1) for one in (mine, waiting))
            return any(tx.execute(query).first() is not None for query in left)

    def get_recent_jobs(self, limit: int = 20) -> list[dict[str, Any]]:
        """The latest jobs, newest first."""
        return [job.as_dict() for job in self.queue.get_recent_jobs(limit)]

    def on(self, event: str, callback: Callable[..., object]) -> None:
        """Have a function called at an event; see `penstock.worker.callbacks.EVENTS`."""
        self._callbacks.add(event, callback)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _build_app(self) -> App:
        settings = self._db.app.settings
        beat = self._heartbeat_interval
        changed = {
            "text_timeout_seconds": self._extraction_timeout,
            "text_processes": self.num_workers,
            "heartbeat_seconds": beat,
            "lease_seconds": max(settings.lease_seconds, BEATS_PER_LEASE * beat),
            "job_timeout_seconds": max(settings.job_timeout_seconds, self._longest_claim()),
        }
        app = App(settings.model_copy(update=changed), self._db.app.database)
        app.queue = self.queue.rules_with(
            lease_seconds=app.settings.lease_seconds,
            job_timeout_seconds=app.settings.job_timeout_seconds,
        )
        return app

    def _longest_claim(self) -> float:
        """Until then its leases are renewed: every document may take the whole of its time."""
        return self._batch_size * self._extraction_timeout + CLAIM_GRACE_SECONDS

    def _build_thread(self, app: App) -> WorkerThread:
        heart = app.heart()

        def build_lane(teller: JobTeller) -> Lane:
            processor = app.processor(stages=self.stages, observer=teller)
            stopping = self._control.stopping
            return Lane(
                app.database,
                app.queue,
                processor,
                heart.owner,
                self._batch_size,
                stopping,
                tenant_id=self._tenant_id,
            )

        return WorkerThread(
            heart,
            build_lane,
            self._control,
            self._callbacks,
            self._poll_interval,
            daemon=not self.keeps_program_alive,
        )

    def _is_ours(self, item: WorkItem) -> bool:
        ours = self._tenant_id is None or item.tenant_id == self._tenant_id
        return ours and item.stage in self.stages

    def _uptime(self) -> float:
        if self._started_at is None:
            return 0.0
        return (self._stopped_at or time.monotonic()) - self._started_at

    def _end_parts(self) -> None:
        """Closing the children ends also the threads that wait for one of them."""
        if self._app is None or self._sweeper is None:
            return
        if self._waker is not None:
            self._waker.__exit__(None, None, None)
            self._waker = None
        self._app.stop_parts()
        deadline = time.monotonic() + EXIT_SECONDS
        for thread in (*self._threads, self._sweeper):
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread in self._threads:
            thread.still_heart()

    def _stop_at_exit(self) -> None:
        self.stop(timeout=EXIT_SECONDS)


def _in_order(stages: Sequence[Stage | str]) -> tuple[Stage, ...]:
    if isinstance(stages, str) or not stages:
        raise ValueError(f"stages is a list of at least one of {', '.join(Stage)}")
    wanted = {Stage(stage) for stage in stages}
    if wanted == {Stage.TEXT, Stage.EMBED}:
        raise ValueError("embed follows extract: name it too, or leave embed out")
    return tuple(stage for stage in Stage if stage in wanted)


def _with_floor(seconds: float) -> float:
    if seconds < MIN_TIMEOUT_SECONDS:
        log.warning(
            "extraction_timeout=%g is raised to %g s, the shortest there is",
            seconds,
            MIN_TIMEOUT_SECONDS,
        )
    return max(seconds, MIN_TIMEOUT_SECONDS)
