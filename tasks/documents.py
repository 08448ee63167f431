"""The tasks of flows: extract text, extract fields, embed, admit, enqueue; one task run a batch."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from pydantic import TypeAdapter

from penstock.backfill.backfill import Dispatched, Dispatcher
from penstock.documents import ExtractionRequest, Fault
from penstock.pipeline.steps import ExtractionResult, RawReference, Steps, TextResult
from penstock.runs.admission import Admission, AdmittedDocument
from tasks.policy import KEPT, RETRIES, RETRY_DELAY_SECONDS, batch_key, is_transient

Input = TypeVar("Input")


class Batch(Generic[Input]):
    """Keys and inputs of one batch, with the steps that compute them.

    A plain class on purpose: Prefect walks into dataclasses and lists in search of futures, which
    takes long for a batch of texts.
    """

    def __init__(
        self, steps: Steps, label: str, keys: Sequence[str], inputs: Sequence[Input]
    ) -> None:
        self.steps = steps
        self.label = label
        self.keys = keys
        self.inputs = inputs
        self.computed = False
        """Set by the task that computes it; unset, the result came from the cache."""

    def __str__(self) -> str:
        return f"{self.label}, {len(self.keys)} documents"


_TEXTS: TypeAdapter[list[TextResult]] = TypeAdapter(list[TextResult])
_EXTRACTIONS: TypeAdapter[list[ExtractionResult]] = TypeAdapter(list[ExtractionResult])

_POLICY: dict[str, Any] = {
    "cache_key_fn": batch_key,
    "cache_expiration": KEPT,
    "persist_result": True,
    "result_serializer": "json",
    # A flow run remembers the states of its tasks to its end, and their results with them.
    "cache_result_in_memory": False,
    "retries": RETRIES,
    "retry_delay_seconds": RETRY_DELAY_SECONDS,
    "retry_condition_fn": is_transient,
}


@task(name="extract text", task_run_name="extract text, {batch}", **_POLICY)
def extract_text(batch: Batch[RawReference]) -> Any:
    """Raw bytes → text."""
    batch.computed = True
    return _TEXTS.dump_python(batch.steps.parse(batch.keys, batch.inputs), mode="json")


@task(name="extract fields", task_run_name="extract fields, {batch}", **_POLICY)
def extract_fields(batch: Batch[ExtractionRequest]) -> Any:
    """Text → fields."""
    batch.computed = True
    return _EXTRACTIONS.dump_python(batch.steps.extract(batch.keys, batch.inputs), mode="json")


@task(name="embed", task_run_name="embed, {batch}", **_POLICY)
def embed_texts(batch: Batch[str]) -> list[str]:
    """Text → vectors, as base64: a tenth of the size of numbers written out."""
    vectors = batch.steps.embed(batch.keys, batch.inputs)
    return [base64.b64encode(vector).decode() for vector in vectors]


@dataclass(frozen=True, slots=True)
class TaskSteps:
    """The steps of the processing path, each batch of each step a task run."""

    steps: Steps
    label: str
    text_task: Task[..., Any] = extract_text
    fields_task: Task[..., Any] = extract_fields
    embed_task: Task[..., Any] = embed_texts

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]:
        return self._run(self.text_task, _TEXTS, keys, documents)

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest]
    ) -> list[ExtractionResult]:
        return self._run(self.fields_task, _EXTRACTIONS, keys, requests)

    def embed(self, keys: Sequence[str], texts: Sequence[str]) -> list[bytes]:
        batch = Batch(self.steps, self.label, keys, texts)
        vectors: Any = self.embed_task(batch)
        return [base64.b64decode(vector) for vector in vectors]

    def _run(
        self,
        task: Task[..., Any],
        results: TypeAdapter[list[Any]],
        keys: Sequence[str],
        inputs: Sequence[Any],
    ) -> list[Any]:
        batch = Batch(self.steps, self.label, keys, inputs)
        found = results.validate_python(task(batch))
        # A success may be taken from the cache; a failure is a reason to try again.
        if not batch.computed and any(isinstance(result, Fault) for result in found):
            return results.validate_python(task.with_options(refresh_cache=True)(batch))
        return found


_WRITES: dict[str, Any] = {
    "cache_policy": NO_CACHE,
    "persist_result": False,
    "retries": RETRIES,
    "retry_delay_seconds": RETRY_DELAY_SECONDS,
    "retry_condition_fn": is_transient,
}


class _Admitted:
    """Fetched documents of one run (a plain class: see `Batch`)."""

    def __init__(self, admission: Admission, documents: Sequence[AdmittedDocument]) -> None:
        self.admission = admission
        self.documents = documents

    def __str__(self) -> str:
        return f"run {self.admission.lease.run.id}, {len(self.documents)} documents"


@task(name="admit", task_run_name="admit {batch}", **_WRITES)
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


@task(name="enqueue", task_run_name="enqueue {batch}", **_WRITES)
def _enqueue(batch: _Enqueued) -> Dispatched:
    return batch.dispatcher.dispatch()


def enqueue_nodes(dispatcher: Dispatcher) -> Dispatched:
    """Enqueue as many nodes of a backfill as there is room for, as one task run."""
    return _enqueue(_Enqueued(dispatcher))
