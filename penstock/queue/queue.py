"""The states of a work item: enqueue, claim, start, complete, fail, release, cancel, requeue.

Every change a worker makes is guarded by its lease token and by the state it expects, so a worker
that lost its lease changes nothing. All functions run inside the caller's transaction: what they
change and what the caller changes beside it happen together or not at all.
"""

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.queue.claim import (
    NO_RUN,
    ClaimFilter,
    FairClaim,
    SoleTenantCache,
    complete_statement,
    lease_items,
    start_statement,
)
from penstock.queue.insert import as_work_items, insert_items
from penstock.queue.items import (
    ACTIVE_STATUSES,
    NO_LEASE,
    Claim,
    ItemStatus,
    NewItem,
    Outcome,
    QueueMirror,
    StatusChange,
    Verdict,
    WorkItem,
    has_status,
    item_columns,
    item_from,
    record_attempt,
)
from penstock.queue.retry import RetryRules
from penstock.store.database import Tx
from penstock.store.schema import (
    ACTIVE_ITEM,
    ACTIVE_RUN,
    LEASED_ITEM,
    nodes,
    runs,
    work_items,
)

SUPERSEDED = "A later job of the same document and stage completed; there is nothing to retry."
_NODE_STATUS = {Stage.EXTRACT: nodes.c.extraction_status, Stage.EMBED: nodes.c.embedding_status}
_MADE_AT = {Stage.EXTRACT: nodes.c.extracted_at, Stage.EMBED: nodes.c.embedded_at}


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """The rules by which items are leased and retried."""

    rules: RetryRules
    lease_seconds: float = 60.0
    job_timeout_seconds: float = 1800.0
    mirror: QueueMirror | None = None
    """Gets every change of an item's status, after it is committed."""
    max_rescues: int = 5
    """How often an item may be taken from a dead worker; another such death is its own."""
    alone: SoleTenantCache = field(default_factory=SoleTenantCache)

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
        a worker busy with the old one can no longer write. `marks_nodes=False` is for nodes that
        were just written with their statuses.
        """
        if not items:
            return {}
        recorded = insert_items(tx, items, take_over=replace_active)
        if self.mirror is not None:
            self.note_changes(tx, as_work_items(tx, recorded), ItemStatus.PENDING)
        if marks_nodes:
            self._mark_nodes(tx, "queued", [one.new for one in recorded])
        return {(one.new.node_id, one.new.stage): one.id for one in recorded}

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
        served: Collection[str] | None = None,
        only: Collection[int] | None = None,
        token: str | None = None,
        least_suspects: int = 1,
        begins: Callable[[Sequence[WorkItem]], Sequence[WorkItem]] = lambda _: (),
    ) -> Claim:
        """Lease what is due: highest priority first, tenants in turn, then what was interrupted,
        then the oldest. May be empty.

        Items whose workers have died are leased in halves (`least_suspects` or fewer are not
        halved), so that the one which kills them is found in few steps. One without a rescue left
        is leased by itself, and is to be processed while its process does nothing else. A caller
        that has to know the claim's token even if the database's answer is lost passes it. `served`
        are keys of the configurations that the caller serves; None: any. `begins` says which items
        the caller begins at once, without waiting for any other: these are started already.
        """
        token = token or uuid.uuid4().hex
        wanted = ClaimFilter(
            tx.connection.dialect.name,
            tuple(stage for stage in Stage if stage in stages),
            of_run=bool(run_id),
            of_no_run=run_id == NO_RUN,
            not_of_runs=bool(not_runs),
            only_served=served is not None,
            only=only is not None,
        )
        named = {
            "now": tx.now,
            "run": run_id,
            "runs": list(not_runs),
            "served": list(served or ()),
            "ids": list(only or ()),
        }
        claim = FairClaim(tx, wanted, named, self.alone, self.max_rescues, least_suspects)
        if run_id and tenant_id is None:
            tenant_id = tx.execute(sa.select(runs.c.tenant_id).where(runs.c.id == run_id)).scalar()
        rows = claim.find(limit) if tenant_id is None else claim.find_of(tenant_id, limit)
        items = sorted(map(item_from, rows), key=lambda item: (-item.priority, item.id))
        on_trial = any(item.rescues and item.rescues >= self.max_rescues for item in items)
        # One on trial begins when nothing else goes on.
        begun = begins(items) if items and not on_trial else ()
        lease = self._lease(tx, owner, token) | {"status": ItemStatus.PROCESSING}
        started = frozenset(item.id for item in begun)
        lease_items(tx, lease | {"started_at": tx.now}, [*started])
        lease_items(tx, lease, [item.id for item in items if item.id not in started])
        self.note_changes(tx, items, ItemStatus.PROCESSING)
        self._mark_nodes(tx, "processing", begun)
        return Claim(token, owner, tuple(items), started, on_trial)

    def start(self, tx: Tx, claim: Claim, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Mark these as started: from here a worker's death counts as a rescue. Returns the items
        that are still ours; the others need no work."""
        named = _named(tx, claim, items)
        statement = start_statement(tx.connection.dialect.name)
        held = set(tx.execute(statement, named).scalars().all())
        ours = [item for item in items if item.id in held]
        self._mark_nodes(tx, "processing", ours)
        return ours

    def complete(
        self, tx: Tx, claim: Claim, items: Sequence[WorkItem], outcome: Outcome
    ) -> list[WorkItem]:
        """Complete what is still ours; the items whose result may be written."""
        if not items:
            return []
        named = _named(tx, claim, items) | {"how": outcome}
        statement = complete_statement(tx.connection.dialect.name)
        held = set(tx.execute(statement, named).scalars().all())
        ours = [item for item in items if item.id in held]
        self.note_changes(tx, ours, ItemStatus.COMPLETE)
        return ours

    def open_next(
        self, tx: Tx, claim: Claim, items: Sequence[WorkItem], stage: Stage, *, leased: bool
    ) -> Claim:
        """Record the next stage of these documents, already under the same lease if `leased`.

        If the node's next stage is active already, that item starts over as this one, and a worker
        busy with it can no longer write: it began before this stage was done.
        """
        if not items:
            return replace(claim, items=())
        lease = self._lease(tx, claim.owner, claim.token) if leased else NO_LEASE
        status = ItemStatus.PROCESSING if leased else ItemStatus.PENDING
        following = [
            NewItem(
                one.tenant_id,
                one.node_id,
                stage,
                one.run_id,
                one.priority,
                one.payload,
                one.requires,
            )
            for one in items
        ]
        recorded = insert_items(tx, following, take_over=True, status=status, **lease)
        opened = as_work_items(tx, recorded)
        self.note_changes(tx, opened, status)
        if not leased:
            self._mark_nodes(tx, "queued", opened)
            return replace(claim, items=())
        # What was inserted or taken over in this very statement is under the lease it names.
        return replace(claim, items=tuple(sorted(opened, key=lambda item: item.id)))

    def fail(self, tx: Tx, claim: Claim, faults: Sequence[tuple[WorkItem, Fault]]) -> list[Verdict]:
        """Record failures of what is still ours: each waits for its retry, or is dead."""
        c = work_items.c
        verdicts: list[Verdict] = []
        for item, fault in faults:
            spent = item.attempts + (0 if fault.is_free else 1)
            delay = self.rules[item.stage].next_delay(fault, spent)
            status = ItemStatus.FAILED if delay is None else ItemStatus.RETRY_PENDING
            run_at = tx.now + timedelta(seconds=delay or 0.0)
            values = NO_LEASE | {
                "status": status,
                "attempts": spent,
                "run_at": run_at,
                "error_class": fault.kind,
                "error_message": fault.message,
                "updated_at": tx.now,
                "finished_at": tx.now if delay is None else None,
            }
            held = (c.lease_token == claim.token, c.status == ItemStatus.PROCESSING)
            update = sa.update(work_items).where(c.id == item.id, *held)
            if not tx.execute(update.values(values)).rowcount:
                continue
            record_attempt(tx, item, spent, claim.owner, fault)
            now = replace(item, attempts=spent)
            self.note_changes(tx, [now], status, run_at=run_at, fault=fault)
            if delay is not None:
                self._mark_nodes(tx, "queued", [item])
            verdicts.append(Verdict(item, fault, dead=delay is None))
        return verdicts

    def held(self, tx: Tx, claim: Claim) -> list[WorkItem]:
        """What is still under this claim, of any stage."""
        ours = sa.and_(LEASED_ITEM, work_items.c.lease_token == claim.token)
        # Sorted here: to sort by id, SQLite would read the whole table.
        found = [item_from(row) for row in tx.execute(sa.select(*item_columns()).where(ours))]
        return sorted(found, key=lambda item: item.id)

    def release(self, tx: Tx, *tokens: str) -> int:
        """Give back what is still under these claims, at no cost to the items."""
        return self.take_away(tx, work_items.c.lease_token.in_(tokens))

    def take_away(self, tx: Tx, *conditions: sa.ColumnElement[bool]) -> int:
        """Make leased items pending again at no cost to them; their worker can no longer write."""
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

    def renew(self, tx: Tx, *owners: str) -> int:
        """Heartbeat: extend every lease of these owners that is within the hard limit per job."""
        oldest = tx.now - timedelta(seconds=self.job_timeout_seconds)
        # Items that are being committed at this moment need no renewal, and must not be waited for.
        held = (
            sa.select(work_items.c.id)
            .where(LEASED_ITEM, work_items.c.lease_owner.in_(owners))
            .where(work_items.c.claimed_at > oldest)
            .with_for_update(skip_locked=True)
        )
        ids = tx.execute(held).scalars().all()
        renewed = sa.update(work_items).where(LEASED_ITEM, tx.among(work_items.c.id, ids))
        expiry = tx.now + timedelta(seconds=self.lease_seconds)
        return tx.execute(renewed.values(lease_expires_at=expiry)).rowcount

    def cancel(self, tx: Tx, *conditions: sa.ColumnElement[bool]) -> list[WorkItem]:
        """Cancel active items; a worker busy with one can no longer write."""
        active = sa.and_(ACTIVE_ITEM, *conditions)
        items = self._update(tx, active, ItemStatus.CANCELLED, {"finished_at": tx.now})
        for stage, column in _NODE_STATUS.items():
            # A node that had a result before keeps it.
            before = sa.case((_MADE_AT[stage].is_not(None), "ready"), else_=None)
            ids = [item.node_id for item in items if item.stage is stage]
            if ids:
                left = sa.update(nodes).where(tx.among(nodes.c.id, ids))
                tx.execute(left.values({column.name: before}))
        return items

    def requeue(self, tx: Tx, *conditions: sa.ColumnElement[bool], note: str) -> list[WorkItem]:
        """Failed items become pending again, with full budgets and their history kept.

        Those whose work a later item of the same node and stage has done are cancelled instead:
        they are about content that is no longer there.
        """
        self._cancel_superseded(tx, *conditions)
        # Of one node and stage only the newest, and none beside an active one: else the work would
        # be done twice. One that was active a moment ago may be complete by now.
        has_better = sa.or_(
            has_twin(*ACTIVE_STATUSES, later=False),
            has_twin(ItemStatus.FAILED, ItemStatus.COMPLETE, later=True),
        )
        run_is_active = sa.exists().where(runs.c.id == work_items.c.run_id, ACTIVE_RUN)
        values = {
            "attempts": 0,
            "rescues": 0,
            "run_at": tx.now,
            "finished_at": None,
            "error_message": _appended(note),
            # A run that has ended is not changed by what comes after it.
            "run_id": sa.case((run_is_active, work_items.c.run_id), else_=None),
        }
        again = sa.and_(has_status(ItemStatus.FAILED), ~has_better, *conditions)
        items = self._update(tx, again, ItemStatus.PENDING, values)
        self._mark_nodes(tx, "queued", items)
        return items

    def _cancel_superseded(self, tx: Tx, *conditions: sa.ColumnElement[bool]) -> None:
        done = sa.and_(has_status(ItemStatus.FAILED), has_twin(ItemStatus.COMPLETE, later=True))
        note = {"error_message": _appended(SUPERSEDED)}
        self._update(tx, sa.and_(done, *conditions), ItemStatus.CANCELLED, note)

    def _to_pending(self, tx: Tx, which: sa.ColumnElement[bool], values: dict[str, Any]) -> int:
        items = self._update(tx, which, ItemStatus.PENDING, {"interrupted": True} | values)
        self._mark_nodes(tx, "queued", items)
        return len(items)

    def _update(
        self, tx: Tx, which: sa.ColumnElement[bool], status: ItemStatus, values: dict[str, Any]
    ) -> list[WorkItem]:
        """Change these items and end their leases; the items as they are now."""
        changed = NO_LEASE | {"status": status, "updated_at": tx.now} | values
        update = sa.update(work_items).where(which).values(changed).returning(*item_columns())
        items = [item_from(row) for row in tx.execute(update)]
        self.note_changes(tx, items, status)
        return items

    def note_changes(
        self,
        tx: Tx,
        items: Sequence[WorkItem],
        status: ItemStatus,
        *,
        run_at: datetime | None = None,
        fault: Fault | None = None,
    ) -> None:
        """Have the mirror apply this once it is committed."""
        if self.mirror is not None and items:
            changes = [StatusChange(item, status, tx.now, run_at, fault) for item in items]
            tx.after_commit(self.mirror.apply, changes)

    def _lease(self, tx: Tx, owner: str, token: str) -> dict[str, Any]:
        return {
            "lease_owner": owner,
            "lease_token": token,
            "lease_expires_at": tx.now + timedelta(seconds=self.lease_seconds),
            "claimed_at": tx.now,
            "started_at": None,
            "interrupted": False,
            "updated_at": tx.now,
        }

    def _mark_nodes(self, tx: Tx, status: str, items: Sequence[WorkItem | NewItem]) -> None:
        for stage, column in _NODE_STATUS.items():
            ids = [item.node_id for item in items if item.stage is stage]
            if ids:
                tx.execute(
                    sa.update(nodes).where(tx.among(nodes.c.id, ids)).values({column.name: status})
                )


def not_of_runs(run_ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Items of no run, or of another one."""
    if not run_ids:
        return sa.true()
    return sa.or_(work_items.c.run_id.is_(None), work_items.c.run_id.not_in(run_ids))


def has_twin(*statuses: ItemStatus, later: bool) -> sa.ColumnElement[bool]:
    """Whether the same node and stage has such an item, or such a later one, beside this one."""
    twin = work_items.alias("twin")
    same = sa.and_(twin.c.node_id == work_items.c.node_id, twin.c.stage == work_items.c.stage)
    found = sa.exists().where(same, twin.c.status.in_(statuses))
    return found.where(twin.c.id > work_items.c.id) if later else found


def _appended(note: str) -> sa.ColumnElement[str]:
    return sa.func.coalesce(work_items.c.error_message + "\n\n", "") + note


def _appended_once(note: str) -> sa.ColumnElement[str]:
    already = work_items.c.error_message.contains(note, autoescape=True)
    return sa.case((already, work_items.c.error_message), else_=_appended(note))


def _named(tx: Tx, claim: Claim, items: Sequence[WorkItem]) -> dict[str, Any]:
    return {"ids": [item.id for item in items], "token": claim.token, "now": tx.now}
