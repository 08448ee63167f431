"""Whatever workers do, in whatever order, with old claims and new: the queue's promises hold."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.documents import Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Claim, ItemStatus, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.store.database import Database
from penstock.store.schema import attempts, nodes, work_items
from tests.factories import NOON, Desk, add_node, at, make_fault, make_item, read_rows

pytestmark = pytest.mark.both_databases

ACTIVE = {ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_PENDING}
BUDGETS = {stage: rule.max_attempts for stage, rule in default_rules().items()}
MAX_RESCUES = 1
RECENT_CLAIMS = 4
NEXT = {Stage.TEXT: Stage.EXTRACT, Stage.EXTRACT: Stage.EMBED}
OWNERS = ["ann", "ben", "cleo"]
LEASE = ("lease_owner", "lease_token", "lease_expires_at", "claimed_at")

places = st.integers(min_value=0, max_value=100)


class QueueMachine(RuleBasedStateMachine):
    """Plays the workers, and remembers who may rightly hold which item."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        empty_tables(database)
        self.desk = Desk(database, WorkQueue(default_rules(), max_rescues=MAX_RESCUES))
        with at(database) as tx:
            self.nodes = [add_node(tx) for _ in range(2)]
        self.claims: list[Claim] = []
        self.holder: dict[int, str] = {}
        self.completed: set[int] = set()
        self.recorded: set[int] = set()

    # What people and programs do.

    @rule(
        node=places,
        stage=st.sampled_from(list(NEXT)),
        priority=st.integers(0, 2),
        replace_active=st.booleans(),
    )
    def enqueue(self, node: int, stage: Stage, priority: int, replace_active: bool) -> None:
        item = make_item(self.nodes[node % 2], stage, priority=priority)
        ids = self.desk.enqueue(item, replace_active=replace_active)
        self.recorded.update(ids)
        self.let_go(ids)

    @rule(node=places)
    def cancel(self, node: int) -> None:
        chosen = work_items.c.node_id == self.nodes[node % 2]
        active = {i for i, row in self.rows(chosen).items() if row.status in ACTIVE}
        cancelled = {item.id for item in self.desk.cancel(chosen)}
        assert cancelled == active
        self.let_go(cancelled)

    @rule()
    def requeue(self) -> None:
        before = self.desk.rows()
        for item in self.desk.requeue():
            assert before[item.id].status == ItemStatus.FAILED
            row = self.desk.row(item.id)
            assert (row.attempts, row.rescues) == (0, 0)

    # What time does.

    @rule(seconds=st.sampled_from([1, 11, 45, 61, 400, 2000]))
    def pass_time(self, seconds: int) -> None:
        self.desk.later(seconds)

    @rule()
    def sweep(self) -> None:
        now = NOON + timedelta(seconds=self.desk.second)
        before = self.desk.rows()
        expired = {i for i in self.holder if before[i].lease_expires_at < now}
        swept = self.desk.sweep()
        dead = [verdict.item for verdict in swept.dead]
        assert {item.id for item in (*swept.freed, *swept.rescued, *dead)} == expired
        for item in swept.freed:
            assert self.desk.row(item.id).rescues == before[item.id].rescues
        for item in swept.rescued:
            assert self.desk.row(item.id).rescues == before[item.id].rescues + 1
        self.let_go(expired)

    # What workers do.

    @rule(
        owner=st.sampled_from(OWNERS),
        some=st.sampled_from([tuple(Stage), (Stage.EXTRACT, Stage.EMBED)]),
        limit=st.integers(1, 4),
    )
    def claim(self, owner: str, some: tuple[Stage, ...], limit: int) -> None:
        due = self.due(some)
        claim = self.desk.claim(owner, stages=some, limit=limit)
        assert set(claim.ids) <= due
        assert bool(claim) == bool(due)
        rescues = {item.rescues for item in claim.items}
        assert len(rescues) <= 1
        assert claim.on_trial == (rescues == {MAX_RESCUES})
        assert len(claim.items) == 1 or not claim.on_trial
        self.holder |= dict.fromkeys(claim.ids, claim.token)
        if claim:
            self.claims.append(claim)

    @rule(owner=st.sampled_from(OWNERS))
    def heartbeat(self, owner: str) -> None:
        self.desk.renew(owner)

    @precondition(lambda self: self.claims)
    @rule(which=places)
    def start(self, which: int) -> None:
        self.act(which, lambda claim: self.desk.start(claim))

    @rule(owner=st.sampled_from(OWNERS), kind=st.sampled_from(ErrorClass))
    def claim_and_fail(self, owner: str, kind: ErrorClass) -> None:
        """What is likely in life comes often here too."""
        self.claim(owner, tuple(Stage), 1)
        if self.claims:
            self.fail(0, kind)

    @rule(owner=st.sampled_from(OWNERS))
    def claim_and_die(self, owner: str) -> None:
        """A worker begins and is never heard of again."""
        self.claim(owner, tuple(Stage), 2)
        if self.claims:
            self.start(0)
        self.pass_time(61)
        self.sweep()

    @precondition(lambda self: self.claims)
    @rule(which=places)
    def complete(self, which: int) -> None:
        self.act(which, lambda claim: self.end(claim, self.desk.complete(claim)))

    @precondition(lambda self: self.claims)
    @rule(which=places, leased=st.booleans())
    def go_on(self, which: int, leased: bool) -> None:
        """Complete, and open the next stage of what was completed."""
        claim = self.pick(which)
        same = [item for item in claim.items if item.stage is claim.items[0].stage]
        stage = NEXT.get(claim.items[0].stage)
        if stage is None or len(same) != len(claim.items):
            return
        ours = self.ours(claim)
        following = self.desk.go_on(claim, stage, leased=leased)
        self.end(claim, ours)
        assert {item.node_id for item in following.items} <= {item.node_id for item in ours}
        self.adopt(following)

    @precondition(lambda self: self.claims)
    @rule(which=places, kind=st.sampled_from(list(ErrorClass)))
    def fail(self, which: int, kind: ErrorClass) -> None:
        def fail(claim: Claim) -> None:
            ours = self.ours(claim)
            spent = {item.id: self.desk.row(item.id).attempts for item in ours}
            verdicts = self.desk.fail(claim, make_fault(kind))
            assert [verdict.item for verdict in verdicts] == ours
            cost = 0 if kind is ErrorClass.RATE_LIMITED else 1
            for verdict in verdicts:
                row = self.desk.row(verdict.item.id)
                assert row.attempts == spent[row.id] + cost
                assert (row.status == ItemStatus.FAILED) == verdict.dead
            self.let_go([item.id for item in ours])

        self.act(which, fail)

    @precondition(lambda self: self.claims)
    @rule(which=places)
    def release(self, which: int) -> None:
        """Everything under the token goes back, also what was opened under it later."""
        claim = self.pick(which)
        held = [i for i, token in self.holder.items() if token == claim.token]
        assert self.desk.release(claim) == len(held)
        self.let_go(held)

    # What must hold after every step.

    @invariant()
    def promises_hold(self) -> None:
        rows = self.desk.rows()
        assert set(rows) == self.recorded, "no item is lost or made up"
        complete = {i for i, row in rows.items() if row.status == ItemStatus.COMPLETE}
        assert complete == self.completed, "what is complete stays complete"
        active = [(r.node_id, r.stage) for r in rows.values() if r.status in ACTIVE]
        assert len(active) == len(set(active)), "one active item at most for a node and stage"
        for row in rows.values():
            self.check_lease(row)
            self.check_budgets(row)

    def check_lease(self, row: sa.Row[Any]) -> None:
        """A lease is there while processing, and only then."""
        held = row.status == ItemStatus.PROCESSING
        assert all((getattr(row, name) is not None) == held for name in LEASE)
        assert row.lease_token == self.holder.get(row.id)
        assert held or row.started_at is None or row.status == ItemStatus.COMPLETE

    def check_budgets(self, row: sa.Row[Any]) -> None:
        assert 0 <= row.attempts <= BUDGETS[Stage(row.stage)]
        assert 0 <= row.rescues <= MAX_RESCUES
        assert (row.finished_at is None) == (ItemStatus(row.status) in ACTIVE)

    # The model.

    def pick(self, which: int) -> Claim:
        newest_first = self.claims[: -RECENT_CLAIMS - 1 : -1]
        return newest_first[which % len(newest_first)]

    def ours(self, claim: Claim) -> list[WorkItem]:
        return [item for item in claim.items if self.holder.get(item.id) == claim.token]

    def due(self, some: tuple[Stage, ...]) -> set[int]:
        now = NOON + timedelta(seconds=self.desk.second)
        waiting = (ItemStatus.PENDING, ItemStatus.RETRY_PENDING)
        return {
            i
            for i, row in self.desk.rows().items()
            if row.status in waiting and row.run_at <= now and row.stage in some
        }

    def act(self, which: int, work: Callable[[Claim], Any]) -> None:
        """Let a worker act on a claim: items it does not hold any more must not change."""
        claim = self.pick(which)
        lost = {item.id for item in claim.items} - {item.id for item in self.ours(claim)}
        untouched = self.rows_but(self.ours(claim))
        everything = self.everything()
        work(claim)
        assert self.rows_but([item for item in claim.items if item.id not in lost]) == untouched
        if len(lost) == len(claim.items):
            assert self.everything() == everything

    def end(self, claim: Claim, completed: Sequence[WorkItem]) -> None:
        assert list(completed) == self.ours(claim)
        ids = {item.id for item in completed}
        assert not ids & self.completed
        self.completed |= ids
        self.let_go(ids)

    def adopt(self, following: Claim) -> None:
        """Take note of the items that a worker opened."""
        rows = self.desk.rows()
        self.recorded.update(rows)
        for item_id, row in rows.items():
            if self.holder.get(item_id) not in (None, row.lease_token):
                del self.holder[item_id]
        self.holder |= dict.fromkeys(following.ids, following.token)
        if following:
            self.claims.append(following)

    def let_go(self, ids: Sequence[int] | set[int]) -> None:
        for item_id in ids:
            self.holder.pop(item_id, None)

    def rows(self, condition: sa.ColumnElement[bool]) -> dict[int, sa.Row[Any]]:
        with self.desk.database.read() as tx:
            query = sa.select(work_items).where(condition)
            return {row.id: row for row in tx.execute(query)}

    def rows_but(self, items: Sequence[WorkItem]) -> dict[int, sa.Row[Any]]:
        ids = {item.id for item in items}
        return {i: row for i, row in self.desk.rows().items() if i not in ids}

    def everything(self) -> list[tuple[Any, ...]]:
        return read_rows(self.desk.database, work_items, nodes, attempts)


def empty_tables(database: Database) -> None:
    with database.write() as tx:
        for table in (attempts, work_items, nodes):
            tx.execute(sa.delete(table))


@pytest.mark.full_suite
def test_the_queue_keeps_its_promises_in_any_order(database: Database) -> None:
    few = settings(
        max_examples=80 if database.is_sqlite else 15,
        stateful_step_count=50,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )

    class Machine(QueueMachine):
        def __init__(self) -> None:
            super().__init__(database)

    run_state_machine_as_test(Machine, settings=few)
