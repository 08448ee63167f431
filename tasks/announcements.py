"""What happens here as events of Prefect, for automations of whoever runs this."""

from typing import Any

from prefect.events import emit_event

from penstock.runs.vocabulary import Run

RUN_FAILED = "penstock.run.failed"
QUEUE_OLD = "penstock.queue.old"


def announce_failed_run(run: Run, reason: str) -> None:
    """A run did not end well, or was left for somebody to take up."""
    _emit(
        RUN_FAILED,
        f"penstock.run.{run.id}",
        f"run {run.id} of {run.source_name}",
        tenant=run.tenant_id,
        source=run.source_name,
        status=run.status.value,
        reason=reason,
    )


def announce_old_queue(stage: str, waiting: int, oldest_seconds: float) -> None:
    """Something waits longer than it should: more workers may help."""
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
