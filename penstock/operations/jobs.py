"""Work items as operators see them: listed, shown, retried, cancelled, deleted."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass, NotFound, UsageError
from penstock.pipeline.closing import close_failed
from penstock.pipeline.telling import tell_failures
from penstock.runs.lifecycle import try_finalize
from penstock.store.database import Database, Tx
from penstock.store.schema import ACTIVE_ITEM, attempts, nodes, work_items
from penstock.work.items import ACTIVE_STATUSES, ItemStatus, Verdict
from penstock.work.queue import WorkQueue

RETRIED = "Job was manually retried."
CANCELLED = "it was cancelled by hand"
_SHOWN = tuple(
    name
    for name in work_items.c.keys()  # noqa: SIM118 - a collection of columns is no mapping
    if name not in ("payload", "lease_token")
)
_RETRYABLE = (ItemStatus.PROCESSING, ItemStatus.FAILED)
_WAITING = (
    (nodes.c.extraction_status, nodes.c.extracted_at),
    (nodes.c.embedding_status, nodes.c.embedded_at),
)
_WAITING_STATUSES = ("queued", "pending_extraction")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs of a tenant."""

    tenant_id: str
    stages: Collection[Stage] = (Stage.EXTRACT,)
    status: ItemStatus | None = None
    node_id: str | None = None
    run_id: int | None = None
    error_class: str | None = None
    before: int | None = None
    """Only jobs with smaller ids: where the page before ended."""

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        c = work_items.c
        found = [c.tenant_id == self.tenant_id, c.stage.in_(self.stages)]
        if self.status is not None:
            found.append(c.status == self.status)
        if self.node_id is not None:
            found.append(c.node_id == self.node_id)
        if self.run_id is not None:
            found.append(c.run_id == self.run_id)
        if self.error_class is not None:
            found.append(c.error_class == self.error_class)
        if self.before is not None:
            found.append(c.id < self.before)
        return found


def list_jobs(tx: Tx, wanted: JobFilter, limit: int) -> list[dict[str, Any]]:
    """Newest first."""
    columns = [work_items.c[name] for name in _SHOWN]
    query = sa.select(*columns).where(*wanted.conditions()).order_by(work_items.c.id.desc())
    return [_shown(row) for row in tx.execute(query.limit(limit))]


def count_jobs(tx: Tx, tenant_id: str) -> dict[str, dict[str, int]]:
    """A tenant's jobs by stage and status; every one is there."""
    c = work_items.c
    query = sa.select(c.stage, c.status, sa.func.count()).where(c.tenant_id == tenant_id)
    found = {(row[0], row[1]): row[2] for row in tx.execute(query.group_by(c.stage, c.status))}
    return {
        str(stage): {str(status): found.get((stage, status), 0) for status in ItemStatus}
        for stage in Stage
    }


def show_job(tx: Tx, tenant_id: str, job_id: int) -> dict[str, Any]:
    """One job with the history of its failed attempts."""
    a = attempts.c
    history = tx.execute(sa.select(attempts).where(a.item_id == job_id).order_by(a.id))
    return _shown(_read(tx, tenant_id, job_id)) | {
        "history": [
            {
                "attempt": row.attempt,
                "owner": row.owner,
                "error_class": row.error_class,
                "message": row.message,
                "failed_at": row.failed_at.isoformat(),
            }
            for row in history
        ]
    }


def active_job(tx: Tx, tenant_id: str, node_id: str, stage: Stage) -> dict[str, Any]:
    """What is under way for a node: this stage, or one that comes before it."""
    c = work_items.c
    own = sa.and_(ACTIVE_ITEM, c.tenant_id == tenant_id, c.node_id == node_id)
    query = sa.select(*[c[name] for name in _SHOWN]).where(own)
    return _shown(tx.execute(query.order_by(c.stage != stage, c.id).limit(1)).one())


def retry_job(tx: Tx, queue: WorkQueue, tenant_id: str, job_id: int) -> None:
    """Back to pending with full budgets; a worker that is at it can no longer write."""
    row = _read(tx, tenant_id, job_id, for_update=True)
    if row.status not in _RETRYABLE:
        raise UsageError(
            f"job {job_id} is {row.status}: only a job that is processing or failed can be retried"
        )
    own = work_items.c.id == job_id
    if row.status == ItemStatus.PROCESSING:
        queue.start_over(tx, own, note=RETRIED)
    elif not queue.requeue(tx, own, note=RETRIED):
        raise UsageError(f"job {job_id} has a newer or active successor: retry that one")


def cancel_job(database: Database, queue: WorkQueue, tenant_id: str, job_id: int) -> None:
    """Cancel a job that has not ended; its document is an error of its run, if it is in one."""
    with database.write() as tx:
        row = _read(tx, tenant_id, job_id, for_update=True)
        if row.status not in ACTIVE_STATUSES:
            raise UsageError(f"job {job_id} is {row.status} already and cannot be cancelled")
        items = queue.cancel(tx, work_items.c.id == job_id)
        _unmark_waiting(tx, row.node_id)
        fault = Fault(ErrorClass.UNKNOWN, CANCELLED)
        verdicts = [Verdict(item, fault, dead=True) for item in items]
        close_failed(tx, verdicts)
        tell_failures(tx, verdicts)
    if row.run_id is not None:
        try_finalize(database, row.run_id)


def _unmark_waiting(tx: Tx, node_id: str) -> None:
    """A stage that waited for what was cancelled waits for nothing any more."""
    at_work = sa.exists().where(ACTIVE_ITEM, work_items.c.node_id == node_id)
    for column, made_at in _WAITING:
        before = sa.case((made_at.is_not(None), "ready"), else_=None)
        waits = sa.and_(nodes.c.id == node_id, column.in_(_WAITING_STATUSES), ~at_work)
        tx.execute(sa.update(nodes).where(waits).values({column.name: before}))


def delete_job(tx: Tx, tenant_id: str, job_id: int) -> None:
    """Forget a job that has ended, with its history."""
    row = _read(tx, tenant_id, job_id, for_update=True)
    if row.status in ACTIVE_STATUSES:
        raise UsageError(f"job {job_id} is {row.status}: cancel it before you delete it")
    tx.execute(sa.delete(work_items).where(work_items.c.id == job_id))


def _read(tx: Tx, tenant_id: str, job_id: int, *, for_update: bool = False) -> sa.Row[Any]:
    own = sa.and_(work_items.c.id == job_id, work_items.c.tenant_id == tenant_id)
    query = sa.select(*[work_items.c[name] for name in _SHOWN]).where(own)
    row = tx.execute(query.with_for_update() if for_update else query).first()
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


def _shown(row: sa.Row[Any]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in _SHOWN}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }
