"""The three computations of the processing path as cached tasks, one task run a batch."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefect import Task, task
from pydantic import TypeAdapter

from penstock.documents import ExtractionRequest, Fault
from penstock.pipeline.steps import ExtractionResult, RawReference, Steps, TextResult
from tasks.batch import Batch
from tasks.policy import RETRIES, RETRY_DELAY_SECONDS, batch_key, is_transient
from tasks.results import KEPT

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


@task(name="parse", task_run_name="parse {batch}", **_POLICY)
def parse_documents(batch: Batch[RawReference]) -> Any:
    """Raw bytes → text."""
    batch.computed = True
    return _TEXTS.dump_python(batch.steps.parse(batch.keys, batch.inputs), mode="json")


@task(name="extract", task_run_name="extract {batch}", **_POLICY)
def extract_fields(batch: Batch[ExtractionRequest]) -> Any:
    """Text → fields."""
    batch.computed = True
    return _EXTRACTIONS.dump_python(batch.steps.extract(batch.keys, batch.inputs), mode="json")


@task(name="embed", task_run_name="embed {batch}", **_POLICY)
def embed_texts(batch: Batch[str]) -> list[str]:
    """Text → vectors, as base64: a tenth of the size of numbers written out."""
    vectors = batch.steps.embed(batch.keys, batch.inputs)
    return [base64.b64encode(vector).decode() for vector in vectors]


@dataclass(frozen=True, slots=True)
class TaskSteps:
    """The same steps, seen by Prefect."""

    steps: Steps
    label: str

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]:
        return self._run(parse_documents, _TEXTS, keys, documents)

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest]
    ) -> list[ExtractionResult]:
        return self._run(extract_fields, _EXTRACTIONS, keys, requests)

    def embed(self, keys: Sequence[str], texts: Sequence[str]) -> list[bytes]:
        batch = Batch(self.steps, self.label, keys, texts)
        return [base64.b64decode(vector) for vector in embed_texts(batch)]

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
