"""Work items as operators see them: listed, shown, retried, cancelled, deleted."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
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
from penstock.store.schema import ACTIVE_ITEM, DEAD_ITEM, attempts, nodes, work_items
from penstock.work.items import ACTIVE_STATUSES, ItemStatus, Verdict, WorkItem
from penstock.work.queue import WorkQueue

RETRIED = "Job was manually retried."
CANCELLED = "it was cancelled by hand"
_SHOWN = tuple(
    name
    for name in work_items.c.keys()  # noqa: SIM118 - a collection of columns is no mapping
    if name not in ("payload", "lease_token")
)
_WAITING = (
    (nodes.c.extraction_status, nodes.c.extracted_at),
    (nodes.c.embedding_status, nodes.c.embedded_at),
)
_WAITING_STATUSES = ("queued", "pending_extraction")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs of a tenant."""

    tenant_id: str
    stages: Collection[Stage] = ()
    """None named: all of them."""
    status: ItemStatus | None = None
    node_id: str | None = None
    run_id: int | None = None
    error_class: str | None = None
    before: int | None = None
    """Only jobs with smaller ids: where the page before ended."""

    @property
    def narrows(self) -> bool:
        """Whether it asks for less than all jobs of the tenant."""
        chosen = (self.status, self.node_id, self.run_id, self.error_class)
        return bool(self.stages) or any(one is not None for one in chosen)

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        c = work_items.c
        found = [c.tenant_id == self.tenant_id]
        if self.stages:
            found.append(c.stage.in_(self.stages))
        if self.status is not None:
            found.append(c.status == self.status)
        if self.status is ItemStatus.FAILED:
            # Said literally, so that the small index of dead letters is used.
            found.append(sa.and_(DEAD_ITEM))
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
    (job,) = with_histories(tx, [_shown(_read(tx, tenant_id, job_id))])
    return job


def with_histories(tx: Tx, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same jobs, each with its failed attempts, oldest first."""
    a = attempts.c
    failed = sa.select(attempts).where(tx.among(a.item_id, [job["id"] for job in jobs]))
    histories: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in tx.execute(failed.order_by(a.id)):
        histories[row.item_id].append(_attempt(row))
    return [job | {"history": histories[job["id"]]} for job in jobs]


def _attempt(row: sa.Row[Any]) -> dict[str, Any]:
    return {
        "attempt": row.attempt,
        "owner": row.owner,
        "error_class": row.error_class,
        "message": row.message,
        "failed_at": row.failed_at.isoformat(),
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
    _raise_refusal(retry_rows(tx, queue, [row]))


def retry_rows(tx: Tx, queue: WorkQueue, rows: Sequence[sa.Row[Any]]) -> dict[int, str]:
    """The same for many jobs, all of them locked; why not, for each that is refused."""
    held = [row.id for row in rows if row.status == ItemStatus.PROCESSING]
    dead = [row.id for row in rows if row.status == ItemStatus.FAILED]
    revived: list[WorkItem] = []
    if held:
        queue.start_over(tx, tx.among(work_items.c.id, held), note=RETRIED)
    if dead:
        revived = queue.requeue(tx, tx.among(work_items.c.id, dead), note=RETRIED)
    retried = {*held, *(item.id for item in revived)}
    return {row.id: _why_not_retried(row) for row in rows if row.id not in retried}


def _why_not_retried(row: sa.Row[Any]) -> str:
    if row.status == ItemStatus.FAILED:
        return f"job {row.id} has a newer or active successor: retry that one"
    return f"job {row.id} is {row.status}: only a job that is processing or failed can be retried"


def cancel_job(database: Database, queue: WorkQueue, tenant_id: str, job_id: int) -> None:
    """Cancel a job that has not ended; its document is an error of its run, if it is in one."""
    with database.write() as tx:
        row = _read(tx, tenant_id, job_id, for_update=True)
        _raise_refusal(cancel_rows(tx, queue, [row]))
    finalize_runs_of(database, [row])


def cancel_rows(tx: Tx, queue: WorkQueue, rows: Sequence[sa.Row[Any]]) -> dict[int, str]:
    """The same for many jobs, all of them locked; why not, for each that is refused."""
    active = [row for row in rows if row.status in ACTIVE_STATUSES]
    if active:
        _cancel_active(tx, queue, active)
    return {
        row.id: f"job {row.id} is {row.status} already and cannot be cancelled"
        for row in rows
        if row.status not in ACTIVE_STATUSES
    }


def finalize_runs_of(database: Database, rows: Iterable[sa.Row[Any]]) -> None:
    """Jobs were cancelled, perhaps the last that their runs waited for."""
    for run_id in sorted({row.run_id for row in rows if row.run_id is not None}):
        try_finalize(database, run_id)


def _cancel_active(tx: Tx, queue: WorkQueue, rows: Sequence[sa.Row[Any]]) -> None:
    items = queue.cancel(tx, tx.among(work_items.c.id, [row.id for row in rows]))
    _unmark_waiting(tx, [row.node_id for row in rows])
    fault = Fault(ErrorClass.UNKNOWN, CANCELLED)
    ordered = sorted(items, key=lambda item: item.id)
    verdicts = [Verdict(item, fault, dead=True) for item in ordered]
    close_failed(tx, verdicts)
    tell_failures(tx, verdicts)


def _unmark_waiting(tx: Tx, node_ids: Sequence[str]) -> None:
    """A stage that waited for what was cancelled waits for nothing any more."""
    at_work = sa.exists().where(ACTIVE_ITEM, work_items.c.node_id == nodes.c.id)
    for column, made_at in _WAITING:
        before = sa.case((made_at.is_not(None), "ready"), else_=None)
        waits = sa.and_(column.in_(_WAITING_STATUSES), ~at_work)
        left = sa.update(nodes).where(tx.among(nodes.c.id, node_ids), waits)
        tx.execute(left.values({column.name: before}))


def _raise_refusal(refused: dict[int, str]) -> None:
    for reason in refused.values():
        raise UsageError(reason)


def delete_job(tx: Tx, tenant_id: str, job_id: int) -> None:
    """Forget a job that has ended, with its history."""
    row = _read(tx, tenant_id, job_id, for_update=True)
    if row.status in ACTIVE_STATUSES:
        raise UsageError(f"job {job_id} is {row.status}: cancel it before you delete it")
    tx.execute(sa.delete(work_items).where(work_items.c.id == job_id))


def lock_jobs(
    tx: Tx,
    tenant_id: str,
    ids: Collection[int],
    *conditions: sa.ColumnElement[bool] | sa.TextClause,
) -> list[sa.Row[Any]]:
    """Those of the tenant that fulfil the conditions; nobody else changes them until this ends.

    Oldest first, so that two who do this do not wait for each other in a circle.
    """
    query = _select(tx, tenant_id, ids).where(*conditions).order_by(work_items.c.id)
    return list(tx.execute(query.with_for_update()))


def _read(tx: Tx, tenant_id: str, job_id: int, *, for_update: bool = False) -> sa.Row[Any]:
    query = _select(tx, tenant_id, [job_id])
    row = tx.execute(query.with_for_update() if for_update else query).first()
    if row is None:
        raise NotFound(no_such_job(job_id))
    return row


def _select(tx: Tx, tenant_id: str, ids: Collection[int]) -> sa.Select[Any]:
    own = sa.and_(work_items.c.tenant_id == tenant_id, tx.among(work_items.c.id, ids))
    return sa.select(*[work_items.c[name] for name in _SHOWN]).where(own)


def no_such_job(job_id: int) -> str:
    return f"there is no job {job_id}"


def _shown(row: sa.Row[Any]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in _SHOWN}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }
