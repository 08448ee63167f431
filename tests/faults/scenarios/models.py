"""The models are away, keep silent, or fail in turns in the middle of a run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.llm.chain import UNANSWERED
from penstock.store.schema import ACTIVE_ITEM, attempts, work_items
from penstock.testing import Answer, Behaviour, ChatRequest, Reply, hang, rate_limited, server_error
from tests.faults.scenarios.endurance import (
    ANSWER_SECONDS,
    BATCH_SIZE,
    Endured,
    endure,
    hire_workers,
)
from tests.faults.scenarios.scene import Scene, open_scene
from tests.faults.scenarios.waiting import wait_for

PRIMARY = "openai/gpt-oss-20b"
ALL = (PRIMARY, "openai/gpt-oss-120b")
SETTINGS = {"EXTRACTION_TIMEOUT_SECONDS": "2"}
_RETRY_AFTER_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Asked:
    """An outage of the models, and what it cost the documents."""

    endured: Endured
    paid: int
    """Attempts that documents have paid."""
    guilty: int
    """Times that a question was asked and no model gave a usable answer."""
    waits: int
    """Times that one waited, for a rate limit or an endpoint that was down."""
    statuses: Counter[int | None]
    """Requests by what was answered; None: nothing."""

    @property
    def problems(self) -> list[str]:
        own = ["attempts were paid for waiting"] if self.paid > self.guilty else []
        return [*self.endured.problems, *own]

    def __str__(self) -> str:
        told = sorted((str(status or "silence"), n) for status, n in self.statuses.items())
        return (
            f"{self.endured}; {self.paid} attempts paid, {self.waits} waits free of charge; "
            f"answers: {', '.join(f'{n} times {status}' for status, n in told)}"
        )


def stop_models(
    scene: Scene, *, documents: int, seconds: float, done_before: int | None = None
) -> Asked:
    """The endpoint breaks every connection, and refuses new ones for so long."""

    @contextmanager
    def stopped() -> Iterator[None]:
        with _silent(scene, ALL):
            scene.models.close()
            yield
        scene.models.start()

    return _ask(scene, "models down", stopped(), documents, seconds, done_before)


def hang_models(
    scene: Scene,
    models: Sequence[str],
    *,
    documents: int,
    seconds: float,
    done_before: int | None = None,
) -> Asked:
    """These take questions for so long, and never answer."""
    name = f"{' and '.join(models)} silent"
    return _ask(scene, name, _silent(scene, models), documents, seconds, done_before)


@contextmanager
def _silent(scene: Scene, models: Sequence[str]) -> Iterator[None]:
    """It begins when every worker waits for answers that do not come."""
    before = _count_silences(scene)
    with _answering(scene, models, hang()):
        wait_for(lambda: _count_silences(scene) - before >= _most(scene), 60, "workers to ask")
        yield


@contextmanager
def _answering(scene: Scene, models: Sequence[str], answer: Answer) -> Iterator[None]:
    for model in models:
        scene.models.always(model, answer)
    try:
        yield
    finally:
        for model in models:
            scene.models.always(model, Reply().after(ANSWER_SECONDS))


def _count_silences(scene: Scene) -> int:
    return sum(request.status is None for request in scene.models.requests)


def _most(scene: Scene) -> int:
    """Documents that workers can be at."""
    with scene.app.database.read() as tx:
        query = sa.select(sa.func.count()).select_from(work_items).where(ACTIVE_ITEM)
        return min(int(tx.execute(query).scalar_one()), len(scene.hands) * BATCH_SIZE)


def alternate_failures(scene: Scene, *, documents: int, seconds: float) -> Asked:
    """For so long, whatever document is asked about meets a 500 and a 429 before its answer."""
    outage = _answering(scene, ALL, _Alternation())
    return _ask(scene, "500 and 429 in turns", outage, documents, seconds, None)


class _Alternation:
    """Half of the documents meet one failure first, half the other; the third answer is good."""

    def __init__(self) -> None:
        self._left: dict[str, list[Behaviour]] = {}

    def __call__(self, request: ChatRequest) -> Behaviour:
        failures = [server_error(), rate_limited(_RETRY_AFTER_SECONDS)]
        left = self._left.setdefault(request.text, failures[:: 1 if len(self._left) % 2 else -1])
        return left.pop() if left else Reply().after(ANSWER_SECONDS)


def _ask(
    scene: Scene,
    fault: str,
    outage: AbstractContextManager[None],
    documents: int,
    seconds: float,
    done_before: int | None,
) -> Asked:
    known = len(scene.models.requests)
    found = endure(
        scene, fault, outage, documents=documents, seconds=seconds, done_before=done_before
    )
    statuses = Counter(request.status for request in scene.models.requests[known:])
    return Asked(found, *_read_costs(scene, found.run_id), statuses)


def _read_costs(scene: Scene, run_id: int) -> tuple[int, int, int]:
    """Attempts paid, times that no answer was usable, times that one waited."""
    c = work_items.c
    with scene.app.database.read() as tx:
        paid = sa.select(sa.func.sum(c.attempts)).where(c.run_id == run_id)
        met = sa.select(attempts.c.message).join(work_items, c.id == attempts.c.item_id)
        messages = tx.execute(met.where(c.run_id == run_id)).scalars().all()
        guilty = sum(message.startswith(UNANSWERED) for message in messages)
        return int(tx.execute(paid).scalar_one()), guilty, len(messages) - guilty


def endure_all() -> Iterator[Asked]:
    """Every outage of the models at its full length."""
    with open_scene() as scene:
        hire_workers(scene, settings=SETTINGS)
        yield stop_models(scene, documents=200, seconds=60)
        yield stop_models(scene, documents=24, seconds=60, done_before=9)
        yield hang_models(scene, [PRIMARY], documents=400, seconds=60)
        yield hang_models(scene, ALL, documents=200, seconds=60)
        yield alternate_failures(scene, documents=300, seconds=60)
