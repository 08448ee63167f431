"""Who there is, and whose work waits."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.operations.figures import age_seconds
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, sources, work_items
from penstock.work.items import ItemStatus


@dataclass(frozen=True, slots=True)
class TenantBacklog:
    """What one tenant has in all queues at this moment."""

    tenant_id: str
    waiting: int
    retrying: int
    processing: int
    oldest_waiting_seconds: float
    """Of fresh work: what has a lower priority is meant to wait."""


def waiting_by_tenant(tx: Tx, limit: int = 20) -> list[TenantBacklog]:
    """Tenants with something to do, the most waiting first."""
    c = work_items.c
    fresh = sa.and_(c.status == ItemStatus.PENDING, c.priority >= 0)
    waiting = _count(ItemStatus.PENDING)
    query = sa.select(
        c.tenant_id,
        waiting.label("waiting"),
        _count(ItemStatus.RETRY_PENDING).label("retrying"),
        _count(ItemStatus.PROCESSING).label("processing"),
        sa.func.min(sa.case((fresh, c.created_at))).label("oldest"),
    )
    most = query.where(ACTIVE_ITEM).group_by(c.tenant_id).order_by(waiting.desc(), c.tenant_id)
    return [
        TenantBacklog(
            row.tenant_id, row.waiting, row.retrying, row.processing, age_seconds(tx, row.oldest)
        )
        for row in tx.execute(most.limit(limit))
    ]


def _count(status: ItemStatus) -> sa.ColumnElement[Any]:
    return sa.func.count(sa.case((work_items.c.status == status, 1)))


def known_tenants(tx: Tx, limit: int = 100) -> list[str]:
    """Whoever has a source, for people to choose from."""
    named = sa.select(sources.c.tenant_id).distinct().order_by(sources.c.tenant_id)
    return list(tx.execute(named.limit(limit)).scalars())
