"""Many jobs at once: those that are named, those a filter finds, and what became of each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from penstock.errors import UsageError
from penstock.operations.jobs import (
    JobFilter,
    cancel_rows,
    finalize_runs_of,
    lock_jobs,
    no_such_job,
    retry_rows,
)
from penstock.store.database import Database, Tx
from penstock.store.schema import ACTIVE_ITEM, work_items
from penstock.work.items import ItemStatus
from penstock.work.queue import WorkQueue

# One transaction: large enough for most incidents, small enough that workers hardly notice it.
MOST_JOBS = 2000
# Retried by a filter that names no status: what failed, and not what workers are busy with.
_FAILED = work_items.c.status == ItemStatus.FAILED
_Condition = sa.ColumnElement[bool] | sa.TextClause


@dataclass(frozen=True, slots=True)
class Bulk:
    """What came of it."""

    requested: int = 0
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why not, by job."""
    next_before: int | None = None
    """A filter may find more than were taken: those before this id."""

    @property
    def done(self) -> int:
        return self.requested - len(self.refused)

    def __add__(self, later: "Bulk") -> "Bulk":
        requested = self.requested + later.requested
        return Bulk(requested, {**self.refused, **later.refused}, later.next_before)

    def as_json(self, done: str) -> dict[str, Any]:
        """`done` is what was to be done: `retried`, `cancelled`."""
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
        chosen = _choose(tx, wanted, ids, limit, usually=_FAILED)
        return chosen.answer(retry_rows(tx, queue, chosen.rows))


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
        chosen = _choose(tx, wanted, ids, limit, usually=ACTIVE_ITEM)
        done = chosen.answer(cancel_rows(tx, queue, chosen.rows))
    finalize_runs_of(database, [row for row in chosen.rows if row.id not in done.refused])
    return done


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Jobs that are locked, and why others that were named are not among them."""

    rows: Sequence[sa.Row[Any]]
    missing: Mapping[int, str] = field(default_factory=dict)
    next_before: int | None = None

    def answer(self, refused: Mapping[int, str]) -> Bulk:
        requested = len(self.rows) + len(self.missing)
        return Bulk(requested, {**self.missing, **refused}, self.next_before)


def _choose(
    tx: Tx, wanted: JobFilter, ids: Collection[int] | None, limit: int, *, usually: _Condition
) -> _Chosen:
    if ids is not None:
        return _choose_named(tx, wanted, ids)
    if not wanted.narrows:
        raise UsageError(
            "say which jobs: name their ids, or a stage, status, node, run or error class; "
            "all jobs at once are never meant"
        )
    conditions: list[_Condition] = [*wanted.conditions()]
    if wanted.status is None:
        conditions.append(usually)
    return _choose_found(tx, wanted.tenant_id, conditions, max(0, min(limit, MOST_JOBS)))


def _choose_named(tx: Tx, wanted: JobFilter, ids: Collection[int]) -> _Chosen:
    if len(ids) > MOST_JOBS:
        raise UsageError(f"{len(ids)} jobs are named, and at most {MOST_JOBS} may be at once")
    rows = lock_jobs(tx, wanted.tenant_id, ids, *wanted.conditions())
    left = set(ids) - {row.id for row in rows}
    c = work_items.c
    there = sa.select(c.id).where(c.tenant_id == wanted.tenant_id, tx.among(c.id, left))
    passed_over = set(tx.execute(there).scalars()) if left else set()
    reasons = {
        job_id: f"job {job_id} is not one that the filter finds"
        if job_id in passed_over
        else no_such_job(job_id)
        for job_id in ids
        if job_id in left
    }
    return _Chosen(rows, reasons)


def _choose_found(tx: Tx, tenant_id: str, conditions: Sequence[_Condition], most: int) -> _Chosen:
    newest = sa.select(work_items.c.id).where(*conditions).order_by(work_items.c.id.desc())
    ids = tx.execute(newest.limit(most)).scalars().all()
    # Asked again of those that are locked: somebody may have moved them in between.
    rows = lock_jobs(tx, tenant_id, ids, *conditions)
    return _Chosen(rows, next_before=ids[-1] if ids and len(ids) == most else None)
