"""One thread of a worker: claims a job, takes it through the path, tells what became of it."""

import logging
import threading
from collections.abc import Callable, Sequence

from penstock.errors import PenstockError, StagePaused
from penstock.pipeline.lane import Lane
from penstock.pipeline.observer import Result
from penstock.work.heart import Heart
from penstock.work.items import ItemStatus, Verdict, WorkItem
from penstock.worker.callbacks import Callbacks
from penstock.worker.control import Control
from penstock.worker.jobs import job_failure, job_of_item

log = logging.getLogger(__name__)
# After a fault of the configuration or the database: time for somebody to mend it.
TROUBLE_SECONDS = 15.0


class JobTeller:
    """Hears from the path what becomes of jobs, counts it, and tells the program."""

    def __init__(self, heart: Heart, callbacks: Callbacks) -> None:
        self._heart = heart
        self._callbacks = callbacks
        self.current_job_id: int | None = None

    def started(self, items: Sequence[WorkItem]) -> None:
        for item in items:
            self.current_job_id = item.id
            job = job_of_item(item, ItemStatus.PROCESSING)
            self._callbacks.emit("job_started", job, self._heart.owner)

    def completed(self, item: WorkItem, result: Result) -> None:
        self.current_job_id = None
        self._heart.completed(item, result)
        self._callbacks.emit("job_completed", job_of_item(item, ItemStatus.COMPLETE), result)

    def failed(self, verdict: Verdict) -> None:
        self.current_job_id = None
        self._heart.failed(verdict)
        if verdict.dead:
            self._callbacks.emit("job_failed", *job_failure(verdict))


class WorkerThread(threading.Thread):
    """Works until it is told to stop."""

    def __init__(
        self,
        heart: Heart,
        build_lane: Callable[[JobTeller], Lane],
        control: Control,
        callbacks: Callbacks,
        poll_seconds: float,
        *,
        daemon: bool,
    ) -> None:
        super().__init__(name=f"penstock-worker-{heart.owner}", daemon=daemon)
        self.heart = heart
        self.trouble: str | None = None
        self.teller = JobTeller(heart, callbacks)
        self.lane = build_lane(self.teller)
        self._control = control
        self._callbacks = callbacks
        self._poll_seconds = poll_seconds
        self._born = False

    @property
    def worker_id(self) -> str:
        return self.heart.owner

    @property
    def status(self) -> str:
        if not self.is_alive():
            return "stopped"
        if self.lane.held is not None:
            return "processing"
        return "paused" if self._control.paused else "idle"

    def run(self) -> None:
        self._callbacks.emit("worker_started", self.worker_id)
        try:
            while not self._control.stopping.is_set() and not self._live():
                self._control.stopping.wait(TROUBLE_SECONDS)
        finally:
            self._callbacks.emit("worker_stopped", self.worker_id)

    def still_heart(self) -> None:
        """Say for a thread that does not end by itself that it has stopped."""
        if self._born:
            self.heart.stop()

    def _live(self) -> bool:
        """From birth to stop; False when not even the birth could be recorded."""
        try:
            with self.heart:
                self._born = True
                self._work()
        except PenstockError as error:
            log.error("worker %s cannot start, trying again: %s", self.worker_id, error)
            return False
        return True

    def _work(self) -> None:
        while not self._control.stopping.is_set():
            self._control.wait_while_paused()
            calls = self._control.calls
            if self._control.stopping.is_set() or self._do_something():
                continue
            seconds = TROUBLE_SECONDS if self.trouble else self._poll_seconds
            self._control.wait(seconds, calls)

    def _do_something(self) -> bool:
        """Whether there was something to do. No error ends a worker."""
        try:
            busy = self.lane.do_one_batch()
        except StagePaused as error:
            self._note(str(error))
            return False
        except PenstockError as error:
            if not self._control.stopping.is_set():
                self._note(str(error))
            return False
        except Exception as error:
            log.exception("worker %s met an unexpected error", self.worker_id)
            self._note(f"{type(error).__name__}: {error}")
            return False
        self.trouble = None
        return busy

    def _note(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.error("worker %s waits, its jobs stay as they are: %s", self.worker_id, trouble)
        self.trouble = trouble
