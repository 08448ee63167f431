"""Prefect events for automations, log lines and tags of a flow run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.runtime import flow_run

from penstock.events import run_log
from penstock.runs.run import Run
from tasks.artifacts import best_effort

RUN_FAILED = "penstock.run.failed"
RUN_PAUSED = "penstock.run.paused"
QUEUE_OLD = "penstock.queue.old"


def announce_failed_run(run: Run, reason: str) -> None:
    """Emit that a run failed, or stopped before its end."""
    _announce_run(RUN_FAILED, run, reason)


def announce_paused_run(run: Run, reason: str) -> None:
    """Emit that a run waits for a setting to be mended."""
    _announce_run(RUN_PAUSED, run, reason)


def _announce_run(event: str, run: Run, reason: str) -> None:
    _emit(
        event,
        f"penstock.run.{run.id}",
        f"run {run.id} of {run.source_name}",
        tenant=run.tenant_id,
        source=run.source_name,
        status=run.status.value,
        reason=reason,
    )


def announce_old_queue(stage: str, waiting: int, oldest_seconds: float) -> None:
    """Emit that items wait longer than they should: more workers may help."""
    _emit(
        QUEUE_OLD,
        f"penstock.queue.{stage}",
        f"{stage} queue",
        waiting=waiting,
        oldest_seconds=round(oldest_seconds),
    )


def _emit(event: str, resource_id: str, name: str, **payload: Any) -> None:
    resource = {"prefect.resource.id": resource_id, "prefect.resource.name": name}
    emit_event(event, resource, payload=payload)


class _ToPrefect(logging.Handler):
    """Hands records on to the logger of one flow run, from whatever thread they come."""

    def __init__(self, logger: Any) -> None:
        super().__init__(logging.INFO)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, record.getMessage())


@contextmanager
def shown_run_log() -> Iterator[None]:
    """Show what is recorded about runs in this block as log lines of the flow run."""
    handler, level = _ToPrefect(get_run_logger()), run_log.level
    run_log.addHandler(handler)
    run_log.setLevel(logging.INFO)
    try:
        yield
    finally:
        run_log.removeHandler(handler)
        run_log.setLevel(level)


def tag_flow_run(*tags: str) -> None:
    """Add tags to the running flow run itself.

    Not with `prefect.tags`: task runs would inherit them, and Prefect asks its server for a
    concurrency slot for each tag of each task run, which often costs more than the task.
    """
    flow_run_id = flow_run.get_id()
    if flow_run_id is None:
        return
    known = flow_run.get_tags() or []
    with best_effort(f"the tags {', '.join(tags)}"), get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run_id), tags={*known, *tags})
