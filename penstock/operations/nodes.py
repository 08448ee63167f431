"""Nodes as operators change them: put back to work from a stage on, refreshed, deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.crawl.rawstore import RawStore
from penstock.documents import Stage
from penstock.errors import NotFound
from penstock.intake.nodes import UPLOAD
from penstock.operations.jobs import (
    JobFilter,
    close_cancelled,
    finalize_runs_of,
    list_jobs,
    with_histories,
)
from penstock.queue.items import ItemPayload, ItemStatus, NewItem, StageOrder, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.runs.up_to_date import hold_nodes
from penstock.search.nodes import valid_node_id
from penstock.store.database import Database, Tx
from penstock.store.retry import retry_after_deadlock
from penstock.store.schema import (
    ACTIVE_ITEM,
    corrections,
    embeddings,
    extractions,
    nodes,
    run_documents,
    texts,
    work_items,
)

MAX_NODES = 2000
# Of a node's history.
MOST_JOBS = 50
REQUEUED = "Job was requeued by an operator."
DELETED = "it was deleted before it was done"
# What `text_payloads` and `place_node` need of a node.
NODE_COLUMNS = (
    nodes.c.id,
    nodes.c.tenant_id,
    nodes.c.external_id,
    nodes.c.raw_key,
    nodes.c.given,
    nodes.c.extraction_status,
)
_STATUS = {Stage.EXTRACT: nodes.c.extraction_status, Stage.EMBED: nodes.c.embedding_status}
_UNDONE = ("queued", "failed", "pending_extraction")
_EXTRACTED = ("ready", "skipped")
_HAS_TEXT = sa.exists().where(texts.c.seq == nodes.c.seq).label("has_text")
_c = work_items.c
# The smallest step of a time.
_MOMENT = timedelta.resolution


@dataclass(frozen=True, slots=True)
class Placement:
    """A node that goes back to work, and the stage it begins with."""

    tenant_id: str
    node_id: str
    stage: Stage
    payload: ItemPayload
    """Of a new item; a dead letter that is revived keeps its own."""
    backfill: int | None = None
    refresh: bool = False
    may_be_dead: bool = True
    """False when it is known that there is no dead letter, which need not be looked for then."""

    def mark(self, payload: ItemPayload) -> ItemPayload:
        """This payload with what the placement asks for."""
        backfill = payload.backfill if self.backfill is None else self.backfill
        return replace(payload, backfill=backfill, refresh=self.refresh or payload.refresh)


def enqueue_from_stage(
    tx: Tx,
    queue: WorkQueue,
    placements: Sequence[Placement],
    *,
    priority: int | None,
    note: str,
    requires: str | None = None,
) -> set[str]:
    """Enqueue all of them with full budgets; active items are left alone. Returns the nodes that
    have work by this. A priority of None: as it was, or 0."""
    back = _revive(tx, queue, [one for one in placements if one.may_be_dead], priority, note)
    left = [one for one in placements if one.node_id not in back]
    text_ids = [one.node_id for one in left if one.stage is Stage.TEXT]
    active = sa.select(_c.node_id).where(ACTIVE_ITEM, _c.node_id.in_(text_ids))
    at_work = set(tx.execute(active).scalars()) if text_ids else set()
    new = [
        NewItem(
            one.tenant_id,
            one.node_id,
            one.stage,
            priority=priority or 0,
            payload=one.mark(one.payload),
            requires=requires,
        )
        for one in left
        # A text whose later stages are under way is not read a second time.
        if not (one.stage is Stage.TEXT and one.node_id in at_work)
    ]
    placed = back | {node_id for node_id, _ in queue.enqueue(tx, new)}
    return placed - _drop_jobs_of_deleted(tx, queue, placed)


def place_node(row: sa.Row[Any], stage: Stage, text: ItemPayload | None) -> Placement:
    """A node begins with this stage, or with its text if there is a payload to read it from."""
    stage = stage if text is None else Stage.TEXT
    payload = text or ItemPayload(external_id=row.external_id)
    # The vector is missing, even if its text is the one that was embedded before.
    refresh = stage is Stage.EMBED and not row.has_vector
    return Placement(row.tenant_id, row.id, stage, payload, refresh=refresh)


def _revive(
    tx: Tx,
    queue: WorkQueue,
    placements: Sequence[Placement],
    priority: int | None,
    note: str,
) -> set[str]:
    """Dead letters become pending again; their nodes."""
    if not placements:
        return set()
    by_key = {(one.node_id, one.stage): one for one in placements}
    stages = {stage: [one.node_id for one in placements if one.stage is stage] for stage in Stage}
    named = [sa.and_(_c.stage == stage, _c.node_id.in_(ids)) for stage, ids in stages.items()]
    dead = _c.status == ItemStatus.FAILED
    query = sa.select(_c.id, _c.node_id, _c.stage, _c.payload, _c.priority)
    changed: list[dict[str, Any]] = []
    for row in tx.execute(query.where(dead, sa.or_(*named))):
        payload = by_key[row.node_id, Stage(row.stage)].mark(ItemPayload.from_json(row.payload))
        changed.append(
            {
                "b_id": row.id,
                "b_priority": row.priority if priority is None else priority,
                "b_payload": payload.to_json(),
            }
        )
    if not changed:
        return set()
    values: dict[str, Any] = {n: sa.bindparam(f"b_{n}") for n in ("priority", "payload")}
    update = sa.update(work_items).where(_c.id == sa.bindparam("b_id"), dead).values(values)
    tx.execute(update, changed)
    ids = [row["b_id"] for row in changed]
    return {item.node_id for item in queue.requeue(tx, tx.among(_c.id, ids), note=note)}


def _drop_jobs_of_deleted(tx: Tx, queue: WorkQueue, node_ids: set[str]) -> set[str]:
    """The nodes that were deleted since they were chosen; the others are locked from here.

    They are not locked when they are chosen: workers lock jobs before their nodes, and in the other
    order each could wait for the other.
    """
    deleted = node_ids - hold_nodes(tx, node_ids)
    if deleted:
        theirs = _c.node_id.in_(deleted)
        queue.cancel(tx, theirs)
        tx.execute(sa.delete(work_items).where(theirs))
    return deleted


def text_payloads(tx: Tx, rows: Sequence[sa.Row[Any]]) -> dict[str, ItemPayload]:
    """Payloads for text items of these nodes; none for a node that was never read from bytes."""
    if not rows:
        return {}
    query = sa.select(_c.node_id, _c.payload).where(
        _c.stage == Stage.TEXT, _c.node_id.in_([row.id for row in rows])
    )
    # The newest of each node comes last, and stays.
    stored = {row.node_id: row.payload for row in tx.execute(query.order_by(_c.id))}
    payloads: dict[str, ItemPayload] = {}
    for row in rows:
        newest = stored.get(row.id)
        payload = ItemPayload.from_json(newest) if newest else _plain_payload(row)
        if payload is not None:
            payloads[row.id] = replace(payload, order=_order(row, payload))
    return payloads


def _plain_payload(row: sa.Row[Any]) -> ItemPayload | None:
    given = row.given or {}
    if reference := given.get("payload_ref"):
        return ItemPayload(external_id=reference, payload_ref=reference)
    if not row.raw_key:
        return None
    upload = given.get(UPLOAD) or {"external_id": row.external_id}
    return replace(ItemPayload.from_json(upload), raw_key=row.raw_key)


def _order(row: sa.Row[Any], payload: ItemPayload) -> StageOrder:
    """As before; but fields that were extracted since are extracted again."""
    order = payload.order
    if order is None:
        from_api = row.given is not None
        embed_only = from_api and row.extraction_status is None
        return StageOrder.EMBED_ONLY if embed_only else StageOrder.EXTRACT_FIRST
    again = order is StageOrder.EMBED_ONLY and row.extraction_status in _EXTRACTED
    return StageOrder.EXTRACT_FIRST if again else order


@dataclass(frozen=True, slots=True)
class Requeue:
    """Which nodes of a tenant go back to work for a stage."""

    tenant_id: str
    stage: Stage
    status: str | None = None
    only_null_status: bool = False
    only_missing_embedding: bool = False
    backfill_ready: bool = False
    """Nodes that have their vector but not the status are marked ready, not embedded again."""
    node_ids: Sequence[str] | None = None
    limit: int = MAX_NODES
    priority: int | None = None
    """None: as it was, or 0."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """The result of a requeue."""

    requested: int
    enqueued: int
    backfilled: int

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def requeue_nodes(tx: Tx, queue: WorkQueue, wanted: Requeue, identity: str) -> Requeued:
    """Requeue with full budgets; active items are left alone. `identity` names the vectors that are
    made now."""
    rows = tx.execute(_select(wanted, identity)).all()
    whole = [row.id for row in rows if row.has_vector and _backfills(wanted)]
    backfilled = _mark_ready(tx, whole)
    to_do = [row for row in rows if not (row.has_vector and _backfills(wanted))]
    # A node that never got its text has to begin there, if there is anything to read it from.
    payloads = text_payloads(tx, [row for row in to_do if not row.has_text])
    placements = [place_node(row, wanted.stage, payloads.get(row.id)) for row in to_do]
    placed = enqueue_from_stage(tx, queue, placements, priority=wanted.priority, note=REQUEUED)
    return Requeued(len(rows), len(placed), backfilled)


def _backfills(wanted: Requeue) -> bool:
    """A vector says nothing about whether a node's fields were extracted."""
    return wanted.backfill_ready and wanted.stage is Stage.EMBED


def _select(wanted: Requeue, identity: str) -> sa.Select[Any]:
    has_vector = (
        sa.exists()
        .where(embeddings.c.seq == nodes.c.seq, embeddings.c.identity == identity)
        .label("has_vector")
    )
    found = sa.select(*NODE_COLUMNS, has_vector, _HAS_TEXT)
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
    at_work = sa.select(_c.node_id).where(ACTIVE_ITEM, _c.stage == Stage.EMBED, _c.node_id.in_(ids))
    whole = (
        sa.update(nodes)
        .where(nodes.c.id.in_(ids), nodes.c.id.not_in(at_work))
        .where(sa.or_(nodes.c.embedding_status.is_(None), nodes.c.embedding_status != "ready"))
        .values(embedding_status="ready", embedding_error=None, updated_at=tx.now)
    )
    return tx.execute(whole).rowcount


def refresh_node(tx: Tx, queue: WorkQueue, tenant_id: str, node_id: str) -> dict[str, Any]:
    """Enqueue the first stage that can be done again, which the others follow; not while a job for
    the node is active, which is then the refresh."""
    node_id = valid_node_id(node_id)
    own = sa.select(nodes, _HAS_TEXT).where(nodes.c.id == node_id, nodes.c.tenant_id == tenant_id)
    node = tx.execute(own.with_for_update()).first()
    if node is None:
        raise NotFound(f"there is no node {node_id}")
    active = sa.select(_c.id, _c.stage).where(ACTIVE_ITEM, _c.node_id == node_id)
    at_work = tx.execute(active.order_by(_c.id)).first()
    if at_work is not None:
        return {"id": node_id, "job_id": at_work.id, "stage": at_work.stage, "enqueued": False}
    stage = _first_stage(node)
    text = text_payloads(tx, [node]).get(node_id) if stage is Stage.TEXT else None
    payload = text or ItemPayload(external_id=node.external_id)
    item = NewItem(tenant_id, node_id, stage, payload=replace(payload, refresh=True))
    ids = queue.enqueue(tx, [item])
    return {"id": node_id, "job_id": ids[node_id, stage], "stage": stage, "enqueued": True}


def _first_stage(node: sa.Row[Any]) -> Stage:
    reference = (node.given or {}).get("payload_ref")
    if reference or (node.raw_key and not node.has_text):
        return Stage.TEXT
    return Stage.EMBED if node.extraction_status is None else Stage.EXTRACT


def delete_node(
    database: Database, queue: WorkQueue, raw: RawStore, tenant_id: str, node_id: str
) -> None:
    """Delete a node with its jobs, extractions, corrections, vectors and raw bytes.

    A worker that holds it can no longer write. What runs counted stays counted; in a run that still
    waited for it, the document is an error.
    """
    node_id = valid_node_id(node_id)
    with database.read() as tx:
        before = _raw_keys(tx, tenant_id, node_id)
    # As they are now: what is stored again after this belongs to a run that is about to record it.
    stored = {one.key: one.stored_at for key in sorted(before)[:1] for one in raw.versions(key)}
    deleted, cancelled, keys = _delete_rows(database, queue, tenant_id, node_id)
    finalize_runs_of(database, cancelled)
    # Last, and outside the transaction, since S3 may be slow. Raw bytes without a node are deleted
    # by maintenance; a node without its bytes would be a loss.
    _delete_raw(database, raw, deleted, dict.fromkeys(keys) | stored)


def _raw_keys(tx: Tx, tenant_id: str, node_id: str) -> set[str]:
    """The keys of the node's raw bytes; those whose text was never read are known to jobs only."""
    own = sa.select(nodes.c.raw_key).where(nodes.c.id == node_id, nodes.c.tenant_id == tenant_id)
    payloads = sa.select(_c.payload).where(_c.node_id == node_id, _c.tenant_id == tenant_id)
    of_jobs = [ItemPayload.from_json(one).raw_key for one in tx.execute(payloads).scalars()]
    return {key for key in (*tx.execute(own).scalars(), *of_jobs) if key}


def _delete_raw(
    database: Database,
    raw: RawStore,
    deleted: sa.Row[Any],
    versions: Mapping[str, datetime | None],
) -> None:
    """Delete these versions of the document, but for what another node has, and what was stored
    again since the given time. Nothing at all if a run has just brought the document in again: the
    bytes are its own."""
    c = nodes.c
    again = sa.select(c.id).where(
        c.source_id == deleted.source_id, c.external_id == deleted.external_id
    )
    shared = sa.select(c.raw_key).where(
        c.tenant_id == deleted.tenant_id, c.raw_key.in_([*versions])
    )
    with database.read() as tx:
        if deleted.source_id is not None and tx.execute(again).first() is not None:
            return
        in_use = set(tx.execute(shared).scalars())
    for key, stored_at in versions.items():
        if key in in_use:
            continue
        if stored_at is None:
            raw.delete(key)
        else:
            raw.delete_older(key, stored_at + _MOMENT)


@retry_after_deadlock
def _delete_rows(
    database: Database, queue: WorkQueue, tenant_id: str, node_id: str
) -> tuple[sa.Row[Any], list[WorkItem], set[str]]:
    """The deleted row, the jobs that were cancelled for it, and the keys of its raw bytes."""
    c = nodes.c
    known = sa.select(c.tenant_id, c.source_id, c.external_id)
    known = known.where(c.id == node_id, c.tenant_id == tenant_id)
    with database.write() as tx:
        if tx.execute(known).first() is None:
            raise NotFound(f"there is no node {node_id}")
        # Jobs before their node, as workers do it: another order could deadlock.
        cancelled = _cancel_jobs(tx, queue, node_id)
        keys = _raw_keys(tx, tenant_id, node_id)
        jobs = sa.delete(work_items).where(work_items.c.node_id == node_id)
        tx.execute(jobs)
        found = tx.execute(known.with_for_update()).first()
        if found is None:
            raise NotFound(f"there is no node {node_id}: it has just been deleted")
        # Others may have come while we waited for the lock on the node; from now on none can.
        cancelled += _cancel_jobs(tx, queue, node_id)
        tx.execute(jobs)
        for table in (extractions, corrections):
            tx.execute(sa.delete(table).where(table.c.node_id == node_id))
        left = sa.update(run_documents).where(run_documents.c.node_id == node_id)
        tx.execute(left.values(node_id=None))
        tx.execute(sa.delete(nodes).where(nodes.c.id == node_id))
        return found, cancelled, keys


def _cancel_jobs(tx: Tx, queue: WorkQueue, node_id: str) -> list[WorkItem]:
    own = work_items.c.node_id == node_id
    active = sa.select(sa.literal(1)).where(ACTIVE_ITEM, own).limit(1)
    items: list[WorkItem] = []
    # A worker in the middle of a commit may open the next stage while we wait for it: what we wait
    # for is complete then, and nothing is cancelled by that statement.
    while tx.execute(active).first() is not None:
        items += queue.cancel(tx, own)
    close_cancelled(tx, [item for item in items if item.run_id is not None], DELETED)
    return items


def node_history(tx: Tx, tenant_id: str, node_id: str) -> list[dict[str, Any]]:
    """The newest jobs of a node, of every stage, each with its failed attempts."""
    wanted = JobFilter(tenant_id, node_id=valid_node_id(node_id))
    return with_histories(tx, list_jobs(tx, wanted, MOST_JOBS))
