"""Figures for monitoring: depth, age, rate, latency, errors, models, dead letters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.runs.timeline import quantiles, took_seconds
from penstock.store.database import Tx
from penstock.store.schema import (
    ACTIVE_RUN,
    DEAD_ITEM,
    LEASED_ITEM,
    WAITING_ITEM,
    attempts,
    extractions,
    model_calls,
    runs,
    work_items,
    workers,
)
from penstock.store.tallies import COMPLETED_ITEMS, FAILED_ATTEMPTS, read_tally
from penstock.work.items import ItemStatus

# Latencies and rates are those of the newest so many jobs: cheap, and about now.
SAMPLE = 1000
QUANTILES = (0.5, 0.95, 0.99)
ALIVE = timedelta(minutes=1)


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
    of_stage = work_items.c.stage == stage
    if tenant_id is not None:
        of_stage = sa.and_(of_stage, work_items.c.tenant_id == tenant_id)
    rows = _newest_done(tx, of_stage)
    return StageFigures(
        waiting=_count(tx, of_stage, ItemStatus.PENDING),
        retrying=_count(tx, of_stage, ItemStatus.RETRY_PENDING),
        processing=_count(tx, of_stage, ItemStatus.PROCESSING),
        dead=_count(tx, of_stage, ItemStatus.FAILED),
        oldest_waiting_seconds=_oldest_age(tx, of_stage),
        done_per_second=_rate(tx, rows),
        latency_seconds=quantiles([took_seconds(row) for row in rows], QUANTILES),
    )


def failed_attempts(tx: Tx) -> dict[str, int]:
    """Failed attempts so far, by class."""
    query = sa.select(attempts.c.error_class, sa.func.count()).group_by(attempts.c.error_class)
    counted = Counter({row[0]: row[1] for row in tx.execute(query)})
    return dict(counted + Counter(read_tally(tx, FAILED_ATTEMPTS)))


def completed_items(tx: Tx) -> int:
    """Items that workers have completed since the first of them."""
    total = sa.func.coalesce(sa.func.sum(workers.c.completed), 0)
    forgotten = sum(read_tally(tx, COMPLETED_ITEMS).values())
    return int(tx.execute(sa.select(total)).scalar_one()) + forgotten


def model_figures(tx: Tx) -> list[sa.Row[Any]]:
    """Calls, tokens and cost so far, by model and outcome."""
    c = model_calls.c
    sums = [
        sa.func.sum(c.prompt_tokens).label("prompt_tokens"),
        sa.func.sum(c.completion_tokens).label("completion_tokens"),
        sa.func.sum(c.cost_usd).label("cost_usd"),
    ]
    query = sa.select(c.model, c.outcome, sa.func.count().label("calls"), *sums)
    return list(tx.execute(query.group_by(c.model, c.outcome).order_by(c.model, c.outcome)))


def fallback_rate(tx: Tx) -> float:
    """The share of the newest extractions that the fallback model had to answer."""
    newest = sa.select(extractions.c.fallback_reason).order_by(extractions.c.id.desc())
    reasons = tx.execute(newest.limit(SAMPLE)).scalars().all()
    return sum(reason is not None for reason in reasons) / len(reasons) if reasons else 0.0


def live_workers(tx: Tx) -> int:
    alive = sa.and_(workers.c.status == "running", workers.c.heartbeat_at > tx.now - ALIVE)
    return int(tx.execute(sa.select(sa.func.count()).where(alive)).scalar_one())


def active_runs(tx: Tx) -> int:
    return int(
        tx.execute(sa.select(sa.func.count()).select_from(runs).where(ACTIVE_RUN)).scalar_one()
    )


def _count(tx: Tx, of_stage: sa.ColumnElement[bool], status: ItemStatus) -> int:
    counted = sa.select(sa.func.count()).where(of_stage, work_items.c.status == status)
    if status in (ItemStatus.PENDING, ItemStatus.RETRY_PENDING):
        # Said literally, so that the small index of what waits is used and not the whole table.
        counted = counted.where(WAITING_ITEM)
    elif status is ItemStatus.PROCESSING:
        counted = counted.where(LEASED_ITEM)
    elif status is ItemStatus.FAILED:
        counted = counted.where(DEAD_ITEM)
    return int(tx.execute(counted).scalar_one())


def _oldest_age(tx: Tx, of_stage: sa.ColumnElement[bool]) -> float:
    c = work_items.c
    # What has a lower priority than fresh work, as a backfill has, is meant to wait.
    due = sa.and_(WAITING_ITEM, of_stage, c.status == ItemStatus.PENDING, c.priority >= 0)
    return age_seconds(tx, tx.execute(sa.select(sa.func.min(c.created_at)).where(due)).scalar())


def age_seconds(tx: Tx, since: datetime | None) -> float:
    """How long ago that was; of nothing, 0."""
    return 0.0 if since is None else max(0.0, (tx.now - since).total_seconds())


def _newest_done(tx: Tx, of_stage: sa.ColumnElement[bool]) -> list[sa.Row[Any]]:
    c = work_items.c
    done = sa.and_(of_stage, c.status == ItemStatus.COMPLETE, c.started_at.is_not(None))
    newest = sa.select(c.started_at, c.finished_at).where(done).order_by(c.id.desc())
    return list(tx.execute(newest.limit(SAMPLE)))


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
