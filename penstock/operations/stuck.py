"""Jobs that workers are at: for how long, and when their worker last gave a sign of life."""

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import LEASED_ITEM, work_items, workers

_SHOWN = ("id", "tenant_id", "stage", "node_id", "run_id", "attempts", "rescues")
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
    """Jobs in processing, of one tenant or of all, those that were begun first in front.

    Without a minimum these are all of them: which are stuck is for the reader to say. A job runs
    since work on it began, or else since it was claimed; the last sign of life is the heartbeat of
    the worker that holds it, or else the last change of the job.
    """
    held = _held(tenant_id, stage)
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
    return [_shown(tx, row) for row in tx.execute(found.order_by(since, held.c.id).limit(limit))]


def count_processing(tx: Tx, tenant_id: str | None, stage: Stage | None = None) -> int:
    """How many jobs are in processing."""
    held = _held(tenant_id, stage)
    return int(tx.execute(sa.select(sa.func.count()).select_from(held)).scalar_one())


def _held(tenant_id: str | None, stage: Stage | None) -> sa.Subquery:
    # Apart from the workers, which have a status too: the condition is literal, for its index.
    held = sa.select(*[work_items.c[name] for name in _SHOWN + _TIMES]).where(LEASED_ITEM)
    if tenant_id is not None:
        held = held.where(work_items.c.tenant_id == tenant_id)
    if stage is not None:
        held = held.where(work_items.c.stage == stage)
    return held.subquery("held")


def _shown(tx: Tx, row: sa.Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SHOWN} | {
        "owner": row.lease_owner,
        "claimed_at": _iso(row.claimed_at),
        "started_at": _iso(row.started_at),
        "running_seconds": _seconds(tx, row.since),
        "inactive_seconds": _seconds(tx, row.sign),
        "last_heartbeat": _iso(row.last_heartbeat),
        "lease_expires_at": _iso(row.lease_expires_at),
        "expired": row.lease_expires_at < tx.now,
    }


def _seconds(tx: Tx, since: datetime) -> float:
    return max(0.0, round((tx.now - since).total_seconds(), 3))


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
