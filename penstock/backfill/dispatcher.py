"""Hands the nodes of a backfill to the work queue, never more of them than may wait there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.backfill.candidates import find_candidates
from penstock.backfill.record import (
    BACKFILL,
    BACKFILL_PRIORITY,
    Backfill,
    BackfillStatus,
    count_active,
    count_own,
    move_cursor,
    read_backfill,
)
from penstock.backfill.selection import Reason
from penstock.documents import Stage
from penstock.faults import reach
from penstock.operations.beginnings import text_payloads
from penstock.operations.placement import Placement, place_nodes
from penstock.pipeline.closing import REFRESH
from penstock.pipeline.payloads import REFERENCE
from penstock.store.database import Database, Tx
from penstock.store.patience import patient
from penstock.store.schema import nodes
from penstock.work.queue import WorkQueue

WINDOW = 1000
NOTE = "Job was requeued by a backfill."
# Of dispatchers alone: "backfill" in ASCII.
_LOCK = int.from_bytes(b"backfill", "big")


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What came of one batch."""

    enqueued: int = 0
    exhausted: bool = False
    """Nothing is left to dispatch."""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Any number may work for the same backfill: each batch is chosen, enqueued and remembered in
    one transaction, and they take turns at it."""

    database: Database
    queue: WorkQueue
    backfill_id: int
    window: int = WINDOW
    """Items of all backfills that may be waiting or under way at once."""

    @patient
    def has_room(self) -> bool:
        """Whether at least half of the window is free: many small batches would cost more."""
        with self.database.read() as tx:
            return count_active(tx) <= self.window // 2

    @patient
    def count_left(self) -> int:
        """Items of this backfill that are not done."""
        with self.database.read() as tx:
            return count_own(tx, self.backfill_id)

    @patient
    def read(self) -> Backfill:
        with self.database.read() as tx:
            return read_backfill(tx, self.backfill_id)

    @patient
    def dispatch(self) -> Dispatched:
        """Enqueue the next nodes, as many as there is room for."""
        with self.database.read() as tx:
            # Looked for without holding anybody up: it may be a long way to the next candidate.
            seen = read_backfill(tx, self.backfill_id)
            numbers = self._find(tx, seen)
        with self.database.write() as tx:
            _wait_for_turn(tx)
            backfill = read_backfill(tx, self.backfill_id)
            if backfill.status is not BackfillStatus.ACTIVE or backfill.has_reached_limit:
                return Dispatched(exhausted=True)
            if backfill.cursor != seen.cursor:
                return Dispatched()  # another dispatcher was quicker
            chosen = numbers[: self._room(tx, backfill)]
            enqueued = self._enqueue(tx, backfill, chosen)
            reach("backfill.uncommitted")
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
        # Asked again: somebody may have done them in between.
        still = find_candidates(backfill.selection, tx.now, after=backfill.cursor)
        rows = tx.execute(still.where(tx.among(nodes.c.seq, numbers)).order_by(nodes.c.seq)).all()
        placements = self._placements(tx, rows)
        placed = place_nodes(tx, self.queue, placements, priority=BACKFILL_PRIORITY, note=NOTE)
        move_cursor(tx, backfill, numbers[-1], len(placed))
        return len(placed)

    def _placements(self, tx: Tx, rows: Sequence[sa.Row[Any]]) -> list[Placement]:
        payloads = text_payloads(tx, [row for row in rows if _begins_with_text(row)])
        return [
            self._placement(row, payloads.get(row.id))
            for row in rows
            # What has no text, and nothing to read it from, nobody can bring up to date.
            if row.has_text or row.id in payloads
        ]

    def _placement(self, row: sa.Row[Any], text: dict[str, Any] | None) -> Placement:
        stage = Stage(row.stage) if text is None else Stage.TEXT
        marks: dict[str, Any] = {BACKFILL: self.backfill_id}
        if _is_stale(row) or (stage is Stage.EMBED and not row.has_vector):
            # What the store holds already is not good enough.
            marks[REFRESH] = True
        return Placement(
            row.tenant_id,
            row.id,
            stage,
            text or {"external_id": row.external_id},
            marks,
            may_be_dead="failed" in (row.extraction_status, row.embedding_status),
        )


def _begins_with_text(row: sa.Row[Any]) -> bool:
    """Also what is to be made anew, and may have changed where it lies."""
    return not row.has_text or (_is_stale(row) and bool((row.given or {}).get(REFERENCE)))


def _is_stale(row: sa.Row[Any]) -> bool:
    return bool(row._mapping.get(Reason.STALE.value))


def _wait_for_turn(tx: Tx) -> None:
    """Dispatchers count what is there before they add to it, one after the other."""
    if tx.connection.dialect.name == "postgresql":
        # SQLite has one writer anyway.
        tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
