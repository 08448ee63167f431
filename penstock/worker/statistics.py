"""How the queue of one library is doing."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import work_items
from penstock.work.items import ItemStatus

_DAY = timedelta(hours=24)
_AVERAGED_JOBS = 1000


def queue_statistics(tx: Tx, tenant_id: str, stages: Collection[Stage]) -> dict[str, Any]:
    """Jobs by status, and what happened to them in the last 24 hours."""
    c = work_items.c
    ours = sa.and_(c.tenant_id == tenant_id, c.stage.in_(stages))
    counted = sa.select(c.status, sa.func.count()).where(ours).group_by(c.status)
    by_status: dict[str, int] = {row[0]: row[1] for row in tx.execute(counted)}
    return {status.value: by_status.get(status, 0) for status in ItemStatus} | {
        "completed_24h": _count_ended(tx, ours, ItemStatus.COMPLETE),
        "failed_24h": _count_ended(tx, ours, ItemStatus.FAILED),
        "avg_extraction_time_ms": _average_milliseconds(tx, ours),
    }


def _count_ended(tx: Tx, ours: sa.ColumnElement[bool], status: ItemStatus) -> int:
    c = work_items.c
    query = sa.select(sa.func.count()).where(
        ours, c.status == status, c.finished_at > tx.now - _DAY
    )
    count: int = tx.execute(query).scalar_one()
    return count


def _average_milliseconds(tx: Tx, ours: sa.ColumnElement[bool]) -> float:
    """Over the latest jobs that were completed; 0 before the first."""
    c = work_items.c
    query = (
        sa.select(c.started_at, c.finished_at)
        .where(ours, c.status == ItemStatus.COMPLETE, c.started_at.is_not(None))
        .order_by(c.id.desc())
        .limit(_AVERAGED_JOBS)
    )
    spent = [(row.finished_at - row.started_at).total_seconds() for row in tx.execute(query)]
    return round(1000 * sum(spent) / len(spent), 1) if spent else 0.0
