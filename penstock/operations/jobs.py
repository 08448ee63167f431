"""Work items as operators see them: listed, shown, retried, cancelled, deleted, replayed.

What is done to one job can be done to many at once, in one transaction.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass, NotFound, UsageError
from penstock.pipeline.stage import close_failed, record_failures
from penstock.queue.items import ACTIVE_STATUSES, ItemStatus, Verdict, WorkItem, has_status, part_of
from penstock.queue.queue import WorkQueue, has_twin
from penstock.queue.stats import count_items
from penstock.runs.lifecycle import try_finalize
from penstock.store.database import Database, Tx
from penstock.store.schema import (
    ACTIVE_ITEM,
    CANCELLED_ITEM,
    COMPLETE_ITEM,
    DEAD_ITEM,
    LEASED_ITEM,
    PARTS_OF_ITEMS,
    WAITING_ITEM,
    attempts,
    nodes,
    work_items,
)

# Of one transaction: enough for most incidents, and few enough not to block workers for long.
MOST_JOBS = 2000
RETRIED = "Job was manually retried."
REPLAYED = "Job was replayed from the dead letters."
CANCELLED = "it was cancelled by hand"
_JOB_COLUMNS = tuple(
    column for column in work_items.c if column.name not in ("payload", "lease_token")
)
_WAITING = (
    (nodes.c.extraction_status, nodes.c.extracted_at),
    (nodes.c.embedding_status, nodes.c.embedded_at),
)
_WAITING_STATUSES = ("queued", "pending_extraction")
# There are two or three: fresh work, backfills, and what operators set.
_MOST_PRIORITIES = 20
_Condition = sa.ColumnElement[bool] | sa.TextClause
_Rows = Sequence[sa.Row[Any]]


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

    def conditions(self, usually: sa.TextClause | None = None) -> list[_Condition]:
        """`usually`: only such jobs, unless a status is named."""
        c = work_items.c
        found: list[_Condition] = [c.tenant_id == self.tenant_id]
        if self.stages:
            found.append(c.stage.in_(self.stages))
        if self.status is not None:
            found.append(has_status(self.status))
        elif usually is not None:
            found.append(usually)
        exact = {name: getattr(self, name) for name in ("node_id", "run_id", "error_class")}
        found += [c[name] == value for name, value in exact.items() if value is not None]
        if self.before is not None:
            found.append(c.id < self.before)
        return found


def list_jobs(tx: Tx, wanted: JobFilter, limit: int) -> list[dict[str, Any]]:
    """Newest first."""
    found = sa.select(*_JOB_COLUMNS).where(work_items.c.id.in_(newest_ids(tx, wanted, limit)))
    return [_job_as_json(row) for row in tx.execute(found.order_by(work_items.c.id.desc()))]


def newest_ids(
    tx: Tx, wanted: JobFilter, limit: int, *, usually: sa.TextClause | None = None
) -> sa.Select[Any]:
    """Which jobs a filter finds, newest first; `usually` as for its conditions.

    No index has all jobs of a tenant: each part of them is read by its own.
    """
    if wanted.node_id is not None or wanted.run_id is not None:
        return _newest_sorted(tx, wanted.conditions(usually), limit)
    parts = [
        sa.select(ids.subquery().c.id)
        for part in _parts_of(wanted, usually)
        for ids in _newest_of_part(tx, wanted, part, limit)
    ]
    found = sa.union_all(*parts).subquery()
    return sa.select(found.c.id).order_by(found.c.id.desc()).limit(limit)


def _parts_of(wanted: JobFilter, usually: sa.TextClause | None) -> Sequence[sa.TextClause]:
    if wanted.status is not None:
        return [part_of(wanted.status)]
    if usually is None:
        return PARTS_OF_ITEMS
    return [WAITING_ITEM, LEASED_ITEM] if usually is ACTIVE_ITEM else [usually]


def _newest_of_part(
    tx: Tx, wanted: JobFilter, part: sa.TextClause, limit: int
) -> list[sa.Select[Any]]:
    """Selects that each read an index in its order, and only as far as the limit."""
    own = [*wanted.conditions(), part]
    if part is COMPLETE_ITEM:
        return [_newest(own, limit)]
    if part is DEAD_ITEM or part is CANCELLED_ITEM:
        of_any = [*replace(wanted, stages=()).conditions(), part]
        stages = [stage for stage in Stage if not wanted.stages or stage in wanted.stages]
        return [_newest([*of_any, work_items.c.stage == stage], limit) for stage in stages]
    if part is WAITING_ITEM and not tx.is_postgres:
        priorities = _waiting_priorities(tx, wanted.tenant_id)
        if 0 < len(priorities) <= _MOST_PRIORITIES:
            c = work_items.c
            return [
                _newest([*own, c.priority == one, c.interrupted == interrupted], limit)
                for one in priorities
                for interrupted in (True, False)
            ]
    return [_newest_sorted(tx, own, limit)]


def _newest(conditions: Sequence[_Condition], limit: int) -> sa.Select[Any]:
    c = work_items.c
    return sa.select(c.id).where(*conditions).order_by(c.id.desc()).limit(limit)


def _newest_sorted(tx: Tx, conditions: Sequence[_Condition], limit: int) -> sa.Select[Any]:
    """The newest of jobs that no index has in this order. Postgres knows how many there are, and
    reads all jobs or sorts these. SQLite would read all jobs: it is told to find these first."""
    if tx.is_postgres:
        return _newest(conditions, limit)
    found = sa.select(work_items.c.id).where(*conditions).cte().prefix_with("MATERIALIZED")
    return sa.select(found.c.id).order_by(found.c.id.desc()).limit(limit)


def _waiting_priorities(tx: Tx, tenant_id: str) -> Sequence[int]:
    """The priorities of a tenant's waiting jobs, each found by one look into the index; one more
    than `_MOST_PRIORITIES` at most."""
    c = work_items.c
    top = sa.select(sa.func.max(c.priority).label("value")).where(
        c.tenant_id == tenant_id, WAITING_ITEM
    )
    found = top.cte(recursive=True)
    lower = top.where(c.priority < found.c.value).correlate(found).scalar_subquery()
    found = found.union_all(sa.select(lower).where(found.c.value.is_not(None)))
    some = sa.select(found.c.value).where(found.c.value.is_not(None))
    return tx.execute(some.limit(_MOST_PRIORITIES + 1)).scalars().all()


def count_jobs(tx: Tx, tenant_id: str) -> dict[str, dict[str, int]]:
    """A tenant's jobs by stage and status; every one is there."""
    found = count_items(tx, tenant_id=tenant_id)
    return {
        str(stage): {str(status): found[stage, status] for status in ItemStatus} for stage in Stage
    }


def show_job(tx: Tx, tenant_id: str, job_id: int) -> dict[str, Any]:
    """One job with the history of its failed attempts."""
    (job,) = with_histories(tx, [_job_as_json(_read(tx, tenant_id, job_id))])
    return job


def with_histories(tx: Tx, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same jobs, each with its failed attempts, oldest first."""
    a = attempts.c
    failed = sa.select(attempts).where(tx.among(a.item_id, [job["id"] for job in jobs]))
    histories: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    shown = ("attempt", "owner", "error_class", "message")
    for row in tx.execute(failed.order_by(a.id)):
        attempt = {name: getattr(row, name) for name in shown}
        histories[row.item_id].append(attempt | {"failed_at": row.failed_at.isoformat()})
    return [job | {"history": histories[job["id"]]} for job in jobs]


def active_job(tx: Tx, tenant_id: str, node_id: str, stage: Stage) -> dict[str, Any]:
    """The active job of a node: of this stage, or of one that comes before it."""
    c = work_items.c
    query = sa.select(*_JOB_COLUMNS).where(
        ACTIVE_ITEM, c.tenant_id == tenant_id, c.node_id == node_id
    )
    return _job_as_json(tx.execute(query.order_by(c.stage != stage, c.id).limit(1)).one())


def retry_job(tx: Tx, queue: WorkQueue, tenant_id: str, job_id: int) -> None:
    """Make a job pending again with full budgets; a worker that holds it can no longer write."""
    row = _read(tx, tenant_id, job_id, for_update=True)
    if refused := retry_rows(tx, queue, [row]):
        raise UsageError(refused[job_id])


def retry_rows(tx: Tx, queue: WorkQueue, rows: Sequence[sa.Row[Any]]) -> dict[int, str]:
    """The same for many jobs, all of them locked; the reason for each that is refused."""
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
        return (
            f"job {row.id} has a successor, a later job of the same document and stage: retry that "
            "one if it failed; if it is complete, there is nothing to retry"
        )
    return f"job {row.id} is {row.status}: only a job that is processing or failed can be retried"


def cancel_job(database: Database, queue: WorkQueue, tenant_id: str, job_id: int) -> None:
    """Cancel a job that has not ended; its document is an error of its run, if it is in one."""
    with database.write() as tx:
        row = _read(tx, tenant_id, job_id, for_update=True)
        if refused := cancel_rows(tx, queue, [row]):
            raise UsageError(refused[job_id])
    finalize_runs_of(database, [row])


def cancel_rows(tx: Tx, queue: WorkQueue, rows: Sequence[sa.Row[Any]]) -> dict[int, str]:
    """The same for many jobs, all of them locked; the reason for each that is refused."""
    active = [row for row in rows if row.status in ACTIVE_STATUSES]
    if active:
        items = queue.cancel(tx, tx.among(work_items.c.id, [row.id for row in active]))
        _unmark_waiting(tx, [row.node_id for row in active])
        close_cancelled(tx, sorted(items, key=lambda item: item.id), CANCELLED)
    return {
        row.id: f"job {row.id} is {row.status} already and cannot be cancelled"
        for row in rows
        if row.status not in ACTIVE_STATUSES
    }


def close_cancelled(tx: Tx, items: Sequence[WorkItem], reason: str) -> None:
    """Record that these were cancelled; the documents of runs among them are errors."""
    fault = Fault(ErrorClass.UNKNOWN, reason)
    verdicts = [Verdict(item, fault, dead=True) for item in items]
    close_failed(tx, verdicts)
    record_failures(tx, verdicts)


def finalize_runs_of(database: Database, jobs: Iterable[sa.Row[Any] | WorkItem]) -> None:
    """Finalize the runs that waited for nothing but these cancelled jobs."""
    for run_id in sorted({job.run_id for job in jobs if job.run_id is not None}):
        try_finalize(database, run_id)


def _unmark_waiting(tx: Tx, node_ids: Sequence[str]) -> None:
    """Set the statuses back that waited for a cancelled job."""
    at_work = sa.exists().where(ACTIVE_ITEM, work_items.c.node_id == nodes.c.id)
    for column, made_at in _WAITING:
        before = sa.case((made_at.is_not(None), "ready"), else_=None)
        waits = sa.and_(column.in_(_WAITING_STATUSES), ~at_work)
        left = sa.update(nodes).where(tx.among(nodes.c.id, node_ids), waits)
        tx.execute(left.values({column.name: before}))


def delete_job(tx: Tx, tenant_id: str, job_id: int) -> None:
    """Delete a job that has ended, with its history."""
    row = _read(tx, tenant_id, job_id, for_update=True)
    if row.status in ACTIVE_STATUSES:
        raise UsageError(f"job {job_id} is {row.status}: cancel it before you delete it")
    tx.execute(sa.delete(work_items).where(work_items.c.id == job_id))


def _read(tx: Tx, tenant_id: str, job_id: int, *, for_update: bool = False) -> sa.Row[Any]:
    c = work_items.c
    query = sa.select(*_JOB_COLUMNS).where(c.tenant_id == tenant_id, c.id == job_id)
    row = tx.execute(query.with_for_update() if for_update else query).first()
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


def _job_as_json(row: sa.Row[Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row._mapping.items()
    }


@dataclass(frozen=True, slots=True)
class Bulk:
    """The outcome: how many jobs were asked for, and which were refused."""

    requested: int = 0
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why not, by job."""
    next_before: int | None = None
    """The filter may find more jobs, before this id."""

    @property
    def done(self) -> int:
        return self.requested - len(self.refused)

    def __add__(self, later: "Bulk") -> "Bulk":
        requested = self.requested + later.requested
        return Bulk(requested, {**self.refused, **later.refused}, later.next_before)

    def refuse(self, reasons: Mapping[int, str]) -> "Bulk":
        """The same with these refused too."""
        return replace(self, refused={**self.refused, **reasons})

    def as_json(self, done: str) -> dict[str, Any]:
        """`done` names what was done: `retried`, `cancelled`."""
        refused = [{"id": job_id, "reason": reason} for job_id, reason in self.refused.items()]
        return {"requested": self.requested, done: self.done, "refused": refused}


def retry_jobs(
    database: Database,
    queue: WorkQueue,
    wanted: JobFilter,
    *,
    ids: Collection[int] | None = None,
    limit: int = MOST_JOBS,
) -> Bulk:
    """Retry these jobs, or the newest so many that the filter finds; with both, those of the named
    ones that it finds. All in one transaction, and each by the rule for a single one."""
    with database.write() as tx:
        # Without a status, what failed, and not what workers hold.
        rows, chosen = _choose(tx, wanted, ids, limit, usually=DEAD_ITEM)
        return chosen.refuse(retry_rows(tx, queue, rows))


def cancel_jobs(
    database: Database,
    queue: WorkQueue,
    wanted: JobFilter,
    *,
    ids: Collection[int] | None = None,
    limit: int = MOST_JOBS,
) -> Bulk:
    """Cancel them, chosen in the same way. Runs that then have nothing left are finalized."""
    with database.write() as tx:
        rows, chosen = _choose(tx, wanted, ids, limit, usually=ACTIVE_ITEM)
        done = chosen.refuse(cancel_rows(tx, queue, rows))
    finalize_runs_of(database, [row for row in rows if row.id not in done.refused])
    return done


def _choose(
    tx: Tx, wanted: JobFilter, ids: Collection[int] | None, limit: int, *, usually: sa.TextClause
) -> tuple[_Rows, Bulk]:
    """Jobs that are locked; named ones that are not among them are refused."""
    if ids is not None:
        return _choose_named(tx, wanted, ids)
    if not wanted.narrows:
        raise UsageError(
            "say which jobs: name their ids, or a stage, status, node, run or error class; "
            "all jobs at once are never meant"
        )
    return _choose_found(tx, wanted, max(0, min(limit, MOST_JOBS)), usually)


def _choose_named(tx: Tx, wanted: JobFilter, ids: Collection[int]) -> tuple[_Rows, Bulk]:
    if len(ids) > MOST_JOBS:
        raise UsageError(f"{len(ids)} jobs are named, and at most {MOST_JOBS} may be at once")
    rows = _lock(tx, ids, wanted.conditions())
    left = set(ids) - {row.id for row in rows}
    c = work_items.c
    there = sa.select(c.id).where(c.tenant_id == wanted.tenant_id, tx.among(c.id, left))
    passed_over = set(tx.execute(there).scalars()) if left else set()
    reasons = {
        job_id: f"job {job_id} is not one that the filter finds"
        if job_id in passed_over
        else f"there is no job {job_id}"
        for job_id in ids
        if job_id in left
    }
    return rows, Bulk(len(rows) + len(reasons), reasons)


def _choose_found(
    tx: Tx, wanted: JobFilter, most: int, usually: sa.TextClause
) -> tuple[_Rows, Bulk]:
    ids = tx.execute(newest_ids(tx, wanted, most, usually=usually)).scalars().all()
    # Asked again of those that are locked: they may have changed in between.
    rows = _lock(tx, ids, wanted.conditions(usually))
    next_before = ids[-1] if ids and len(ids) == most else None
    return rows, Bulk(len(rows), next_before=next_before)


def _lock(tx: Tx, ids: Collection[int], conditions: Sequence[_Condition]) -> _Rows:
    """Those that fulfil the conditions, locked until the transaction ends; oldest first, so that
    two transactions do not deadlock."""
    c = work_items.c
    query = sa.select(*_JOB_COLUMNS).where(tx.among(c.id, ids), *conditions).order_by(c.id)
    return tx.execute(query.with_for_update()).all()


def replay(
    tx: Tx,
    queue: WorkQueue,
    tenant_id: str,
    stage: Stage,
    *,
    ids: Sequence[int] | None,
    limit: int,
) -> int:
    """Dead letters, or these, become pending again with full budgets; how many."""
    # Those with a newer one would take the place of others within the limit.
    newest = ~has_twin(ItemStatus.FAILED, later=True)
    dead = sa.select(work_items.c.id).where(*_dead(tenant_id, stage), newest)
    if ids is not None:
        dead = dead.where(work_items.c.id.in_(ids))
    chosen = tx.execute(dead.order_by(work_items.c.id).limit(limit)).scalars().all()
    return len(queue.requeue(tx, work_items.c.id.in_(chosen), note=REPLAYED)) if chosen else 0


def purge(tx: Tx, tenant_id: str, stage: Stage, *, older_than: timedelta) -> int:
    """Delete dead letters of a certain age; how many."""
    old = work_items.c.finished_at <= tx.now - older_than
    return tx.execute(sa.delete(work_items).where(*_dead(tenant_id, stage), old)).rowcount


def _dead(tenant_id: str, stage: Stage) -> list[sa.ColumnElement[bool]]:
    c = work_items.c
    return [c.tenant_id == tenant_id, c.stage == stage, has_status(ItemStatus.FAILED)]
