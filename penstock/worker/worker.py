"""The embeddable worker: threads that extract documents inside any program, until a signal."""

import atexit

# Imported before `register_signal_handlers` registers its own exit function: those run in reverse.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import FrameType
from typing import Any, Self

import sqlalchemy as sa

from penstock.app import App
from penstock.documents import Stage
from penstock.pipeline.worker import Worker, WorkerThread
from penstock.queue.configuration import ServedKeys, served_by
from penstock.queue.items import ACTIVE_STATUSES, ItemStatus
from penstock.search.vectors import prepare_index
from penstock.store.schema import LEASED_ITEM, WAITING_ITEM, work_items, workers
from penstock.worker.jobs import QueueManager, job_of_item
from penstock.worker.library import Database

log = logging.getLogger(__name__)

EVENTS = {
    "job_started": "(job, worker_id)",
    "job_completed": "(job, result)",
    "job_failed": "(job, error), once, when a job has failed for good",
    "worker_started": "(worker_id)",
    "worker_stopped": "(worker_id)",
    "worker_paused": "()",
    "worker_resumed": "()",
}
MIN_TIMEOUT_SECONDS = 10.0
# A lease outlasts two lost heartbeats.
BEATS_PER_LEASE = 3
EXIT_SECONDS = 5.0
IDLE_LOOK_SECONDS = 0.05
# For what a claim costs beside the parsing: starting children, writing, the stages that follow.
CLAIM_GRACE_SECONDS = 300.0
# Shells and `timeout` send one signal to the program and again to its group.
ECHO_SECONDS = 1.0


class ExtractionWorker:
    """Threads that claim jobs and process them, each document in a child that can be killed.

    By default attachments become text; `stages=("text", "extract", "embed")` goes on to fields and
    vectors. Use `start` and `stop`, or a `with` block.

    Args:
        db: The library whose jobs are processed.
        num_workers: Threads, each with a child process.
        max_retries: Retries of a job whose text could not be extracted.
        extraction_timeout: Seconds until a document's child is killed, at least 10.
        heartbeat_interval: Seconds between two heartbeats.
        poll_interval: Seconds between two looks at an empty queue.
        stages: What is done to a document: text, extract, embed.
        batch_size: Jobs that a thread claims together; more is quicker, one at a time is fairer.
        all_tenants: Process, and report events of, jobs of all tenants.

    Raises:
        ValueError: A value is out of range.

    Example:
        with Database("library.db") as db, ExtractionWorker(db, num_workers=2) as worker:
            worker.enqueue(db.add_attachment("paper.pdf", "/path/to/paper.pdf"))
            worker.wait_until_idle()
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
        if num_workers < 1 or max_retries < 0 or batch_size < 1:
            raise ValueError("num_workers and batch_size start at 1, max_retries at 0")
        if min(extraction_timeout, heartbeat_interval, poll_interval) <= 0:
            raise ValueError("timeouts and intervals are more than 0 seconds")
        if extraction_timeout < MIN_TIMEOUT_SECONDS:
            log.warning(
                "extraction_timeout=%g is raised to %g s, the shortest there is",
                extraction_timeout,
                MIN_TIMEOUT_SECONDS,
            )
        self.num_workers = num_workers
        self.stages = _in_order(stages)
        self.queue = QueueManager(db, max_retries, self.stages)
        self.keeps_program_alive = False
        self._db = db
        self._tenant_id = None if all_tenants else db.tenant_id
        self._extraction_timeout = max(extraction_timeout, MIN_TIMEOUT_SECONDS)
        self._heartbeat_interval = heartbeat_interval
        self._poll_interval = poll_interval
        self._batch_size = batch_size
        self._callbacks: dict[str, list[Callable[..., object]]] = {event: [] for event in EVENTS}
        self._lock = threading.Lock()
        self._paused = False
        self._app: App | None = None
        self._worker: Worker | None = None
        self._served: ServedKeys | None = None
        self._sweeper: threading.Thread | None = None
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
            if self._worker is not None:
                # Its threads may have ended by themselves; its heartbeat has not.
                self._end_parts(self._worker)
            self._app = app = self._build_app()
            if Stage.EMBED in self.stages:
                prepare_index(app.database, app.embedder.identity)
            self._worker = worker = self._build_worker(app)
            self._sweeper = threading.Thread(
                target=worker.supervise, args=(0.0,), name="penstock-sweeper", daemon=True
            )
            self._waker = app.waker(worker.wake)
            self._waker.__enter__()
            self._started_at, self._stopped_at = time.monotonic(), None
            self._stopped.clear()
            worker.start()
            self._sweeper.start()
        atexit.register(self.stop, EXIT_SECONDS)

    def stop(self, timeout: float = 60.0) -> bool:
        """Finish the jobs under way, for at most `timeout` seconds. False when some did not
        finish: they are pending again, and the threads that were at them can no longer write.

        In a callback it only asks for the stop, since a thread cannot wait for itself."""
        if threading.current_thread() in (*self._threads, self._sweeper):
            threading.Thread(target=self.stop, args=(timeout,), name="penstock-stop").start()
            return False
        in_time = True
        with self._lock:
            if self._worker is not None:
                self._worker.stop()
                in_time = self._worker.wait(timeout)
                for thread in self._threads:
                    if not thread.ended.is_set():
                        log.warning(
                            "worker %s did not finish in time, its job is released", thread.owner
                        )
                        thread.give_back()
                self._end_parts(self._worker)
            if self._stopped_at is None:
                self._stopped_at = time.monotonic()
            self._stopped.set()
        atexit.unregister(self.stop)
        return in_time

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker has stopped, by a signal or another thread, at most `timeout`
        seconds; True when it has."""
        return self._stopped.wait(timeout)

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until the queue is empty and nothing is under way, retries included, at most
        `timeout` seconds; True when it is. A worker that does not run, or is paused, is not waited
        for."""
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
        self._pause(True, "worker_paused")

    def resume(self) -> None:
        """Start jobs again after a pause."""
        self._pause(False, "worker_resumed")

    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        worker = self._worker
        return worker is not None and not worker.stopping.is_set()

    def is_paused(self) -> bool:
        """Whether it starts no further job until `resume`."""
        return self._paused

    def enqueue(self, attachment_id: int, priority: int = 0) -> int | None:
        """Ask for an attachment to be processed.

        Args:
            attachment_id: From `Database.add_attachment`.
            priority: Higher ones go first, then the oldest.

        Returns:
            The job's id, or None when a job for it is active already.

        Raises:
            ValueError: There is no such attachment.
        """
        job_id = self.queue.enqueue(attachment_id, priority)
        self._wake()
        return job_id

    def enqueue_batch(self, attachment_ids: Sequence[int], priority: int = 0) -> list[int]:
        """The same for many `attachment_ids`, all with this `priority`: the ids of the new jobs.
        When one is unknown, ValueError is raised and none is queued."""
        job_ids = self.queue.enqueue_batch(attachment_ids, priority)
        self._wake()
        return job_ids

    def retry_failed_jobs(self, job_ids: Sequence[int] | None = None) -> int:
        """Give all failed jobs, or those among `job_ids`, their retries again; how many there
        were."""
        chosen: Sequence[int | None] = [None] if job_ids is None else job_ids
        count = sum(self.queue.retry_failed(job_id) for job_id in chosen)
        self._wake()
        return count

    def get_status(self) -> dict[str, Any]:
        """What the worker is doing and how the queue stands, as plain values."""
        queue, threads = self.queue.get_queue_stats(), self._threads
        beats = self._heartbeats()
        completed = sum(thread.row.completed for thread in threads)
        uptime = 0.0
        if self._started_at is not None:
            uptime = (self._stopped_at or time.monotonic()) - self._started_at
        return {
            "running": self.is_running(),
            "paused": self.is_paused(),
            "num_workers": self.num_workers,
            "queue_depth": queue["pending"] + queue["retry_pending"],
            "processing": queue["processing"],
            "retry_pending": queue["retry_pending"],
            "failed": queue["failed"],
            "active_workers": sum(not thread.ended.is_set() for thread in threads),
            "trouble": self._find_error(),
            "workers": [
                {
                    "worker_id": thread.owner,
                    "status": thread.status,
                    # The end of a job that was cancelled or released meanwhile is not reported.
                    "current_job_id": thread.item_id if thread.held else None,
                    "jobs_completed": thread.row.completed,
                    "jobs_failed": thread.row.failed,
                    "last_heartbeat": beats.get(thread.owner),
                }
                for thread in threads
            ],
            "stats": {
                "jobs_completed": completed,
                "jobs_failed": sum(thread.row.failed for thread in threads),
                "uptime_seconds": uptime,
                "throughput_per_second": completed / uptime if uptime else 0.0,
                "avg_extraction_time_ms": queue["avg_extraction_time_ms"],
            },
        }

    def find_fault(self) -> str | None:
        """What keeps the worker from working, if anything does; without asking the database."""
        worker = self._worker
        if worker is None or not self.is_running():
            return "the worker does not run"
        ended = [thread.owner for thread in self._threads if thread.ended.is_set()]
        if ended:
            return f"threads have ended: {', '.join(ended)}"
        error, quiet = self._find_error(), worker.heartbeat.quiet_seconds
        if error is None and quiet > worker.queue.lease_seconds:
            return f"the database has not been reached for {quiet:.0f} s"
        return error

    def has_work(self) -> bool:
        """Whether anything waits, now or for a retry, that this worker would do, or is at."""
        c = work_items.c
        mine = sa.and_(LEASED_ITEM, c.lease_owner.in_([thread.owner for thread in self._threads]))
        waiting = sa.and_(WAITING_ITEM, c.stage.in_(self.stages))
        if self._tenant_id is not None:
            waiting = sa.and_(waiting, c.tenant_id == self._tenant_id)
        if self._served is not None:
            waiting = sa.and_(waiting, served_by(self._served()))
        with self._db.app.database.read() as tx:
            left = (sa.select(sa.literal(1)).where(one).limit(1) for one in (mine, waiting))
            return any(tx.execute(query).first() is not None for query in left)

    def get_recent_jobs(self, limit: int = 20) -> list[dict[str, Any]]:
        """The latest jobs as plain values, the newest first, at most `limit`."""
        return [job.as_dict() for job in self.queue.get_recent_jobs(limit)]

    def on(self, event: str, callback: Callable[..., object]) -> None:
        """Have a function called at an event.

        Args:
            event: `job_started`, `job_completed`, `job_failed`, `worker_started`,
                `worker_stopped`, `worker_paused` or `worker_resumed`.
            callback: Called in a thread of the worker, with what `penstock.worker.worker.EVENTS`
                lists for the event; its errors are logged.

        Raises:
            ValueError: There is no such event.
        """
        if event not in EVENTS:
            raise ValueError(f"there is no event {event!r}: use one of {', '.join(EVENTS)}")
        self._callbacks[event].append(callback)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _threads(self) -> list[WorkerThread]:
        return [] if self._worker is None else self._worker.running

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    def _pause(self, wanted: bool, event: str) -> None:
        self._paused = wanted
        if self._worker is not None:
            self._worker.pause(wanted)
        self._call_back(event)

    def _find_error(self) -> str | None:
        return next((thread.error for thread in self._threads if thread.error), None)

    def _heartbeats(self) -> dict[str, Any]:
        ours = workers.c.id.in_([thread.owner for thread in self._threads])
        query = sa.select(workers.c.id, workers.c.heartbeat_at).where(ours)
        with self._db.app.database.read() as tx:
            return {row.id: row.heartbeat_at for row in tx.execute(query)}

    def _build_app(self) -> App:
        settings = self._db.app.settings
        beat = self._heartbeat_interval
        # Until then its leases are renewed: every document may take the whole of its time.
        longest_claim = self._batch_size * self._extraction_timeout + CLAIM_GRACE_SECONDS
        changed = {
            "text_timeout_seconds": self._extraction_timeout,
            "text_processes": self.num_workers,
            "heartbeat_seconds": beat,
            "lease_seconds": max(settings.lease_seconds, BEATS_PER_LEASE * beat),
            "job_timeout_seconds": max(settings.job_timeout_seconds, longest_claim),
        }
        app = App(settings.model_copy(update=changed), self._db.app.database)
        app.queue = replace(
            self.queue.rules,
            lease_seconds=app.settings.lease_seconds,
            job_timeout_seconds=app.settings.job_timeout_seconds,
        )
        return app

    def _build_worker(self, app: App) -> Worker:
        if self.stages != (Stage.TEXT,):
            # A text is the same whatever comes after it.
            self._served = ServedKeys(app.database, app.configuration)
        return Worker(
            app.database,
            app.queue,
            app.processor(stages=self.stages),
            app.heartbeat(self.num_workers),
            self._batch_size,
            self.num_workers,
            self._poll_interval,
            tenant_id=self._tenant_id,
            least_suspects=app.least_suspects(self.num_workers),
            served=self._served,
            recover=app.recovery.run,
            sweep_seconds=app.settings.sweep_seconds,
            emit=self._report,
            survives_errors=True,
            daemon=not self.keeps_program_alive,
            paused=self._paused,
        )

    def _report(self, event: str, *values: Any) -> None:
        """Call back about an event of the threads, with jobs for items."""
        if event == "job_started":
            item, owner = values
            values = (job_of_item(item, ItemStatus.PROCESSING), owner)
        elif event == "job_completed":
            item, result = values
            values = (job_of_item(item, ItemStatus.COMPLETE), result)
        elif event == "job_failed":
            verdict, spent = values
            item, fault = verdict.item, verdict.fault
            if item.stage not in self.stages or self._tenant_id not in (None, item.tenant_id):
                return
            failed = replace(
                job_of_item(item, ItemStatus.FAILED),
                retry_count=item.attempts + spent,
                error_message=fault.message,
                error_type=fault.kind.value,
            )
            values = (failed, f"{fault.kind}: {fault.message}")
        self._call_back(event, *values)

    def _call_back(self, event: str, *values: Any) -> None:
        for function in tuple(self._callbacks[event]):
            try:
                function(*values)
            except Exception:
                log.exception("a callback for %s failed; the worker goes on", event)

    def _end_parts(self, worker: Worker) -> None:
        """Closing the children ends also the threads that wait for one of them."""
        if self._waker is not None:
            self._waker.__exit__(None, None, None)
            self._waker = None
        if self._app is not None:
            self._app.stop_parts()
        deadline = time.monotonic() + EXIT_SECONDS
        worker.wait(EXIT_SECONDS)
        if self._sweeper is not None:
            self._sweeper.join(max(0.0, deadline - time.monotonic()))
        worker.heartbeat.stop()


def _in_order(stages: Sequence[Stage | str]) -> tuple[Stage, ...]:
    if isinstance(stages, str) or not stages:
        raise ValueError(f"stages is a list of at least one of {', '.join(Stage)}")
    wanted = {Stage(stage) for stage in stages}
    if wanted == {Stage.TEXT, Stage.EMBED}:
        raise ValueError("embed follows extract: name it too, or leave embed out")
    return tuple(stage for stage in Stage if stage in wanted)


def register_signal_handlers(worker: ExtractionWorker, timeout: float = 60.0) -> None:
    """Stop the worker on SIGTERM or SIGINT; call it from the main thread, before `start`.

    The first signal lets the jobs under way finish; a second one does what it did before. As long
    as the worker runs, it keeps the program alive.

    Args:
        worker: The worker to stop.
        timeout: Seconds until jobs that have not finished are given back.

    Raises:
        ValueError: It was not called from the main thread.
    """
    before: dict[int, Any] = {}
    asked_at: float | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        nonlocal asked_at
        if worker.is_running():
            asked_at = time.monotonic()
            log.warning("%s: finishing the jobs under way", signal.Signals(number).name)
            # Not here: the code that the signal interrupted may hold a lock that stopping needs.
            threading.Thread(target=worker.stop, args=(timeout,), name="penstock-stop").start()
        elif asked_at is None or time.monotonic() - asked_at > ECHO_SECONDS:
            for known, handler in before.items():
                signal.signal(known, handler)
            os.kill(os.getpid(), number)

    worker.keeps_program_alive = True
    # Pools of threads take no more work once the main thread has ended, and jobs need them. There
    # is no public way to have it wait: `atexit` is called later.
    threading._register_atexit(worker.wait)  # type: ignore[attr-defined]
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
