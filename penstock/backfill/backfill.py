"""Backfills: recorded, so that a second start continues the first, and enqueued in batches."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from penstock.backfill.selection import Selection, find_candidates
from penstock.documents import Stage
from penstock.errors import NotFound, UsageError
from penstock.failpoints import hit
from penstock.operations.nodes import Placement, enqueue_from_stage, place_node, text_payloads
from penstock.queue.configuration import Configuration, record_configuration
from penstock.queue.items import ACTIVE_STATUSES, ItemPayload, ItemStatus, payload_value
from penstock.queue.queue import WorkQueue
from penstock.queue.stats import count_items
from penstock.runs.up_to_date import Reason
from penstock.search.vectors import look_at_switch, try_switch
from penstock.store.database import Database, Tx
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import (
    ACTIVE_BACKFILL,
    UNDECIDED_CANARY,
    WAITING_ITEM,
    backfills,
    nodes,
    work_items,
)

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.pipeline.worker import Worker

log = logging.getLogger(__name__)
# Below that of fresh work, which comes first.
BACKFILL_PRIORITY = -10
NOTE = "Job was requeued by a backfill."
# The advisory lock of dispatchers: "backfill" in ASCII.
_LOCK = int.from_bytes(b"backfill", "big")
_c = backfills.c
# What works for backfills in this process.
_working: list["_Interruptible"] = []
_OF_BACKFILLS = work_items.c.priority == BACKFILL_PRIORITY


class BackfillStatus(StrEnum):
    ACTIVE = "active"
    FINISHED = "finished"
    ABORTED = "aborted"
    CANARY = "canary"
    """A sample alone; undecided."""
    PROMOTED = "promoted"
    DISCARDED = "discarded"


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
    canary: Mapping[str, Any] | None
    """Of a canary: who extracts, how many documents there are, and how it ended."""

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
            **{name: one for name, one in target["target"].items() if name != "profile_hashes"},
            "created_at": self.created_at.isoformat(),
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
            "canary": self.canary,
        }


def open_backfill(database: Database, selection: Selection) -> Backfill:
    """Start a backfill, or continue the active one with the same selection.

    One with another target and otherwise the same selection is aborted: this one replaces it.
    """
    of_tenant = _c.tenant_id.is_not_distinct_from(selection.tenant_id)
    active = sa.select(backfills).where(ACTIVE_BACKFILL, of_tenant)
    with database.write() as tx:
        for other in map(_backfill, tx.execute(active).all()):
            if selection.differs_in_target_alone(other.selection):
                _end(tx, other.id, BackfillStatus.ABORTED)
        record_backfill(tx, selection, BackfillStatus.ACTIVE, cursor=first_cursor(tx, selection))
        found = find_active(tx, selection)
    assert found is not None, "it was recorded, or there already"
    return found


def record_backfill(
    tx: Tx, selection: Selection, status: BackfillStatus, **values: Any
) -> int | None:
    """Its id; None when there is one with this selection and status: two that start the same at
    once record it once."""
    row = {
        "tenant_id": selection.tenant_id,
        "key": selection.key,
        "selection": selection.as_json(),
        "status": status,
        "cursor": 0,
        "enqueued": 0,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    inserted = tx.insert(backfills).values(row | values).on_conflict_do_nothing()
    return tx.execute(inserted.returning(_c.id)).scalar_one_or_none()


def first_cursor(tx: Tx, selection: Selection) -> int:
    """Where a start would begin: where the active backfill stands, or behind the one that ended
    at its limit, so that a second one with the same limit does the next so many."""
    same = sa.select(backfills).where(_c.key == selection.key, _c.canary.is_(None))
    row = tx.execute(same.order_by(_c.id.desc()).limit(1)).first()
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
    """Newest first, of a tenant or (None) of all."""
    query = sa.select(backfills).order_by(_c.id.desc()).limit(limit)
    if tenant_id is not None:
        query = query.where(_c.tenant_id == tenant_id)
    return [_backfill(row) for row in tx.execute(query)]


def finish_backfill(database: Database, backfill_id: int) -> bool:
    """End it if its items are done; False when they are not, or when it has ended already."""
    with database.write() as tx:
        if count_own(tx, backfill_id):
            return False
        return _end(tx, backfill_id, BackfillStatus.FINISHED)


def abort_backfill(
    database: Database, queue: WorkQueue, backfill_id: int, tenant_id: str | None = None
) -> int:
    """End it now. Waiting jobs are cancelled, and their nodes stay as they were; running jobs
    finish. How many jobs were cancelled."""
    with database.write() as tx:
        backfill = read_backfill(tx, backfill_id, tenant_id)
        if not _end(tx, backfill_id, BackfillStatus.ABORTED):
            if backfill.status is BackfillStatus.CANARY:
                raise UsageError(decide_first(backfill_id))
            raise UsageError(f"backfill {backfill_id} is {backfill.status} already")
        waiting = sa.and_(WAITING_ITEM, _of_backfill(backfill_id))
        return len(queue.cancel(tx, waiting))


def undecided_canaries(tx: Tx, tenant_id: str | None) -> list[Backfill]:
    """Those that hold back outdated documents of this tenant, or (None) of any."""
    query = sa.select(backfills).where(UNDECIDED_CANARY).order_by(_c.id)
    if tenant_id is not None:
        query = query.where(sa.or_(_c.tenant_id.is_(None), _c.tenant_id == tenant_id))
    return [_backfill(row) for row in tx.execute(query)]


def decide_first(canary_id: int) -> str:
    """What to do about an undecided canary."""
    return (
        f"canary {canary_id} is undecided: `penstock backfill promote {canary_id}` or `penstock "
        f"backfill discard {canary_id}` first"
    )


def waiting_for(canary_id: int) -> str:
    """What is not done until a canary is decided."""
    return f"outdated documents are left as they are: {decide_first(canary_id)}"


def count_active(tx: Tx) -> int:
    """Items of all backfills that are not done."""
    return count_items(tx, _OF_BACKFILLS, statuses=ACTIVE_STATUSES).total()


def count_own(tx: Tx, backfill_id: int) -> int:
    """Items of this backfill that are not done, at whatever stage."""
    return count_items(tx, _of_backfill(backfill_id), statuses=ACTIVE_STATUSES).total()


def count_failed(tx: Tx, backfill_id: int) -> int:
    """Items of this backfill that are dead letters."""
    return count_items(tx, _of_backfill(backfill_id), statuses=(ItemStatus.FAILED,)).total()


def _of_backfill(backfill_id: int) -> sa.ColumnElement[bool]:
    mark = payload_value("backfill").as_integer()
    # The priority first: it is known without reading the payload.
    return sa.and_(_OF_BACKFILLS, mark == backfill_id)


def _end(tx: Tx, backfill_id: int, status: BackfillStatus) -> bool:
    ended = {"status": status, "updated_at": tx.now, "finished_at": tx.now}
    active = sa.update(backfills).where(_c.id == backfill_id, ACTIVE_BACKFILL)
    return tx.execute(active.values(ended)).rowcount > 0


def _backfill(row: sa.Row[Any]) -> Backfill:
    values = {name: getattr(row, name) for name in Backfill.__dataclass_fields__}
    values["selection"] = Selection.from_json(row.selection)
    return Backfill(**values | {"status": BackfillStatus(row.status)})


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What came of one batch."""

    enqueued: int = 0
    exhausted: bool = False
    """Nothing is left to dispatch."""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Enqueues a backfill, a batch at a time. Several may work for the same backfill: each batch is
    chosen, enqueued and recorded in one transaction, one dispatcher after the other."""

    database: Database
    queue: WorkQueue
    backfill_id: int
    window: int
    """Items of all backfills that may be waiting or under way at once."""
    configuration: Configuration | None = None
    """What must do the work; None: any worker."""

    @retry_while_unavailable
    def has_room(self) -> bool:
        """Whether at least half of the window is free: many small batches would cost more."""
        with self.database.read() as tx:
            return count_active(tx) <= self.window // 2

    @retry_while_unavailable
    def count_left(self) -> int:
        """Items of this backfill that are not done."""
        with self.database.read() as tx:
            return count_own(tx, self.backfill_id)

    @retry_while_unavailable
    def read(self) -> Backfill:
        with self.database.read() as tx:
            return read_backfill(tx, self.backfill_id)

    @retry_while_unavailable
    def dispatch(self) -> Dispatched:
        """Enqueue the next nodes, as many as there is room for."""
        with self.database.read() as tx:
            # Found without a lock: it may be a long way to the next candidate.
            seen = read_backfill(tx, self.backfill_id)
            numbers = self._find(tx, seen)
        with self.database.write() as tx:
            # One dispatcher after the other: each counts what is there before it adds to it.
            if tx.is_postgres:  # SQLite has one writer anyway
                tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            backfill = read_backfill(tx, self.backfill_id)
            if backfill.status is not BackfillStatus.ACTIVE or backfill.has_reached_limit:
                return Dispatched(exhausted=True)
            if backfill.cursor != seen.cursor:
                return Dispatched()  # another dispatcher has enqueued these
            chosen = numbers[: self._room(tx, backfill)]
            enqueued = self._enqueue(tx, backfill, chosen)
            hit("backfill.uncommitted")
        return Dispatched(enqueued, exhausted=not numbers)

    def _find(self, tx: Tx, backfill: Backfill) -> Sequence[int]:
        found = find_candidates(backfill.selection, tx.now, after=backfill.cursor)
        further = found.with_only_columns(nodes.c.seq).order_by(nodes.c.seq)
        return tx.execute(further.limit(self.window)).scalars().all()

    def _room(self, tx: Tx, backfill: Backfill) -> int:
        room = max(0, self.window - count_active(tx))
        limit = backfill.selection.limit
        return room if limit is None else min(room, limit - backfill.enqueued)

    def _enqueue(self, tx: Tx, backfill: Backfill, numbers: Sequence[int]) -> int:
        if not numbers:
            return 0
        # Asked again: they may have been done in between.
        still = find_candidates(backfill.selection, tx.now, after=backfill.cursor)
        rows = tx.execute(still.where(tx.among(nodes.c.seq, numbers)).order_by(nodes.c.seq)).all()
        payloads = text_payloads(tx, [row for row in rows if _begins_with_text(row)])
        placements = [
            self._placement(row, payloads.get(row.id))
            for row in rows
            # What has no text, and nothing to read it from, cannot be brought up to date.
            if row.has_text or row.id in payloads
        ]
        requires = None
        if self.configuration is not None:
            requires = record_configuration(tx, self.configuration)
        placed = enqueue_from_stage(
            tx,
            self.queue,
            placements,
            priority=BACKFILL_PRIORITY,
            note=NOTE,
            requires=requires,
        )
        enqueued = backfill.enqueued + len(placed)
        moved = {"cursor": numbers[-1], "enqueued": enqueued, "updated_at": tx.now}
        tx.execute(sa.update(backfills).where(_c.id == backfill.id).values(moved))
        return len(placed)

    def _placement(self, row: sa.Row[Any], text: ItemPayload | None) -> Placement:
        placement = place_node(row, Stage(row.stage), text)
        return replace(
            placement,
            backfill=self.backfill_id,
            # What the store holds already is not good enough.
            refresh=placement.refresh or _is_stale(row),
            may_be_dead="failed" in (row.extraction_status, row.embedding_status),
        )


def _begins_with_text(row: sa.Row[Any]) -> bool:
    """Also what is to be made anew, and may have changed at its source."""
    return not row.has_text or (_is_stale(row) and bool((row.given or {}).get("payload_ref")))


def _is_stale(row: sa.Row[Any]) -> bool:
    return bool(row._mapping.get(Reason.STALE.value))


def dispatcher(app: "App", backfill: Backfill) -> Dispatcher:
    """A dispatcher that leaves at least half of the queue to fresh work, which the intake would
    refuse otherwise."""
    embedding = app.settings.embedding
    room = min(embedding.queue_max_depth, embedding.tenant_max_pending) // 2
    window = max(1, min(app.settings.backfill_window, room))
    return Dispatcher(app.database, app.queue, backfill.id, window, app.configuration)


def switch_vectors(app: "App") -> str:
    """Let search use the vectors that are made now, if none is missing; how it stands."""
    with app.database.read() as tx:
        before = look_at_switch(tx, app.embedder.identity)
    after = retry_while_unavailable(try_switch)(app.database, app.embedder.identity)
    if not after.done:
        log.warning("%s", after)
    elif not before.done:
        log.info("search has changed over from %s to %s", before.active, after.active)
    return str(after)


class _Interruptible(NamedTuple):
    """How to stop what works for a backfill, and how to do so when the process ends now."""

    interrupt: Callable[[], None]
    leave: Callable[[], None]


@contextmanager
def interruptible(worker: "Worker") -> Iterator[None]:
    """Within the block, the two functions below reach this worker of a backfill."""

    def interrupt() -> None:
        worker.stop()
        worker.cut_off()

    def leave() -> None:
        worker.stop()
        with worker.database.write() as tx:
            worker.queue.take_away(tx, work_items.c.lease_owner == worker.heartbeat.owner)

    with interruptible_by(interrupt, leave):
        yield


@contextmanager
def interruptible_by(interrupt: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Within the block, the two functions below call these."""
    working = _Interruptible(interrupt, leave)
    _working.append(working)
    try:
        yield
    finally:
        _working.remove(working)


def interrupt_backfills() -> None:
    """Stop the backfills of this process: what is under way is cut off and given back."""
    for working in _working.copy():
        working.interrupt()


def leave_backfills() -> None:
    """The same for a process that ends now: its threads will not give back what they hold."""
    for working in _working.copy():
        working.leave()
