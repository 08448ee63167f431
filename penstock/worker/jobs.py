"""Work items as the embeddable worker's users see them: jobs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import attempts, nodes, work_items
from penstock.work.items import ItemStatus, Verdict, WorkItem

ATTACHMENT = "attachment_id"


@dataclass(frozen=True, slots=True)
class Job:
    """One stage of one document's work."""

    id: int
    attachment_id: int | None
    node_id: str
    stage: Stage
    status: ItemStatus
    priority: int
    retry_count: int
    error_message: str | None = None
    error_type: str | None = None
    worker_id: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    next_retry_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JobError:
    """One failed attempt, from the job's history."""

    attempt: int
    error_type: str
    error_message: str
    worker_id: str | None
    failed_at: datetime


def job_of_item(item: WorkItem, status: ItemStatus) -> Job:
    """A job as a worker holds it."""
    return Job(
        id=item.id,
        attachment_id=item.payload.get(ATTACHMENT),
        node_id=item.node_id,
        stage=item.stage,
        status=status,
        priority=item.priority,
        retry_count=item.attempts,
    )


def job_failure(verdict: Verdict, *, spent: int = 1) -> tuple[Job, str]:
    """A job that has failed for good, what it spent last counted, and what is told of it."""
    job = job_of_item(verdict.item, ItemStatus.FAILED)
    fault = verdict.fault
    failed = replace(
        job,
        retry_count=job.retry_count + spent,
        error_message=fault.message,
        error_type=fault.kind.value,
    )
    return failed, f"{fault.kind}: {fault.message}"


def find_jobs(
    tx: Tx,
    tenant_id: str,
    *conditions: sa.ColumnElement[bool],
    limit: int | None = None,
) -> list[Job]:
    """Jobs of this tenant, the newest first."""
    query = (
        sa.select(work_items, nodes.c.seq)
        .join(nodes, nodes.c.id == work_items.c.node_id)
        .where(work_items.c.tenant_id == tenant_id, *conditions)
        .order_by(work_items.c.id.desc())
        .limit(limit)
    )
    return [_job(row._mapping) for row in tx.execute(query)]


def list_errors(tx: Tx, job_id: int) -> list[JobError]:
    """Every failed attempt of a job, oldest first."""
    c = attempts.c
    query = sa.select(c.attempt, c.error_class, c.message, c.owner, c.failed_at)
    rows = tx.execute(query.where(c.item_id == job_id).order_by(c.id))
    return [JobError(*row) for row in rows]


def _job(row: Mapping[Any, Any]) -> Job:
    waiting = row["status"] == ItemStatus.RETRY_PENDING
    return Job(
        id=row["id"],
        attachment_id=row["seq"],
        node_id=row["node_id"],
        stage=Stage(row["stage"]),
        status=ItemStatus(row["status"]),
        priority=row["priority"],
        retry_count=row["attempts"],
        error_message=row["error_message"],
        error_type=row["error_class"],
        worker_id=row["lease_owner"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        completed_at=row["finished_at"],
        next_retry_at=row["run_at"] if waiting else None,
    )
