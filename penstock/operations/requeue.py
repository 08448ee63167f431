"""Putting nodes back to work by their status: after a fault, a version bump, or a lost queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.operations.beginnings import TEXT_COLUMNS, text_payloads
from penstock.operations.placement import Placement, place_nodes
from penstock.pipeline.closing import REFRESH
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, embeddings, nodes, texts, work_items
from penstock.work.queue import WorkQueue

MAX_NODES = 2000
NOTE = "Job was requeued by an operator."
_STATUS = {Stage.EXTRACT: nodes.c.extraction_status, Stage.EMBED: nodes.c.embedding_status}
_UNDONE = ("queued", "failed", "pending_extraction")


@dataclass(frozen=True, slots=True)
class Requeue:
    """Which nodes of a tenant go back to work for a stage."""

    tenant_id: str
    stage: Stage
    status: str | None = None
    only_null_status: bool = False
    only_missing_embedding: bool = False
    backfill_ready: bool = False
    """Nodes that have their vector but do not say so are marked ready, not embedded again."""
    node_ids: Sequence[str] | None = None
    limit: int = MAX_NODES
    priority: int | None = None
    """None: as it was, or 0."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What came of it."""

    requested: int
    enqueued: int
    backfilled: int

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def requeue_nodes(tx: Tx, queue: WorkQueue, wanted: Requeue, identity: str) -> Requeued:
    """Full budgets for all of them; whatever is active already is left alone.

    `identity` names the vectors that are made now.
    """
    rows = tx.execute(_select(wanted, identity)).all()
    whole = [row.id for row in rows if row.has_vector and _backfills(wanted)]
    to_do = [row for row in rows if not (row.has_vector and _backfills(wanted))]
    backfilled = _mark_ready(tx, whole)
    enqueued = _enqueue(tx, queue, wanted, to_do)
    return Requeued(len(rows), enqueued, backfilled)


def _backfills(wanted: Requeue) -> bool:
    """A vector says nothing about whether a node's fields were extracted."""
    return wanted.backfill_ready and wanted.stage is Stage.EMBED


def _select(wanted: Requeue, identity: str) -> sa.Select[Any]:
    has_vector = (
        sa.exists()
        .where(embeddings.c.seq == nodes.c.seq, embeddings.c.identity == identity)
        .label("has_vector")
    )
    has_text = sa.exists().where(texts.c.seq == nodes.c.seq).label("has_text")
    found = sa.select(*TEXT_COLUMNS, has_vector, has_text)
    found = found.where(nodes.c.tenant_id == wanted.tenant_id, nodes.c.expired_at.is_(None))
    found = found.where(_of_status(wanted))
    if wanted.node_ids is not None:
        found = found.where(nodes.c.id.in_(wanted.node_ids))
    if wanted.only_missing_embedding and not _backfills(wanted):
        found = found.where(~has_vector.element)
    return found.order_by(nodes.c.seq).limit(max(0, min(wanted.limit, MAX_NODES)))


def _of_status(wanted: Requeue) -> sa.ColumnElement[bool]:
    column = _STATUS[wanted.stage]
    if wanted.only_null_status:
        return column.is_(None)
    if wanted.status is not None:
        return column.is_(None) if wanted.status == "none" else column == wanted.status
    if wanted.node_ids is not None:
        return sa.true()
    return sa.or_(column.is_(None), column.in_(_UNDONE))


def _mark_ready(tx: Tx, ids: Sequence[str]) -> int:
    if not ids:
        return 0
    at_work = sa.select(work_items.c.node_id).where(
        ACTIVE_ITEM, work_items.c.stage == Stage.EMBED, work_items.c.node_id.in_(ids)
    )
    whole = (
        sa.update(nodes)
        .where(nodes.c.id.in_(ids), nodes.c.id.not_in(at_work))
        .where(sa.or_(nodes.c.embedding_status.is_(None), nodes.c.embedding_status != "ready"))
        .values(embedding_status="ready", embedding_error=None, updated_at=tx.now)
    )
    return tx.execute(whole).rowcount


def _enqueue(tx: Tx, queue: WorkQueue, wanted: Requeue, rows: Sequence[sa.Row[Any]]) -> int:
    # A node that never got its text has to begin there, if there is anything to read it from.
    payloads = text_payloads(tx, [row for row in rows if not row.has_text])
    placements = [_placement(wanted, row, payloads.get(row.id)) for row in rows]
    return len(place_nodes(tx, queue, placements, priority=wanted.priority, note=NOTE))


def _placement(
    wanted: Requeue, row: sa.Row[Any], text: Mapping[str, Any] | None = None
) -> Placement:
    """The stage that is wanted, or the text before it."""
    stage = wanted.stage if text is None else Stage.TEXT
    payload: dict[str, Any] = {"external_id": row.external_id} if text is None else {**text}
    if stage is Stage.EMBED and not row.has_vector:
        # Its text may be the one that was embedded before; the vector is missing all the same.
        payload[REFRESH] = True
    return Placement(wanted.tenant_id, row.id, stage, payload)
