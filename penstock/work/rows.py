"""Work items as rows of their table, and back."""

from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.store.database import Tx
from penstock.store.schema import attempts, work_items
from penstock.work.items import WorkItem

NO_LEASE: dict[str, Any] = {
    "lease_owner": None,
    "lease_token": None,
    "lease_expires_at": None,
    "claimed_at": None,
    "started_at": None,
}


def item_columns() -> list[sa.ColumnElement[Any]]:
    """What `item_from` needs of a row."""
    c = work_items.c
    return [
        c.id,
        c.tenant_id,
        c.node_id,
        c.run_id,
        c.stage,
        c.priority,
        c.attempts,
        c.rescues,
        c.payload,
        c.created_at,
    ]


def item_from(row: sa.Row[Any]) -> WorkItem:
    return WorkItem(
        id=row.id,
        tenant_id=row.tenant_id,
        node_id=row.node_id,
        stage=Stage(row.stage),
        run_id=row.run_id,
        priority=row.priority,
        attempts=row.attempts,
        rescues=row.rescues,
        payload=row.payload,
        enqueued_at=row.created_at,
    )


def record_attempt(tx: Tx, item: WorkItem, attempt: int, owner: str | None, fault: Fault) -> None:
    """Append one line to the item's error history."""
    tx.execute(
        sa.insert(attempts).values(
            item_id=item.id,
            attempt=attempt,
            owner=owner,
            error_class=fault.kind,
            message=fault.message,
            failed_at=tx.now,
        )
    )
