"""Takes back the items of workers that died, so that only the guilty pay.

An item that was claimed but not begun goes back free. One that had begun counts a rescue; when its
rescues are used up it is dead, because it has very likely been what killed its workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault
from penstock.errors import ErrorClass
from penstock.store.database import Tx
from penstock.store.schema import LEASED_ITEM, work_items
from penstock.work.items import ItemStatus, Verdict, WorkItem
from penstock.work.queue import WorkQueue
from penstock.work.rows import NO_LEASE, item_columns, item_from, record_attempt

INTERRUPTED = "Job was interrupted by server restart and has been reset to pending."


@dataclass(frozen=True, slots=True)
class Hold:
    """Who held an item, and since when."""

    owner: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep found; `holds` says of every item by its id who had it."""

    freed: tuple[WorkItem, ...] = ()
    rescued: tuple[WorkItem, ...] = ()
    dead: tuple[Verdict, ...] = ()
    holds: Mapping[int, Hold] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.freed or self.rescued or self.dead)

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(
            self.freed + other.freed,
            self.rescued + other.rescued,
            self.dead + other.dead,
            {**self.holds, **other.holds},
        )


def sweep_expired(
    tx: Tx,
    queue: WorkQueue,
    *,
    max_rescues: int,
    limit: int = 500,
    which: sa.ColumnElement[bool] | None = None,
) -> Swept:
    """Take back every item whose lease has run out, or those that are named."""
    if which is None:
        which = work_items.c.lease_expires_at < tx.now
    expired = (
        sa.select(
            *item_columns(),
            work_items.c.started_at,
            work_items.c.claimed_at,
            work_items.c.lease_owner,
        )
        .where(LEASED_ITEM, which)
        # By the index of leases: by id, SQLite would read every item there ever was.
        .order_by(work_items.c.lease_expires_at, work_items.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = tx.execute(expired).all()
    unstarted = [row for row in rows if row.started_at is None]
    started = [row for row in rows if row.started_at is not None]
    spent = [row for row in started if row.rescues >= max_rescues]
    spared = [row for row in started if row.rescues < max_rescues]
    queue.take_back(tx, [row.id for row in unstarted], rescued=False, note=INTERRUPTED)
    queue.take_back(tx, [row.id for row in spared], rescued=True, note=INTERRUPTED)
    for row in spared:
        died = f"its worker died while at it (rescue {row.rescues + 1} of {max_rescues})"
        fault = Fault(ErrorClass.UNKNOWN, died)
        record_attempt(tx, item_from(row), row.attempts, row.lease_owner, fault)
    return Swept(
        freed=tuple(item_from(row) for row in unstarted),
        rescued=tuple(item_from(row) for row in spared),
        dead=tuple(_bury(tx, queue, row, max_rescues) for row in spent),
        holds={row.id: Hold(row.lease_owner, row.started_at or row.claimed_at) for row in rows},
    )


def _bury(tx: Tx, queue: WorkQueue, row: sa.Row[Any], max_rescues: int) -> Verdict:
    item = item_from(row)
    fault = Fault(
        ErrorClass.UNKNOWN,
        f"its worker died while at it, {max_rescues + 1} times: not tried again",
    )
    values = NO_LEASE | {
        "status": ItemStatus.FAILED,
        "error_class": fault.kind,
        "error_message": fault.message,
        "updated_at": tx.now,
        "finished_at": tx.now,
    }
    tx.execute(sa.update(work_items).where(work_items.c.id == item.id).values(values))
    record_attempt(tx, item, item.attempts, row.lease_owner, fault)
    queue.note_moves(tx, [item], ItemStatus.FAILED, fault=fault)
    return Verdict(item, fault, dead=True)
