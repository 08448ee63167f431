"""How the queues stand: nodes by status, jobs that wait, retry or are dead."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from penstock.dispatch.depths import queue_depths
from penstock.dispatch.keys import Queue
from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import nodes, work_items
from penstock.work.items import ItemStatus

_STATUS = {Stage.EXTRACT: nodes.c.extraction_status, Stage.EMBED: nodes.c.embedding_status}
_PLACES = {
    ItemStatus.PENDING: "queue",
    ItemStatus.RETRY_PENDING: "retry",
    ItemStatus.FAILED: "dlq",
}


def count_nodes(tx: Tx, stage: Stage, tenant_id: str) -> dict[str, int]:
    """A tenant's nodes by how far this stage has come with them; `none`: it never began."""
    column = _STATUS[stage]
    present = sa.and_(nodes.c.tenant_id == tenant_id, nodes.c.expired_at.is_(None))
    counted = sa.select(column, sa.func.count()).where(present).group_by(column)
    return {row[0] or "none": row[1] for row in tx.execute(counted)}


def stored_depths(tx: Tx, stage: Stage, tenant_id: str | None) -> dict[str, int]:
    """What waits, waits for a retry, and is dead: of one tenant, or of all."""
    c = work_items.c
    counted = sa.select(c.status, sa.func.count()).where(c.stage == stage, c.status.in_(_PLACES))
    if tenant_id is not None:
        counted = counted.where(c.tenant_id == tenant_id)
    found = {row[0]: row[1] for row in tx.execute(counted.group_by(c.status))}
    return {place: found.get(status, 0) for status, place in _PLACES.items()}


def mirrored_depths(client: Any, stage: Stage) -> Mapping[str, int]:
    """The same of all tenants, as Redis shows it to operators."""
    return queue_depths(client)[Queue.of(stage)]
