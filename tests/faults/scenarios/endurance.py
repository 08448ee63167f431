"""A run during which something it depends on is away for a while, and what became of it."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace

import sqlalchemy as sa

from penstock.app import App
from penstock.runs.lifecycle import count_documents
from penstock.runs.run import DocumentStatus
from penstock.store.schema import workers
from penstock.testing import Reply
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.hand import Hand
from tests.faults.scenarios.scene import Scene
from tests.faults.scenarios.waiting import TooLong, wait_for

WORKERS = 3
BATCH_SIZE = 3
# So long that something is under way with the models at every moment.
ANSWER_SECONDS = 0.2
_BEAT_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Endured:
    """The figures of one outage, and of the run that it struck."""

    fault: str
    run_id: int
    audit: Audit
    outage_seconds: float
    done_before: int
    done_meanwhile: int
    """Documents that got ready while the outage lasted."""
    resumed_seconds: float
    """From the end of the outage to the next document that was ready."""
    recovery_seconds: float
    """From the end of the outage to the end of the run."""
    fallen: int
    """Workers that ended, or show no more signs of life."""
    tracebacks: int
    """Errors in the workers' logs that nobody had foreseen."""

    @property
    def problems(self) -> list[str]:
        return [*self.audit.problems, *self._own_problems()]

    def _own_problems(self) -> Iterator[str]:
        if self.done_before + self.done_meanwhile >= self.audit.documents:
            yield "the run was over before the outage was"
        if self.fallen:
            yield f"{self.fallen} workers did not live through it"
        if self.tracebacks:
            yield f"{self.tracebacks} errors that nobody had foreseen"

    def __str__(self) -> str:
        return (
            f"{self.fault}: {self.outage_seconds:.1f} s; of {self.audit.documents} documents "
            f"{self.done_before} were done before and {self.done_meanwhile} meanwhile, "
            f"{self.audit.rescued} were taken back, {self.audit.asked_again} were asked about "
            f"again; the next one was ready {self.resumed_seconds:.1f} s after it, the run over "
            f"{self.recovery_seconds:.1f} s after it; "
            f"{', '.join(self.problems) or 'nothing lost, nothing twice'}"
        )


def hire_workers(
    scene: Scene,
    count: int = WORKERS,
    *,
    answer_seconds: float = ANSWER_SECONDS,
    settings: Mapping[str, str] | None = None,
) -> list[Hand]:
    """Workers of this scene, ready to work; models take a moment to answer."""
    hands = [scene.hire(settings=settings) for _ in range(count)]
    scene.wait_until_ready(*hands)
    scene.models.always(None, Reply().after(answer_seconds))
    return hands


def endure(
    scene: Scene,
    fault: str,
    outage: AbstractContextManager[object],
    *,
    documents: int,
    seconds: float,
    done_before: int | None = None,
    admitted_before: int | None = None,
    look: Callable[[], object] = lambda: None,
) -> Endured:
    """A run that is struck when a quarter of it is done and twice as much admitted, or as much as
    is said: the outage meets workers and the one who admits. `look` is called at its end."""
    run_id = scene.open(scene.write_documents(documents))
    struck = threading.Event()
    done_before = done_before or documents // 4
    with _admitting(scene, run_id, admitted_before or 2 * done_before, struck) as bringing:
        before = _wait_for_ready(scene, run_id, done_before, bringing)
        began = time.monotonic()
        with outage:
            struck.set()
            time.sleep(seconds)
        ended = time.monotonic()
        after = count_ready(scene, run_id)
        look()
        wait_for(lambda: _has_gone_on(scene, run_id, after), 90, f"run {run_id} to go on")
        resumed = time.monotonic()
        bringing.result()
    scene.wait_for_run(run_id)
    over = time.monotonic()
    return Endured(
        fault,
        run_id,
        scene.audit(run_id, documents),
        outage_seconds=ended - began,
        done_before=before,
        done_meanwhile=after - before,
        resumed_seconds=resumed - ended,
        recovery_seconds=over - ended,
        fallen=count_fallen(scene),
        tracebacks=count_tracebacks(scene),
    )


@contextmanager
def in_small_batches(scene: Scene) -> Iterator[Scene]:
    """The same scene, where documents are admitted in batches as small as those of workers."""
    # One child process, since each counts by itself how often a failpoint was reached.
    small = {"batch_size": BATCH_SIZE, "text_processes": 1}
    settings = scene.app.settings.model_copy(update=small)
    app = App(settings, scene.app.database)
    try:
        yield replace(scene, app=app)
    finally:
        app.stop_parts()


@contextmanager
def _admitting(
    scene: Scene, run_id: int, before: int, struck: threading.Event
) -> Iterator["Future[None]"]:
    """Somebody admits so many documents, and the others after the stroke."""

    def wait_for_stroke(admitted: int) -> None:
        if admitted >= before:
            struck.wait()

    with in_small_batches(scene) as small, ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(small.bring, run_id, wait_for_stroke)
        finally:
            struck.set()


def _wait_for_ready(scene: Scene, run_id: int, wanted: int, bringing: "Future[None]") -> int:
    def enough() -> bool:
        if bringing.done():
            bringing.result()
        return count_ready(scene, run_id) >= wanted

    wait_for(enough, 60, f"{wanted} documents of run {run_id} to be ready")
    return count_ready(scene, run_id)


def _has_gone_on(scene: Scene, run_id: int, ready: int) -> bool:
    return count_ready(scene, run_id) > ready or scene.is_over(run_id)


def count_ready(scene: Scene, run_id: int) -> int:
    with scene.app.database.read() as tx:
        return count_documents(tx, run_id)[DocumentStatus.READY]


def count_fallen(scene: Scene) -> int:
    """Workers that are dead, or have not been heard of from now on."""
    with scene.app.database.read() as tx:
        now = tx.now

    def fallen() -> int:
        with scene.app.database.read() as tx:
            heard = sa.select(workers.c.pid).where(workers.c.heartbeat_at > now)
            alive = set(tx.execute(heard).scalars())
        return sum(not hand.is_alive() or hand.pid not in alive for hand in scene.hands)

    with suppress(TooLong):
        wait_for(lambda: fallen() == 0, _BEAT_WAIT_SECONDS, "signs of life")
    return fallen()


def count_tracebacks(scene: Scene) -> int:
    logs = (hand.log_path.read_text(encoding="utf-8", errors="replace") for hand in scene.hands)
    return sum(log.count("Traceback (most recent call last)") for log in logs)
