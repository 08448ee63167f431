"""Figures for operators and monitoring: depths, ages, rates, workers, jobs under way, tenants."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.queue.items import ACTIVE_STATUSES, ItemStatus, has_status
from penstock.queue.stats import age_seconds, count_items, newest_done
from penstock.runs.timeline import quantiles, took_seconds
from penstock.store.database import Tx
from penstock.store.lifetime_counters import COMPLETED_ITEMS, FAILED_ATTEMPTS, read_counter
from penstock.store.schema import (
    ACTIVE_ITEM,
    ACTIVE_RUN,
    LEASED_ITEM,
    attempts,
    extractions,
    model_calls,
    runs,
    sources,
    work_items,
    workers,
)

# Latencies and rates are those of the newest so many jobs.
SAMPLE = 1000
QUANTILES = (0.5, 0.95, 0.99)
ALIVE = timedelta(minutes=1)
# How long a lost worker is shown although it holds nothing any more.
REMEMBERED = timedelta(days=1)
_PLACES = {
    ItemStatus.PENDING: "queue",
    ItemStatus.RETRY_PENDING: "retry",
    ItemStatus.FAILED: "dlq",
}


def stored_depths(tx: Tx, stage: Stage, tenant_id: str | None) -> dict[str, int]:
    """Items that wait, that wait for a retry, and dead letters: of one tenant, or of all."""
    found = count_items(tx, tenant_id=tenant_id, stage=stage, statuses=tuple(_PLACES))
    return {place: found[stage, status] for status, place in _PLACES.items()}


@dataclass(frozen=True, slots=True)
class StageFigures:
    """One stage at this moment."""

    waiting: int
    retrying: int
    processing: int
    dead: int
    oldest_waiting_seconds: float
    done_per_second: float
    latency_seconds: dict[float, float]


def stage_figures(tx: Tx, stage: Stage, tenant_id: str | None = None) -> StageFigures:
    """Of all tenants together, or of one."""
    c = work_items.c
    # Items of a lower priority than fresh work, as those of a backfill, are meant to wait.
    due = sa.and_(c.stage == stage, has_status(ItemStatus.PENDING), c.priority >= 0)
    oldest = sa.select(sa.func.min(c.created_at)).where(due, _of(work_items, tenant_id))
    counted = (*ACTIVE_STATUSES, ItemStatus.FAILED)
    found = count_items(tx, tenant_id=tenant_id, stage=stage, statuses=counted)
    rows = newest_done(tx, stage, tenant_id, SAMPLE)
    return StageFigures(
        waiting=found[stage, ItemStatus.PENDING],
        retrying=found[stage, ItemStatus.RETRY_PENDING],
        processing=found[stage, ItemStatus.PROCESSING],
        dead=found[stage, ItemStatus.FAILED],
        oldest_waiting_seconds=age_seconds(tx, tx.execute(oldest).scalar()),
        done_per_second=_rate(tx, rows),
        latency_seconds=quantiles([took_seconds(row) for row in rows], QUANTILES),
    )


def failed_attempts(tx: Tx) -> dict[str, int]:
    """Failed attempts so far, by class."""
    query = sa.select(attempts.c.error_class, sa.func.count()).group_by(attempts.c.error_class)
    counted = Counter({row[0]: row[1] for row in tx.execute(query)})
    return dict(counted + Counter(read_counter(tx, FAILED_ATTEMPTS)))


def completed_items(tx: Tx) -> int:
    """Items that workers have completed so far."""
    total = sa.func.coalesce(sa.func.sum(workers.c.completed), 0)
    deleted = sum(read_counter(tx, COMPLETED_ITEMS).values())
    return int(tx.execute(sa.select(total)).scalar_one()) + deleted


def model_figures(tx: Tx, tenant_id: str | None = None) -> list[sa.Row[Any]]:
    """Calls, tokens and cost so far, by model and outcome; of all tenants together, or of one."""
    c = model_calls.c
    summed = ("prompt_tokens", "completion_tokens", "cost_usd")
    sums = [sa.func.sum(c[name]).label(name) for name in summed]
    query = sa.select(c.model, c.outcome, sa.func.count().label("calls"), *sums)
    query = query.where(_of(model_calls, tenant_id))
    return list(tx.execute(query.group_by(c.model, c.outcome).order_by(c.model, c.outcome)))


def fallback_rate(tx: Tx, tenant_id: str | None = None) -> float:
    """The share of the newest extractions that the fallback model had to answer."""
    newest = sa.select(extractions.c.fallback_reason).order_by(extractions.c.id.desc())
    newest = newest.where(_of(extractions, tenant_id)).limit(SAMPLE)
    reasons = tx.execute(newest).scalars().all()
    return sum(reason is not None for reason in reasons) / len(reasons) if reasons else 0.0


def live_workers(tx: Tx) -> int:
    alive = sa.and_(workers.c.status == "running", workers.c.heartbeat_at > tx.now - ALIVE)
    return int(tx.execute(sa.select(sa.func.count()).where(alive)).scalar_one())


def active_runs(tx: Tx, tenant_id: str | None = None) -> int:
    active = sa.select(sa.func.count()).select_from(runs).where(ACTIVE_RUN, _of(runs, tenant_id))
    return int(tx.execute(active).scalar_one())


def _of(table: sa.Table, tenant_id: str | None) -> sa.ColumnElement[bool]:
    return sa.true() if tenant_id is None else table.c.tenant_id == tenant_id


def _rate(tx: Tx, rows: Sequence[sa.Row[Any]]) -> float:
    """Completed in the last minute, as far as the sample reaches."""
    window = timedelta(minutes=1)
    recent = sorted(row.finished_at for row in rows if row.finished_at > tx.now - window)
    if not recent:
        return 0.0
    # A full sample may reach back less than the whole minute.
    seconds = window.total_seconds()
    if len(recent) == SAMPLE:
        seconds = max((tx.now - recent[0]).total_seconds(), 0.001)
    return len(recent) / seconds


def list_workers(
    tx: Tx, *, lease_seconds: float, tenant_id: str | None = None, include_all: bool = False
) -> list[dict[str, Any]]:
    """Workers, the latest heartbeat first.

    A running worker without a heartbeat for as long as a lease lasts is lost. Those that stopped,
    or were lost more than a day ago, are listed only while they hold jobs, or with `include_all`.
    With a tenant: those that hold its jobs, and only these jobs.
    """
    held = _held_jobs(tx, tenant_id)
    found = sa.select(workers).order_by(workers.c.heartbeat_at.desc(), workers.c.id)
    holding = tx.among(workers.c.id, held)
    if tenant_id is not None:
        found = found.where(holding)
    elif not include_all:
        remembered = tx.now - max(REMEMBERED, timedelta(seconds=lease_seconds))
        recent = sa.and_(workers.c.status == "running", workers.c.heartbeat_at >= remembered)
        found = found.where(sa.or_(recent, holding))
    return [_shown(tx, row, lease_seconds, held.get(row.id, [])) for row in tx.execute(found)]


def _held_jobs(tx: Tx, tenant_id: str | None) -> dict[str, list[int]]:
    c = work_items.c
    # In no order: for that, SQLite would read every item there ever was.
    query = sa.select(c.id, c.lease_owner).where(LEASED_ITEM, _of(work_items, tenant_id))
    held: dict[str, list[int]] = defaultdict(list)
    for row in tx.execute(query):
        held[row.lease_owner].append(row.id)
    return {owner: sorted(ids) for owner, ids in held.items()}


def _shown(tx: Tx, row: sa.Row[Any], lease_seconds: float, jobs: list[int]) -> dict[str, Any]:
    age = round(age_seconds(tx, row.heartbeat_at), 3)
    lost = row.status == "running" and age > lease_seconds
    return {name: getattr(row, name) for name in ("id", "host", "pid", "version")} | {
        "status": "lost" if lost else row.status,
        "heartbeat_age": age,
        "jobs": len(jobs),
        "job_ids": jobs,
        "completed": row.completed,
        "failed": row.failed,
        "started_at": row.started_at.isoformat(),
    }


_STUCK_COLUMNS = ("id", "tenant_id", "stage", "node_id", "run_id", "attempts", "rescues")
_TIMES = ("lease_owner", "claimed_at", "started_at", "updated_at", "lease_expires_at")


def stuck_jobs(
    tx: Tx,
    tenant_id: str | None,
    *,
    stage: Stage | None = None,
    min_inactive_seconds: float = 0.0,
    min_running_seconds: float = 0.0,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Jobs in processing, of one tenant or of all, the longest running first.

    Without a minimum these are all of them. A job runs since work on it began, or else since it was
    claimed; it is inactive since the last heartbeat of the worker that holds it, or else since the
    last change of the job.
    """
    # Apart from the workers, which have a status too: the condition is literal, for its index.
    own = sa.select(*[work_items.c[name] for name in _STUCK_COLUMNS + _TIMES])
    own = own.where(LEASED_ITEM, _of(work_items, tenant_id))
    if stage is not None:
        own = own.where(work_items.c.stage == stage)
    held = own.subquery("held")
    since = sa.func.coalesce(held.c.started_at, held.c.claimed_at)
    sign = sa.func.coalesce(workers.c.heartbeat_at, held.c.updated_at)
    beats = held.outerjoin(workers, workers.c.id == held.c.lease_owner)
    found = sa.select(
        held,
        since.label("since"),
        sign.label("sign"),
        workers.c.heartbeat_at.label("last_heartbeat"),
    ).select_from(beats)
    if min_running_seconds:
        found = found.where(since <= tx.now - timedelta(seconds=min_running_seconds))
    if min_inactive_seconds:
        found = found.where(sign <= tx.now - timedelta(seconds=min_inactive_seconds))
    return [
        _stuck_as_json(tx, row) for row in tx.execute(found.order_by(since, held.c.id).limit(limit))
    ]


def count_processing(tx: Tx, tenant_id: str | None, stage: Stage | None = None) -> int:
    """How many jobs are in processing."""
    held = (ItemStatus.PROCESSING,)
    return count_items(tx, tenant_id=tenant_id, stage=stage, statuses=held).total()


def _stuck_as_json(tx: Tx, row: sa.Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _STUCK_COLUMNS} | {
        "owner": row.lease_owner,
        "claimed_at": _iso(row.claimed_at),
        "started_at": _iso(row.started_at),
        "running_seconds": round(age_seconds(tx, row.since), 3),
        "inactive_seconds": round(age_seconds(tx, row.sign), 3),
        "last_heartbeat": _iso(row.last_heartbeat),
        "lease_expires_at": _iso(row.lease_expires_at),
        "expired": row.lease_expires_at < tx.now,
    }


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


@dataclass(frozen=True, slots=True)
class TenantBacklog:
    """One tenant's jobs in all queues at this moment."""

    tenant_id: str
    waiting: int
    retrying: int
    processing: int
    oldest_waiting_seconds: float
    """Of fresh work; items of a lower priority are meant to wait."""


def waiting_by_tenant(tx: Tx, limit: int = 20) -> list[TenantBacklog]:
    """Tenants with something to do, the most waiting first."""
    c = work_items.c
    fresh = sa.and_(c.status == ItemStatus.PENDING, c.priority >= 0)
    waiting = _count_status(ItemStatus.PENDING)
    query = sa.select(
        c.tenant_id,
        waiting.label("waiting"),
        _count_status(ItemStatus.RETRY_PENDING).label("retrying"),
        _count_status(ItemStatus.PROCESSING).label("processing"),
        sa.func.min(sa.case((fresh, c.created_at))).label("oldest"),
    )
    most = query.where(ACTIVE_ITEM).group_by(c.tenant_id).order_by(waiting.desc(), c.tenant_id)
    return [
        TenantBacklog(
            row.tenant_id, row.waiting, row.retrying, row.processing, age_seconds(tx, row.oldest)
        )
        for row in tx.execute(most.limit(limit))
    ]


def _count_status(status: ItemStatus) -> sa.ColumnElement[Any]:
    return sa.func.count(sa.case((work_items.c.status == status, 1)))


def known_tenants(tx: Tx, limit: int = 100) -> list[str]:
    """Tenants that have a source, to choose from."""
    named = sa.select(sources.c.tenant_id).distinct().order_by(sources.c.tenant_id)
    return list(tx.execute(named.limit(limit)).scalars())
