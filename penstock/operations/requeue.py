"""Putting nodes back to work by their status: after a fault, a version bump, or a lost queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.operations.beginnings import TEXT_COLUMNS, text_payloads
from penstock.pipeline.closing import REFRESH
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, embeddings, nodes, texts, work_items
from penstock.work.items import ItemStatus, NewItem
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
    begun = [row for row in rows if row.has_text]
    # A node that never got its text has to begin there, if there is anything to read it from.
    textless = [row for row in rows if not row.has_text]
    c = work_items.c
    own = sa.and_(c.node_id.in_([row.id for row in begun]), c.stage == wanted.stage)
    first = sa.and_(c.node_id.in_([row.id for row in textless]), c.stage == Stage.TEXT)
    back = _revive(tx, queue, sa.or_(own, first), wanted.priority) if rows else set()
    at_work = _at_work(tx, [row.id for row in textless])
    left = [row for row in textless if row.id not in back | at_work]
    new = [_item(wanted, row) for row in begun if row.id not in back]
    payloads = text_payloads(tx, left)
    new += [_item(wanted, row, payloads.get(row.id)) for row in left]
    enqueued = back | {node_id for node_id, _ in queue.enqueue(tx, new)}
    return len(enqueued) - _drop_jobs_of_deleted(tx, queue, enqueued)


def _drop_jobs_of_deleted(tx: Tx, queue: WorkQueue, node_ids: set[str]) -> int:
    """Nodes may have gone since they were chosen; how many have. Those that are there now stay
    until this is committed.

    Not locked when they are chosen: jobs come before their nodes, as workers do it, or each could
    wait for the other.
    """
    there = sa.select(nodes.c.id).where(nodes.c.id.in_(node_ids))
    locked = there.order_by(nodes.c.seq).with_for_update(read=True, key_share=True)
    gone = node_ids - set(tx.execute(locked).scalars()) if node_ids else set()
    if gone:
        theirs = work_items.c.node_id.in_(gone)
        queue.cancel(tx, theirs)
        tx.execute(sa.delete(work_items).where(theirs))
    return len(gone)


def _revive(
    tx: Tx, queue: WorkQueue, which: sa.ColumnElement[bool], priority: int | None
) -> set[str]:
    """Dead letters become pending again; their nodes."""
    if priority is not None:
        dead = sa.and_(which, work_items.c.status == ItemStatus.FAILED)
        tx.execute(sa.update(work_items).where(dead).values(priority=priority))
    return {item.node_id for item in queue.requeue(tx, which, note=NOTE)}


def _at_work(tx: Tx, node_ids: Sequence[str]) -> set[str]:
    c = work_items.c
    found = sa.select(c.node_id).where(ACTIVE_ITEM, c.node_id.in_(node_ids))
    return set(tx.execute(found).scalars()) if node_ids else set()


def _item(wanted: Requeue, row: sa.Row[Any], text: Mapping[str, Any] | None = None) -> NewItem:
    """The stage that is wanted, or the text before it."""
    stage = wanted.stage if text is None else Stage.TEXT
    payload: dict[str, Any] = {"external_id": row.external_id} if text is None else {**text}
    if stage is Stage.EMBED and not row.has_vector:
        # Its text may be the one that was embedded before; the vector is missing all the same.
        payload[REFRESH] = True
    return NewItem(wanted.tenant_id, row.id, stage, priority=wanted.priority or 0, payload=payload)
