"""When a task is retried, and when a cached result is used instead."""

import hashlib
import time
from datetime import timedelta
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

from penstock import __version__
from penstock.errors import ServiceError, StoreError

# Long enough to serve a run that is taken up again; the store keeps extractions for ever.
KEPT = timedelta(days=1)
PREFIX = "penstock-"


def forget_old_results() -> int:
    """Delete our results that no task run would use any more; how many."""
    oldest = time.time() - KEPT.total_seconds()
    removed = 0
    for path in PREFECT_LOCAL_STORAGE_PATH.value().glob(f"{PREFIX}*"):
        if path.is_file() and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


RETRIES = 2
RETRY_DELAY_SECONDS = [1.0, 5.0]
_TRANSIENT = (StoreError, ServiceError, ConnectionError, TimeoutError)


def is_transient(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Only short faults of the infrastructure: a document's own retries are its work item's.

    A plain function: Prefect silently never retries when this is a partial or a bound method.
    """
    del task, task_run
    try:
        state.result(raise_on_failure=True)
    except _TRANSIENT:
        return True
    except BaseException:
        return False
    return False


def batch_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """One key for a batch: the step, this version of us, and every document's own key.

    The documents' keys hold tenant, content hash, extraction version, schema hash and models.
    """
    parts = [context.task.name, __version__, *parameters["batch"].keys]
    return PREFIX + hashlib.sha256("\n".join(parts).encode()).hexdigest()
