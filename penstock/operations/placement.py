"""Putting nodes to work from a stage on: dead letters are revived, the others get new items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, nodes, work_items
from penstock.work.items import ItemStatus, NewItem
from penstock.work.queue import WorkQueue

_c = work_items.c


@dataclass(frozen=True, slots=True)
class Placement:
    """A node that goes to work, and where it begins."""

    tenant_id: str
    node_id: str
    stage: Stage
    payload: Mapping[str, Any]
    marks: Mapping[str, Any] = field(default_factory=dict)
    """What is written into the payload whether it is a new one or a dead letter's."""
    may_be_dead: bool = True
    """False spares the search for a dead letter where it is known that there is none."""

    @property
    def key(self) -> tuple[str, Stage]:
        return self.node_id, self.stage


def place_nodes(
    tx: Tx, queue: WorkQueue, placements: Sequence[Placement], *, priority: int | None, note: str
) -> set[str]:
    """Full budgets for all of them; whatever is active already is left alone. The nodes that have
    work by this. A priority of None: as it was, or 0."""
    back = _revive(tx, queue, [one for one in placements if one.may_be_dead], priority, note)
    left = [one for one in placements if one.node_id not in back]
    at_work = _at_work(tx, [one.node_id for one in left if one.stage is Stage.TEXT])
    new = [
        NewItem(
            one.tenant_id,
            one.node_id,
            one.stage,
            priority=priority or 0,
            payload={**one.payload, **one.marks},
        )
        for one in left
        # A text that is on its way through the later stages is not read a second time.
        if not (one.stage is Stage.TEXT and one.node_id in at_work)
    ]
    placed = back | {node_id for node_id, _ in queue.enqueue(tx, new)}
    return placed - _drop_jobs_of_deleted(tx, queue, placed)


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
    marks = {one.key: one.marks for one in placements}
    stages = {stage: [one.node_id for one in placements if one.stage is stage] for stage in Stage}
    named = [sa.and_(_c.stage == stage, _c.node_id.in_(ids)) for stage, ids in stages.items()]
    dead = sa.and_(_c.status == ItemStatus.FAILED, sa.or_(*named))
    rows = tx.execute(sa.select(_c.id, _c.node_id, _c.stage, _c.payload, _c.priority).where(dead))
    changed = [
        {
            "b_id": row.id,
            "b_priority": row.priority if priority is None else priority,
            "b_payload": {**row.payload, **marks[row.node_id, Stage(row.stage)]},
        }
        for row in rows
    ]
    if not changed:
        return set()
    update = sa.update(work_items).where(_c.id == sa.bindparam("b_id"))
    values: dict[str, Any] = {n: sa.bindparam(f"b_{n}") for n in ("priority", "payload")}
    tx.execute(update.where(_c.status == ItemStatus.FAILED).values(values), changed)
    ids = [row["b_id"] for row in changed]
    return {item.node_id for item in queue.requeue(tx, tx.among(_c.id, ids), note=note)}


def _at_work(tx: Tx, node_ids: Sequence[str]) -> set[str]:
    found = sa.select(_c.node_id).where(ACTIVE_ITEM, _c.node_id.in_(node_ids))
    return set(tx.execute(found).scalars()) if node_ids else set()


def _drop_jobs_of_deleted(tx: Tx, queue: WorkQueue, node_ids: set[str]) -> set[str]:
    """Nodes may have gone since they were chosen; those that have. Those that are there now stay
    until this is committed.

    Not locked when they are chosen: jobs come before their nodes, as workers do it, or each could
    wait for the other.
    """
    there = sa.select(nodes.c.id).where(nodes.c.id.in_(node_ids))
    locked = there.order_by(nodes.c.seq).with_for_update(read=True, key_share=True)
    gone = node_ids - set(tx.execute(locked).scalars()) if node_ids else set()
    if gone:
        theirs = _c.node_id.in_(gone)
        queue.cancel(tx, theirs)
        tx.execute(sa.delete(work_items).where(theirs))
    return gone
