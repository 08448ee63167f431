"""The life of a work item: enqueue, claim, start, complete, fail, release, cancel, requeue.

Every change a worker makes is guarded by its lease token and by the state it expects, so a worker
that lost its lease changes nothing. All functions run inside the caller's transaction: what they
change and what the caller changes beside it happen together or not at all.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.store.database import Tx
from penstock.store.schema import (
    ACTIVE_ITEM,
    ACTIVE_RUN,
    LEASED_ITEM,
    nodes,
    runs,
    work_items,
)
from penstock.work.due import wanted_by
from penstock.work.fairness import Alone, Turns
from penstock.work.insertion import insert_items
from penstock.work.items import Claim, ItemStatus, NewItem, Outcome, Verdict, WorkItem
from penstock.work.moves import Dispatch, Move
from penstock.work.retry import RetryRules
from penstock.work.rows import NO_LEASE, item_columns, item_from, record_attempt
from penstock.work.statements import complete_statement, start_statement

_NODE_STATUS = {Stage.EXTRACT: nodes.c.extraction_status, Stage.EMBED: nodes.c.embedding_status}
_MADE_AT = {Stage.EXTRACT: nodes.c.extracted_at, Stage.EMBED: nodes.c.embedded_at}


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """The rules by which items are leased and tried again."""

    rules: RetryRules
    lease_seconds: float = 60.0
    job_timeout_seconds: float = 1800.0
    dispatch: Dispatch | None = None
    """Hears of every move of an item, after it is committed."""
    alone: Alone = field(default_factory=Alone)

    def enqueue(
        self,
        tx: Tx,
        items: Sequence[NewItem],
        *,
        replace_active: bool = False,
        marks_nodes: bool = True,
    ) -> dict[tuple[str, Stage], int]:
        """Record work; the ids of what was recorded, by node and stage.

        A node's stage has at most one active item. By default a second one is not recorded.
        `replace_active` is for new content: the active item starts over with the new payload, and
        a worker busy with the old one is fenced out. Nodes that were just written, saying what
        waits for them, need not be marked.
        """
        if not items:
            return {}
        recorded = insert_items(tx, items, take_over=replace_active)
        if self.dispatch is not None:
            self.note_moves(tx, [one.as_item() for one in recorded], ItemStatus.PENDING)
        keys = {one.key: one.id for one in recorded}
        if marks_nodes:
            self._mark_nodes(tx, "queued", keys)
        return keys

    def claim(
        self,
        tx: Tx,
        owner: str,
        *,
        stages: Collection[Stage] = tuple(Stage),
        limit: int = 64,
        run_id: int | None = None,
        tenant_id: str | None = None,
        not_runs: Collection[int] = (),
        only: Collection[int] | None = None,
        token: str | None = None,
    ) -> Claim:
        """Lease what is due: highest priority first, tenants in turn, then oldest. May be empty.

        An item that has already taken a worker down with it is leased alone, so that it cannot
        take neighbours along the next time. Whoever must know the claim's token even if the answer
        of the database is lost chooses it.
        """
        token = token or uuid.uuid4().hex
        wanted = wanted_by(tx.connection.dialect.name, stages, run_id, not_runs, only)
        named = {"now": tx.now, "run": run_id, "runs": list(not_runs), "ids": list(only or ())}
        lease = self._lease(tx, owner, token) | {"status": ItemStatus.PROCESSING}
        turns = Turns(tx, wanted, named, lease, self.alone)
        if run_id and tenant_id is None:
            tenant_id = tx.execute(sa.select(runs.c.tenant_id).where(runs.c.id == run_id)).scalar()
        rows = turns.lease(limit) if tenant_id is None else turns.lease_of(tenant_id, limit)
        items = self._keep_apart(tx, [item_from(row) for row in rows])
        self.note_moves(tx, items, ItemStatus.PROCESSING)
        return Claim(token, owner, tuple(items))

    def _keep_apart(self, tx: Tx, items: list[WorkItem]) -> list[WorkItem]:
        """One suspect, or any number of unsuspected; the others are given back."""
        ordered = sorted(items, key=lambda item: (-item.priority, item.id))
        kept = _together(ordered)
        back = [item.id for item in ordered if item not in kept] if len(kept) < len(items) else []
        if back:
            self._to_pending(tx, tx.among(work_items.c.id, back), {})
        return kept

    def start(self, tx: Tx, claim: Claim, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Say that work on these begins now; from here a worker's death counts as a rescue.

        The items that are still ours; the others need no work.
        """
        named = _named(tx, claim, items)
        held = set(tx.execute(start_statement(tx.connection.dialect.name), named).scalars())
        ours = [item for item in items if item.id in held]
        self._mark_nodes(tx, "processing", [(item.node_id, item.stage) for item in ours])
        return ours

    def complete(
        self, tx: Tx, claim: Claim, items: Sequence[WorkItem], outcome: Outcome
    ) -> list[WorkItem]:
        """Complete what is still ours; the items whose result may be written."""
        if not items:
            return []
        # When it was started is kept, for "how long did it take".
        named = _named(tx, claim, items) | {"how": outcome}
        held = set(tx.execute(complete_statement(tx.connection.dialect.name), named).scalars())
        ours = [item for item in items if item.id in held]
        self.note_moves(tx, ours, ItemStatus.COMPLETE)
        return ours

    def open_next(
        self, tx: Tx, claim: Claim, items: Sequence[WorkItem], stage: Stage, *, leased: bool
    ) -> Claim:
        """Record the next stage of these documents, already under the same lease if `leased`.

        If the node's next stage is active already, that item starts over as this one, and a worker
        busy with it is fenced out: what it was doing was begun before this stage was done.
        """
        if not items:
            return replace(claim, items=())
        lease = self._lease(tx, claim.owner, claim.token) if leased else NO_LEASE
        status = ItemStatus.PROCESSING if leased else ItemStatus.PENDING
        following = [replace_stage(item, stage) for item in items]
        inserted = insert_items(tx, following, take_over=True, status=status, **lease)
        opened = [one.as_item() for one in inserted]
        self.note_moves(tx, opened, status)
        # What was inserted or taken over in this very statement is under the lease it names.
        ours = opened if leased else []
        if not leased:
            self._mark_nodes(tx, "queued", [(item.node_id, stage) for item in items])
        return replace(claim, items=tuple(sorted(ours, key=lambda item: item.id)))

    def fail(self, tx: Tx, claim: Claim, faults: Sequence[tuple[WorkItem, Fault]]) -> list[Verdict]:
        """Record failures of what is still ours: each waits for its retry, or is dead."""
        verdicts = [self._fail_one(tx, claim, item, fault) for item, fault in faults]
        return [verdict for verdict in verdicts if verdict is not None]

    def held(self, tx: Tx, claim: Claim) -> list[WorkItem]:
        """What is still under this claim, whatever stage it has come to."""
        ours = sa.and_(LEASED_ITEM, work_items.c.lease_token == claim.token)
        found = tx.execute(sa.select(*item_columns()).where(ours).order_by(work_items.c.id))
        return [item_from(row) for row in found]

    def release(self, tx: Tx, *tokens: str) -> int:
        """Give back what is still under these claims, at no cost to the items."""
        ours = sa.and_(LEASED_ITEM, work_items.c.lease_token.in_(tokens))
        return self._to_pending(tx, ours, {})

    def take_away(self, tx: Tx, *conditions: sa.ColumnElement[bool]) -> int:
        """Make pending again what somebody is at, at no cost to the items; they cannot write."""
        return self._to_pending(tx, sa.and_(LEASED_ITEM, *conditions), {})

    def start_over(self, tx: Tx, *conditions: sa.ColumnElement[bool], note: str) -> int:
        """The same with full budgets, and a note why."""
        renewed = {"attempts": 0, "rescues": 0, "error_message": _appended(note)}
        return self._to_pending(tx, sa.and_(LEASED_ITEM, *conditions), renewed)

    def take_back(self, tx: Tx, ids: Sequence[int], *, rescued: bool, note: str) -> int:
        """Make pending again what a dead worker held; a rescue is counted if it had begun."""
        values = {
            "rescues": work_items.c.rescues + (1 if rescued else 0),
            "error_message": _appended_once(note),
        }
        return self._to_pending(tx, sa.and_(LEASED_ITEM, tx.among(work_items.c.id, ids)), values)

    def renew(self, tx: Tx, owner: str) -> int:
        """Heartbeat: extend every lease of this owner that is within the hard limit per job."""
        oldest = tx.now - timedelta(seconds=self.job_timeout_seconds)
        # What a lane is committing at this moment needs no renewal, and must not be waited for.
        held = (
            sa.select(work_items.c.id)
            .where(LEASED_ITEM, work_items.c.lease_owner == owner, work_items.c.claimed_at > oldest)
            .with_for_update(skip_locked=True)
        )
        ids = tx.execute(held).scalars().all()
        renewed = sa.update(work_items).where(LEASED_ITEM, tx.among(work_items.c.id, ids))
        return tx.execute(renewed.values(lease_expires_at=self._expiry(tx))).rowcount

    def cancel(self, tx: Tx, *conditions: sa.ColumnElement[bool]) -> list[WorkItem]:
        """Cancel active items; a worker busy with one can no longer write."""
        cancelled = (
            sa.update(work_items)
            .where(ACTIVE_ITEM, *conditions)
            .values(
                NO_LEASE
                | {"status": ItemStatus.CANCELLED, "updated_at": tx.now, "finished_at": tx.now}
            )
            .returning(*item_columns())
        )
        items = [item_from(row) for row in tx.execute(cancelled)]
        self.note_moves(tx, items, ItemStatus.CANCELLED)
        self._unmark_nodes(tx, items)
        return items

    def requeue(self, tx: Tx, *conditions: sa.ColumnElement[bool], note: str) -> list[WorkItem]:
        """Failed items become pending again, with full budgets and their history kept."""
        # Of one node and stage only the newest: two would double the work, and an active one is it.
        twin = work_items.alias("twin")
        active = twin.c.status.in_(["pending", "processing", "retry_pending"])
        newer = sa.and_(twin.c.status == ItemStatus.FAILED, twin.c.id > work_items.c.id)
        better_twin = (
            sa.exists()
            .where(twin.c.node_id == work_items.c.node_id, twin.c.stage == work_items.c.stage)
            .where(sa.or_(active, newer))
        )
        again = (
            sa.update(work_items)
            .where(work_items.c.status == ItemStatus.FAILED, ~better_twin, *conditions)
            .values(
                NO_LEASE
                | {
                    "status": ItemStatus.PENDING,
                    "attempts": 0,
                    "rescues": 0,
                    "run_at": tx.now,
                    "updated_at": tx.now,
                    "finished_at": None,
                    "error_message": _appended(note),
                    # A run that has ended is not changed by what comes after it.
                    "run_id": sa.case((_its_run_is_active(), work_items.c.run_id), else_=None),
                }
            )
            .returning(*item_columns())
        )
        items = [item_from(row) for row in tx.execute(again)]
        self.note_moves(tx, items, ItemStatus.PENDING)
        self._mark_nodes(tx, "queued", [(item.node_id, item.stage) for item in items])
        return items

    def _fail_one(self, tx: Tx, claim: Claim, item: WorkItem, fault: Fault) -> Verdict | None:
        free = fault.kind is ErrorClass.RATE_LIMITED
        spent = item.attempts + (0 if free else 1)
        delay = self.rules[item.stage].next_delay(fault, spent)
        values = NO_LEASE | {
            "status": ItemStatus.FAILED if delay is None else ItemStatus.RETRY_PENDING,
            "attempts": spent,
            "run_at": tx.now + timedelta(seconds=delay or 0.0),
            "error_class": fault.kind,
            "error_message": fault.message,
            "updated_at": tx.now,
            "finished_at": tx.now if delay is None else None,
        }
        if tx.execute(
            sa.update(work_items).where(_owned(tx, claim, [item.id])).values(values)
        ).rowcount:
            record_attempt(tx, item, spent, claim.owner, fault)
            now = replace(item, attempts=spent)
            self.note_moves(tx, [now], values["status"], run_at=values["run_at"], fault=fault)
            if delay is not None:
                self._mark_nodes(tx, "queued", [(item.node_id, item.stage)])
            return Verdict(item, fault, dead=delay is None)
        return None

    def _to_pending(self, tx: Tx, which: sa.ColumnElement[bool], values: dict[str, Any]) -> int:
        pending = {"status": ItemStatus.PENDING, "updated_at": tx.now}
        given_back = (
            sa.update(work_items)
            .where(which)
            .values(NO_LEASE | pending | values)
            .returning(*item_columns())
        )
        items = [item_from(row) for row in tx.execute(given_back)]
        self.note_moves(tx, items, ItemStatus.PENDING)
        self._mark_nodes(tx, "queued", [(item.node_id, item.stage) for item in items])
        return len(items)

    def note_moves(
        self,
        tx: Tx,
        items: Sequence[WorkItem],
        status: ItemStatus,
        *,
        run_at: datetime | None = None,
        fault: Fault | None = None,
    ) -> None:
        """Have whoever mirrors the items hear of it once it is committed."""
        if self.dispatch is not None and items:
            moves = [Move(item, status, tx.now, run_at, fault) for item in items]
            tx.afterwards(self.dispatch.moved, moves)

    def _lease(self, tx: Tx, owner: str, token: str) -> dict[str, Any]:
        return {
            "lease_owner": owner,
            "lease_token": token,
            "lease_expires_at": self._expiry(tx),
            "claimed_at": tx.now,
            "started_at": None,
            "updated_at": tx.now,
        }

    def _expiry(self, tx: Tx) -> datetime:
        return tx.now + timedelta(seconds=self.lease_seconds)

    def _unmark_nodes(self, tx: Tx, items: Sequence[WorkItem]) -> None:
        """Nothing is under way for these any more: they are what they were made before."""
        for stage, column in _NODE_STATUS.items():
            ids = [item.node_id for item in items if item.stage is stage]
            made = sa.case((_MADE_AT[stage].is_not(None), "ready"), else_=None)
            if ids:
                left = sa.update(nodes).where(tx.among(nodes.c.id, ids))
                tx.execute(left.values({column.name: made}))

    def _mark_nodes(self, tx: Tx, status: str, pairs: Collection[tuple[str, Stage]]) -> None:
        for stage, column in _NODE_STATUS.items():
            ids = [node_id for node_id, item_stage in pairs if item_stage is stage]
            if ids:
                tx.execute(
                    sa.update(nodes).where(tx.among(nodes.c.id, ids)).values({column.name: status})
                )


def not_of_runs(run_ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Items of no run, or of another one."""
    if not run_ids:
        return sa.true()
    return sa.or_(work_items.c.run_id.is_(None), work_items.c.run_id.not_in(run_ids))


def _its_run_is_active() -> sa.ColumnElement[bool]:
    return sa.exists().where(runs.c.id == work_items.c.run_id, ACTIVE_RUN)


def replace_stage(item: WorkItem, stage: Stage) -> NewItem:
    return NewItem(item.tenant_id, item.node_id, stage, item.run_id, item.priority, item.payload)


def _appended(note: str) -> sa.ColumnElement[str]:
    return sa.func.coalesce(work_items.c.error_message + "\n\n", "") + note


def _appended_once(note: str) -> sa.ColumnElement[str]:
    already = work_items.c.error_message.contains(note, autoescape=True)
    return sa.case((already, work_items.c.error_message), else_=_appended(note))


def _named(tx: Tx, claim: Claim, items: Sequence[WorkItem]) -> dict[str, Any]:
    return {"ids": [item.id for item in items], "token": claim.token, "now": tx.now}


def _owned(tx: Tx, claim: Claim, ids: Sequence[int]) -> sa.ColumnElement[bool]:
    return sa.and_(
        tx.among(work_items.c.id, ids),
        work_items.c.lease_token == claim.token,
        work_items.c.status == ItemStatus.PROCESSING,
    )


def _together(items: list[WorkItem]) -> list[WorkItem]:
    """The items one worker takes in one claim: one suspect, or any number of unsuspected."""
    if items and items[0].rescues:
        return items[:1]
    return [item for item in items if not item.rescues]
