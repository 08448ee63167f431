"""When a task is retried, and how results are reused.

**In the pipeline the database is the cache.** A document's fields are kept with the key of what
made them (see `penstock.pipeline.keys`): tenant, `extraction_version`, hash of the profile's
schema, chain of models, title, metadata and text. Each document is looked up by itself, so that a
rescue, a smaller batch or another worker finds what is there. A document whose bytes or text have
not changed is not parsed or embedded again. Deleting a node deletes what is kept of it.

Every step of a batch is one task run, also when all of it is reused; its state says so: `Cached`,
"30 reused, version 1.0.0". Prefect keeps no result of these tasks, whatever its settings: they have
no cache key that it could be kept under. Of a flow run it keeps the report, counts and no texts, if
its own settings say so (`PREFECT_RESULTS_PERSIST_BY_DEFAULT`).

**Tasks in flows of your own** (`tasks.steps`) have no such store: Prefect caches their results, as
JSON, where its own settings say (`PREFECT_RESULTS_…`). One task run is one document and has one
key, of the same parts: `text_cache_key`, `fields_cache_key` and `vectors_cache_key` below.
"""

import hashlib
from pathlib import Path
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext

from penstock.documents import RawDocument, RawReference
from penstock.errors import DocumentFault, SchemaMismatch, ServiceError, StoreError
from penstock.pipeline.keys import fields_key, text_key, vector_key
from tasks.parts import (
    as_raw,
    as_text,
    choose_profile,
    embedded_texts,
    is_address,
    shared_app,
)

_TRANSIENT = (StoreError, ServiceError, ConnectionError, TimeoutError)


def is_transient(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Only short faults of the infrastructure: a document's own retries are its work item's.

    A plain function: Prefect silently never retries when this is a partial or a bound method.
    """
    del task, task_run
    error = _error_of(state)
    # The schema is a StoreError, and no retry of this version can help.
    return isinstance(error, _TRANSIENT) and not isinstance(error, SchemaMismatch)


def may_pass(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """These, and what may pass with a document, such as a timeout or a rate limit: no work item
    tries it again."""
    error = _error_of(state)
    passing = isinstance(error, DocumentFault) and not error.kind.permanent
    return passing or is_transient(task, task_run, state)


def _error_of(state: State[Any]) -> BaseException | None:
    try:
        state.result(raise_on_failure=True)
    except BaseException as error:
        return error
    return None


def text_cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    """Tenant, content, name and type as hints, the user's own extractors. None, for no caching, of
    an address, whose content is known once it is fetched (that has a task run of its own)."""
    del context
    if is_address(parameters["document"]):
        return None
    raw = as_raw(parameters["document"])
    content = _content_hash(raw)
    if content is None:
        return None
    app = shared_app(parameters["blocks"])
    hints = (raw.name, raw.media_type, raw.source)
    return text_key(parameters["tenant"], content, *hints, app.pool.fingerprint)


def fields_cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Tenant, `extraction_version`, hash of the profile's schema, chain of models, title, metadata
    and text; and how many items of a list are wanted, since results are cached with these."""
    del context
    app, text = shared_app(parameters["blocks"]), as_text(parameters["text"])
    version, models = app.settings.extraction.version, app.extractor.identity
    profile = choose_profile(app, text, parameters["profile"])
    made_by = (version, profile, f"{models} {app.caps}")
    return fields_key(parameters["tenant"], *made_by, text.title, text.metadata, text.text)


def vectors_cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Tenant, texts, and the embedder's identity."""
    del context
    app = shared_app(parameters["blocks"])
    texts = embedded_texts(app, parameters["texts"])
    keys = [vector_key(app.embedder.identity, text) for text in texts]
    return hashlib.sha256("\n".join([parameters["tenant"], *keys]).encode()).hexdigest()


def _content_hash(raw: RawReference | RawDocument) -> str | None:
    """None for a file that cannot be read; the task says why."""
    if isinstance(raw, RawDocument):
        return hashlib.sha256(raw.content).hexdigest()
    if raw.path is None:
        # Keys of the raw store end in the hash of the bytes.
        return Path(str(raw.raw_key)).stem
    try:
        with raw.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


RETRIED: dict[str, Any] = {
    "retries": 2,
    "retry_delay_seconds": [1.0, 5.0],
    "retry_condition_fn": is_transient,
}
# A flow run remembers the states of its tasks to its end, and their results with them.
PIPELINE: dict[str, Any] = {
    "cache_policy": NO_CACHE,
    "cache_result_in_memory": False,
    **RETRIED,
}
# Tasks of `tasks.steps`: no work item tries their document again.
DOCUMENT: dict[str, Any] = {
    "retries": 3,
    "retry_delay_seconds": [2.0, 15.0, 60.0],
    "retry_jitter_factor": 0.3,
    "retry_condition_fn": may_pass,
}
CACHED: dict[str, Any] = {"persist_result": True, "result_serializer": "json", **DOCUMENT}
