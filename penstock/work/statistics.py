"""How much work there is, by status."""

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import work_items
from penstock.work.items import ItemStatus


def count_items(tx: Tx, tenant_id: str) -> dict[str, int]:
    """A tenant's work items by status; every status is there."""
    query = (
        sa.select(work_items.c.status, sa.func.count().label("items"))
        .where(work_items.c.tenant_id == tenant_id)
        .group_by(work_items.c.status)
    )
    found = {row.status: row.items for row in tx.execute(query)}
    return {status.value: found.get(status, 0) for status in ItemStatus}
