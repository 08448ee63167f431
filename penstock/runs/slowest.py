"""The documents of a run that took longest."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import run_documents, work_items
from penstock.work.items import ItemStatus


@dataclass(frozen=True, slots=True)
class SlowDocument:
    """How long one document was worked on, all stages together."""

    external_id: str
    node_id: str
    seconds: float


def list_slowest(tx: Tx, run_id: int, limit: int = 5) -> list[SlowDocument]:
    """By the time from the beginning of each stage to its end; waiting does not count."""
    c, d = work_items.c, run_documents.c
    took = seconds_between(tx, c.started_at, c.finished_at)
    total = sa.func.sum(took).label("seconds")
    query = (
        sa.select(d.external_id, c.node_id, total)
        .join(run_documents, sa.and_(d.run_id == c.run_id, d.node_id == c.node_id))
        .where(c.run_id == run_id, c.status == ItemStatus.COMPLETE, c.started_at.is_not(None))
        .group_by(d.external_id, c.node_id)
        .order_by(total.desc(), d.external_id)
        .limit(limit)
    )
    return [
        SlowDocument(row.external_id, str(row.node_id), max(0.0, float(row.seconds)))
        for row in tx.execute(query)
    ]


def seconds_between(
    tx: Tx, begun: sa.ColumnElement[Any], ended: sa.ColumnElement[Any]
) -> sa.ColumnElement[Any]:
    if tx.connection.dialect.name == "postgresql":
        # A float at once: what EXTRACT gives is exact, and slow to reckon with.
        return sa.func.date_part("epoch", ended - begun)
    days = sa.func.julianday(ended) - sa.func.julianday(begun)
    return days * 86400.0
