"""Workers as operators see them: who lives, who was lost, and what each of them holds."""

from collections import defaultdict
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import LEASED_ITEM, work_items, workers

# How long a worker that was lost is shown although it holds nothing any more.
REMEMBERED = timedelta(days=1)


def list_workers(
    tx: Tx, *, lease_seconds: float, tenant_id: str | None = None, include_all: bool = False
) -> list[dict[str, Any]]:
    """Workers, the latest sign of life first.

    A worker that says it runs, and was not heard of for as long as a lease lasts, is lost. Those
    that stopped, or were lost more than a day ago, are listed only while they hold jobs, or with
    `include_all`. With a tenant: those that are at its jobs, and only these jobs.
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
    query = sa.select(c.id, c.lease_owner).where(LEASED_ITEM).order_by(c.id)
    if tenant_id is not None:
        query = query.where(c.tenant_id == tenant_id)
    held: dict[str, list[int]] = defaultdict(list)
    for row in tx.execute(query):
        held[row.lease_owner].append(row.id)
    return held


def _shown(tx: Tx, row: sa.Row[Any], lease_seconds: float, jobs: list[int]) -> dict[str, Any]:
    age = max(0.0, round((tx.now - row.heartbeat_at).total_seconds(), 3))
    lost = row.status == "running" and age > lease_seconds
    return {
        "id": row.id,
        "host": row.host,
        "pid": row.pid,
        "version": row.version,
        "status": "lost" if lost else row.status,
        "heartbeat_age": age,
        "jobs": len(jobs),
        "job_ids": jobs,
        "completed": row.completed,
        "failed": row.failed,
        "started_at": row.started_at.isoformat(),
    }
