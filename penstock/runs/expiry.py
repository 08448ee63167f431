"""Documents that their source no longer lists. Called only when the whole listing succeeded."""

from typing import Any

import sqlalchemy as sa

from penstock.events.record import Event, record
from penstock.runs.vocabulary import Change, DocumentStatus, Run
from penstock.store.database import Tx
from penstock.store.schema import nodes, run_documents


def expire_missing(tx: Tx, run: Run) -> int:
    """Mark as expired every node of the source that this run has not listed; how many."""
    listed = sa.select(run_documents.c.external_id).where(run_documents.c.run_id == run.id)
    gone = (
        sa.update(nodes)
        .where(nodes.c.source_id == run.source_id, nodes.c.expired_at.is_(None))
        .where(nodes.c.external_id.not_in(listed))
        .values(expired_at=tx.now)
        .returning(nodes.c.id, nodes.c.external_id, nodes.c.url)
    )
    rows = [
        {
            "run_id": run.id,
            "external_id": row.external_id,
            "node_id": row.id,
            "url": row.url,
            "status": DocumentStatus.EXPIRED,
            "change": Change.REMOVED,
            "reason": "no longer listed by its source",
            "updated_at": tx.now,
        }
        for row in tx.execute(gone)
    ]
    if rows:
        tx.execute(sa.insert(run_documents), rows)
        record(tx, *[_event(run, row) for row in rows])
    return len(rows)


def _event(run: Run, row: dict[str, Any]) -> Event:
    return Event(
        run.tenant_id,
        "CRL",
        f"expired: {row['reason']}",
        run_id=run.id,
        node_id=row["node_id"],
        source=run.source_name,
        document=row["external_id"],
    )
