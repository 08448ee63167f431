"""Backfills as the store remembers them, so that a second start goes on where the first stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from penstock.backfill.selection import Selection
from penstock.errors import NotFound, UsageError
from penstock.store.database import Database, Tx
from penstock.store.schema import (
    ACTIVE_BACKFILL,
    ACTIVE_ITEM,
    LEASED_ITEM,
    WAITING_ITEM,
    backfills,
    work_items,
)
from penstock.work.items import ItemStatus
from penstock.work.queue import WorkQueue

# Whatever is fresh comes first.
BACKFILL_PRIORITY = -10
# In the payload of an item: the backfill that it belongs to, through all its stages.
BACKFILL = "backfill"
_c = backfills.c
_OF_BACKFILLS = work_items.c.priority == BACKFILL_PRIORITY


class BackfillStatus(StrEnum):
    ACTIVE = "active"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Backfill:
    """How far a backfill has come."""

    id: int
    tenant_id: str | None
    selection: Selection
    status: BackfillStatus
    cursor: int
    """Nodes up to here have been looked at, and are not looked at again."""
    enqueued: int
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def has_reached_limit(self) -> bool:
        limit = self.selection.limit
        return limit is not None and self.enqueued >= limit

    def as_json(self) -> dict[str, Any]:
        target = self.selection.as_json()
        return {
            "id": self.id,
            "tenant": self.tenant_id,
            "status": str(self.status),
            "enqueued": self.enqueued,
            **{name: target[name] for name in ("source", "reasons", "stale_days", "limit")},
            **target["target"],
            "created_at": self.created_at.isoformat(),
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
        }


def open_backfill(database: Database, selection: Selection) -> Backfill:
    """Start a backfill, or take up the active one with the same selection.

    One that wanted the same of another target is over: nobody would ever take it up.
    """
    with database.write() as tx:
        for other in _active(tx, selection.tenant_id):
            if selection.differs_in_target_alone(other.selection):
                _end(tx, other.id, BackfillStatus.ABORTED)
        row = {
            "tenant_id": selection.tenant_id,
            "key": selection.key,
            "selection": selection.as_json(),
            "status": BackfillStatus.ACTIVE,
            "cursor": first_cursor(tx, selection),
            "enqueued": 0,
            "created_at": tx.now,
            "updated_at": tx.now,
        }
        # Somebody who starts the same in this moment has it recorded once, too.
        tx.execute(tx.insert(backfills).values(row).on_conflict_do_nothing())
        found = find_active(tx, selection)
    assert found is not None, "it was recorded, or there already"
    return found


def first_cursor(tx: Tx, selection: Selection) -> int:
    """Where a start would begin: where the active backfill stands, or behind the one that ended
    at its limit, so that a second one with the same limit does the next so many."""
    newest = sa.select(backfills).where(_c.key == selection.key).order_by(_c.id.desc()).limit(1)
    row = tx.execute(newest).first()
    if row is None:
        return 0
    last = _backfill(row)
    goes_on = last.status is BackfillStatus.ACTIVE or (
        last.status is BackfillStatus.FINISHED and last.has_reached_limit
    )
    return last.cursor if goes_on else 0


def find_active(tx: Tx, selection: Selection) -> Backfill | None:
    """The active backfill with this selection, if there is one."""
    row = tx.execute(sa.select(backfills).where(_c.key == selection.key, ACTIVE_BACKFILL)).first()
    return None if row is None else _backfill(row)


def read_backfill(tx: Tx, backfill_id: int, tenant_id: str | None = None) -> Backfill:
    """One backfill; with a tenant, only of this tenant."""
    query = sa.select(backfills).where(_c.id == backfill_id)
    if tenant_id is not None:
        query = query.where(_c.tenant_id == tenant_id)
    row = tx.execute(query).first()
    if row is None:
        raise NotFound(f"there is no backfill {backfill_id}; `penstock backfill list` shows them")
    return _backfill(row)


def list_backfills(tx: Tx, tenant_id: str | None, limit: int) -> list[Backfill]:
    """Newest first, of a tenant or (None) of everybody."""
    query = sa.select(backfills).order_by(_c.id.desc()).limit(limit)
    if tenant_id is not None:
        query = query.where(_c.tenant_id == tenant_id)
    return [_backfill(row) for row in tx.execute(query)]


def move_cursor(tx: Tx, backfill: Backfill, cursor: int, enqueued: int) -> None:
    """Say how far it has come, in the transaction that enqueues."""
    moved = {"cursor": cursor, "enqueued": backfill.enqueued + enqueued, "updated_at": tx.now}
    tx.execute(sa.update(backfills).where(_c.id == backfill.id).values(moved))


def finish_backfill(database: Database, backfill_id: int) -> bool:
    """End it if its items are done; False when they are not, or when it has ended already."""
    with database.write() as tx:
        if count_own(tx, backfill_id):
            return False
        return _end(tx, backfill_id, BackfillStatus.FINISHED)


def abort_backfill(
    database: Database, queue: WorkQueue, backfill_id: int, tenant_id: str | None = None
) -> int:
    """End it now. What waits is cancelled, and the nodes are as they were; what a worker is at is
    let be. How many items were cancelled."""
    with database.write() as tx:
        backfill = read_backfill(tx, backfill_id, tenant_id)
        if not _end(tx, backfill_id, BackfillStatus.ABORTED):
            raise UsageError(f"backfill {backfill_id} is {backfill.status} already")
        waiting = sa.and_(WAITING_ITEM, _of_backfill(backfill_id))
        return len(queue.cancel(tx, waiting))


def count_active(tx: Tx) -> int:
    """Items of all backfills that are not done."""
    counted = sa.select(sa.func.count()).select_from(work_items).where(_OF_BACKFILLS)
    # Apart, so that each finds its own small index.
    return sum(
        int(tx.execute(counted.where(active)).scalar_one())
        for active in (WAITING_ITEM, LEASED_ITEM)
    )


def count_own(tx: Tx, backfill_id: int) -> int:
    """Items of this backfill that are not done, at whatever stage."""
    own = sa.select(sa.func.count()).select_from(work_items).where(_of_backfill(backfill_id))
    return int(tx.execute(own.where(ACTIVE_ITEM)).scalar_one())


def count_failed(tx: Tx, backfill_id: int) -> int:
    """Items of this backfill that are dead letters."""
    own = sa.select(sa.func.count()).select_from(work_items).where(_of_backfill(backfill_id))
    dead = own.where(work_items.c.status == ItemStatus.FAILED)
    return int(tx.execute(dead).scalar_one())


def _of_backfill(backfill_id: int) -> sa.ColumnElement[bool]:
    mark = sa.type_coerce(work_items.c.payload, sa.JSON())[BACKFILL].as_integer()
    # The priority first: it can be told without reading the payload.
    return sa.and_(_OF_BACKFILLS, mark == backfill_id)


def _active(tx: Tx, tenant_id: str | None) -> Sequence[Backfill]:
    query = sa.select(backfills).where(
        ACTIVE_BACKFILL, _c.tenant_id.is_not_distinct_from(tenant_id)
    )
    return [_backfill(row) for row in tx.execute(query)]


def _end(tx: Tx, backfill_id: int, status: BackfillStatus) -> bool:
    ended = {"status": status, "updated_at": tx.now, "finished_at": tx.now}
    active = sa.update(backfills).where(_c.id == backfill_id, ACTIVE_BACKFILL)
    return tx.execute(active.values(ended)).rowcount > 0


def _backfill(row: sa.Row[Any]) -> Backfill:
    return Backfill(
        row.id,
        row.tenant_id,
        Selection.from_json(row.selection),
        BackfillStatus(row.status),
        row.cursor,
        row.enqueued,
        row.created_at,
        row.updated_at,
        row.finished_at,
    )
