"""The tasks of the pipeline's flows: extract text, extract fields, embed, admit, enqueue; one task
run a batch, whose documents are leased work items. Tasks for other flows are in `tasks.steps`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prefect import State, Task, task
from prefect.states import Completed, Failed

from penstock.backfill.backfill import Dispatched, Dispatcher
from penstock.documents import ExtractionRequest, Fault, RawReference
from penstock.pipeline.steps import ExtractionResult, Steps, TextResult
from penstock.runs.admission import Admission, AdmittedDocument
from tasks.policy import PIPELINE

Result = TypeVar("Result")


def _in_words(documents: int) -> str:
    return "1 document" if documents == 1 else f"{documents} documents"


class Batch(Generic[Result]):
    """One step of one batch, and what came of it.

    A plain class on purpose: Prefect walks into dataclasses and lists in search of futures, which
    takes long for a batch of texts. For the same reason, and so that texts stay out of Prefect's
    results, a task leaves its results here and returns a state that tells about them.
    """

    def __init__(
        self,
        label: str,
        keys: Sequence[str],
        step: Callable[[], Sequence[Result]],
        *,
        reused: int = 0,
        version: str = "",
    ) -> None:
        self.label = label
        self.keys = keys
        self.step = step
        self.reused = reused
        self.version = version
        self.results: Sequence[Result] | None = None

    def __str__(self) -> str:
        return f"{self.label}, {_in_words(len(self.keys) + self.reused)}"

    def compute(self) -> State[list[str]]:
        self.results = self.step()
        failed = sum(isinstance(result, Fault) for result in self.results)
        counts = {
            "done": len(self.results) - failed,
            "failed": failed,
            "reused": self.reused,
        }
        message = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        if self.reused and self.version:
            message += f", version {self.version}"
        keys = [*self.keys]
        if failed and failed == len(self.results) + self.reused:
            return Failed(message=message, data=keys)
        all_reused = self.reused and not self.results
        return Completed(name="Cached" if all_reused else None, message=message, data=keys)


@task(name="extract text", task_run_name="extract text, {batch}", **PIPELINE)
def _text(batch: Batch[TextResult]) -> State[list[str]]:
    """Raw bytes → text."""
    return batch.compute()


@task(name="extract fields", task_run_name="extract fields, {batch}", **PIPELINE)
def _fields(batch: Batch[ExtractionResult]) -> State[list[str]]:
    """Text → fields."""
    return batch.compute()


@task(name="embed", task_run_name="embed, {batch}", **PIPELINE)
def _vectors(batch: Batch[bytes]) -> State[list[str]]:
    """Text → vectors."""
    return batch.compute()


@dataclass(frozen=True, slots=True)
class TaskSteps:
    """The steps of the processing path, each batch of each step a task run."""

    steps: Steps
    label: str
    version: str
    """Of the extraction, as states show it."""

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]:
        batch = Batch(self.label, keys, lambda: self.steps.parse(keys, documents))
        return _run(_text, batch)

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest], reused: int = 0
    ) -> list[ExtractionResult]:
        batch = Batch(
            self.label,
            keys,
            lambda: self.steps.extract(keys, requests) if requests else [],
            reused=reused,
            version=self.version,
        )
        return _run(_fields, batch)

    def embed(self, keys: Sequence[str], texts: Sequence[str], reused: int = 0) -> list[bytes]:
        batch = Batch(
            self.label,
            keys,
            lambda: self.steps.embed(keys, texts) if texts else [],
            reused=reused,
        )
        return _run(_vectors, batch)


def _run(task: Task[..., Any], batch: Batch[Result]) -> list[Result]:
    state: State[Any] = task(batch, return_state=True)  # type: ignore[assignment]  # sync here
    if batch.results is None:
        # The step itself failed, not its documents.
        state.result(raise_on_failure=True)
        raise AssertionError(f"a task without results ended as {state.name}")
    return [*batch.results]


class _Admitted:
    """Fetched documents of one run (a plain class: see `Batch`)."""

    def __init__(self, admission: Admission, documents: Sequence[AdmittedDocument]) -> None:
        self.admission = admission
        self.documents = documents

    def __str__(self) -> str:
        return f"run {self.admission.lease.run.id}, {_in_words(len(self.documents))}"


@task(name="admit", task_run_name="admit {batch}", **PIPELINE)
def _admit(batch: _Admitted) -> None:
    batch.admission.record(batch.documents)


def admit_documents(admission: Admission, documents: Sequence[AdmittedDocument]) -> None:
    """Record fetched documents, and the work each of them needs, as one task run."""
    _admit(_Admitted(admission, documents))


class _Enqueued:
    """The next nodes of one backfill (a plain class: see `Batch`)."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def __str__(self) -> str:
        return f"backfill {self.dispatcher.backfill_id}"


@task(name="enqueue", task_run_name="enqueue {batch}", **PIPELINE)
def _enqueue(batch: _Enqueued) -> Dispatched:
    return batch.dispatcher.dispatch()


def enqueue_nodes(dispatcher: Dispatcher) -> Dispatched:
    """Enqueue as many nodes of a backfill as there is room for, as one task run."""
    return _enqueue(_Enqueued(dispatcher))
