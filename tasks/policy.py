"""When a task is retried, and how results are reused.

**The database is the cache.** A document's fields are kept with the key of what made them (see
`penstock.pipeline.extract`): tenant, `extraction_version`, hash of the profile's schema, chain of
models, title, metadata and text. Each document is looked up by itself, so that a rescue, a smaller
batch or another worker finds what is there. A document whose bytes or text have not changed is not
parsed or embedded again. Deleting a node deletes what is kept of it.

Every step of a batch is one task run, also when all of it is reused; its state says so: `Cached`,
"30 reused, version 1.0.0". Prefect keeps no result of these tasks unless its own settings say so,
and then the documents' keys, never their texts. Tasks for flows of your own, see `tasks.steps`, are
cached by Prefect, with the same parts in their keys.
"""

from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from penstock.errors import SchemaMismatch, ServiceError, StoreError

_TRANSIENT = (StoreError, ServiceError, ConnectionError, TimeoutError)


def is_transient(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Only short faults of the infrastructure: a document's own retries are its work item's.

    A plain function: Prefect silently never retries when this is a partial or a bound method.
    """
    del task, task_run
    try:
        state.result(raise_on_failure=True)
    except SchemaMismatch:
        # A StoreError, and no retry of this version can help.
        return False
    except _TRANSIENT:
        return True
    except BaseException:
        return False
    return False


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
