"""Takes back the items of workers whose leases have expired.

An item that was claimed but not started goes back free. A started one counts a rescue; when its
rescues are used up it is dead: nothing else went on in the process that it has killed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault
from penstock.errors import ErrorClass
from penstock.queue.items import (
    NO_LEASE,
    ItemStatus,
    Verdict,
    WorkItem,
    item_columns,
    item_from,
    record_attempt,
)
from penstock.queue.queue import WorkQueue
from penstock.store.database import Tx
from penstock.store.schema import LEASED_ITEM, work_items

INTERRUPTED = "Job was interrupted by server restart and has been reset to pending."


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep found; `holds` has by its id every item's last owner, and since when."""

    freed: tuple[WorkItem, ...] = ()
    rescued: tuple[WorkItem, ...] = ()
    dead: tuple[Verdict, ...] = ()
    holds: Mapping[int, tuple[str, datetime]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.freed or self.rescued or self.dead)

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(
            self.freed + other.freed,
            self.rescued + other.rescued,
            self.dead + other.dead,
            {**self.holds, **other.holds},
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What one pass of recovery did."""

    items: Swept = field(default_factory=Swept)
    finished_runs: tuple[int, ...] = ()
    elsewhere: bool = False
    """Nothing was looked for, because another process is recovering."""
    again_seconds: float | None = None
    """When a lease ends next, unless it is renewed."""

    def __str__(self) -> str:
        if self.elsewhere:
            return "another worker is at it"
        back = len(self.items.freed) + len(self.items.rescued)
        dead, ended = len(self.items.dead), len(self.finished_runs)
        return f"{back} jobs taken back, {dead} of them dead, {ended} runs finished"


def sweep_expired(
    tx: Tx,
    queue: WorkQueue,
    *,
    limit: int = 500,
    which: sa.ColumnElement[bool] | None = None,
) -> Swept:
    """Take back items whose lease has expired, or those of a condition, at most `limit`."""
    c, max_rescues = work_items.c, queue.max_rescues
    which = c.lease_expires_at < tx.now if which is None else which
    expired = (
        sa.select(*item_columns(), c.started_at, c.claimed_at, c.lease_owner)
        .where(LEASED_ITEM, which)
        # By the index of leases: by id, SQLite would read every item there ever was.
        .order_by(c.lease_expires_at, c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = tx.execute(expired).all()
    unstarted = [row for row in rows if row.started_at is None]
    started = [row for row in rows if row.started_at is not None]
    dead = [row for row in started if row.rescues >= max_rescues]
    rescued = [row for row in started if row.rescues < max_rescues]
    queue.take_back(tx, [row.id for row in unstarted], rescued=False, note=INTERRUPTED)
    queue.take_back(tx, [row.id for row in rescued], rescued=True, note=INTERRUPTED)
    for row in rescued:
        died = f"its worker died while at it (rescue {row.rescues + 1} of {max_rescues})"
        fault = Fault(ErrorClass.UNKNOWN, died)
        record_attempt(tx, item_from(row), row.attempts, row.lease_owner, fault)
    return Swept(
        freed=tuple(item_from(row) for row in unstarted),
        rescued=tuple(item_from(row) for row in rescued),
        dead=tuple(_mark_dead(tx, queue, row) for row in dead),
        holds={row.id: (row.lease_owner, row.started_at or row.claimed_at) for row in rows},
    )


def seconds_to_expiry(tx: Tx) -> float | None:
    """Until the next lease ends, if it is not renewed; None when no item is leased."""
    first = sa.select(sa.func.min(work_items.c.lease_expires_at)).where(LEASED_ITEM)
    expires_at = tx.execute(first).scalar()
    return None if expires_at is None else (expires_at - tx.now).total_seconds()


def _mark_dead(tx: Tx, queue: WorkQueue, row: sa.Row[Any]) -> Verdict:
    item = item_from(row)
    fault = Fault(
        ErrorClass.UNKNOWN,
        f"its worker died while at it, {queue.max_rescues + 1} times: not tried again",
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
    queue.note_changes(tx, [item], ItemStatus.FAILED, fault=fault)
    return Verdict(item, fault, dead=True)
