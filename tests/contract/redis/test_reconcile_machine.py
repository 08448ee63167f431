"""Whatever happens to the database, to Redis and to messages between them: one pass mends it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from penstock.documents import Stage
from penstock.queue.items import Claim, StatusChange
from penstock.redis.keys import Queue
from penstock.store.database import Database
from penstock.store.schema import work_items
from tests.contract.redis.moves import read_state
from tests.contract.redis.scene import Scene
from tests.contract.test_work_queue_machine import empty_tables
from tests.factories import add_node, at, make_fault, make_item

STAGES = [Stage.EXTRACT, Stage.EMBED]
KEYS = [f"{Queue.of(stage)}:{name}" for stage in STAGES for name in ("queue", "retry", "jobs")]

choices = st.integers(0, 1000)


class ReconcileMachine(RuleBasedStateMachine):
    """Plays the workers, a wire that loses and delays, and somebody with `redis-cli`."""

    def __init__(self, database: Database, client: Redis) -> None:
        super().__init__()
        empty_tables(database)
        client.flushall()
        self.client = client
        self.scene = Scene(database, client)
        self.claims: list[Claim] = []
        self.late: list[StatusChange] = []

    @initialize()
    def make_nodes(self) -> None:
        with at(self.scene.database) as tx:
            self.nodes = [add_node(tx) for _ in range(3)]

    # What happens in the database.

    @rule(node=st.integers(0, 2), stage=st.sampled_from(STAGES), again=st.booleans())
    def enqueue(self, node: int, stage: Stage, again: bool) -> None:
        tenant_id = f"tenant-{node % 2}"
        item = make_item(self.nodes[node], stage, tenant_id=tenant_id, priority=node)
        self.happen(lambda: self.scene.desk.enqueue(item, replace_active=again))

    @rule(stage=st.sampled_from(STAGES), limit=st.integers(1, 2), node=st.integers(0, 1))
    def claim(self, stage: Stage, limit: int, node: int) -> None:
        def claim() -> None:
            self.claims.append(self.scene.claim(stage, limit, f"tenant-{node}"))

        self.happen(claim)

    @precondition(lambda self: self.claims)
    @rule(which=choices, how=st.sampled_from(["complete", "fail", "release"]))
    def end(self, which: int, how: str) -> None:
        claim = self.claims.pop(which % len(self.claims))
        desk = self.scene.desk
        ends: dict[str, Callable[[], Any]] = {
            "complete": lambda: desk.complete(claim),
            "fail": lambda: desk.fail(claim, make_fault()),
            "release": lambda: desk.release(claim),
        }
        self.happen(ends[how])

    @rule(node=st.integers(0, 2))
    def cancel(self, node: int) -> None:
        self.happen(lambda: self.scene.desk.cancel(work_items.c.node_id == self.nodes[node]))

    @rule()
    def requeue(self) -> None:
        self.happen(self.scene.desk.requeue)

    # What happens to messages and to Redis.

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def deliver_late(self, data: st.DataObject) -> None:
        shuffled = data.draw(st.permutations(self.late))
        self.scene.dispatch.apply(shuffled)
        self.late = []

    @precondition(lambda self: self.late)
    @rule()
    def lose(self) -> None:
        self.late = []

    @rule()
    def wipe(self) -> None:
        self.client.flushall()

    @rule(which=choices)
    def delete_a_key(self, which: int) -> None:
        keys = sorted(self.client.scan_iter())
        if keys:
            self.client.delete(keys[which % len(keys)])

    @rule(key=st.sampled_from(KEYS))
    def change_the_kind(self, key: str) -> None:
        self.client.set(key, "somebody else's")

    @rule(number=st.integers(-3, 3), node=st.integers(0, 1))
    def drift(self, number: int, node: int) -> None:
        self.client.set(f"extraction:tenant:pending:tenant-{node}", number)

    @rule(node=st.integers(0, 2), job=st.integers(0, 9))
    def name_a_job(self, node: int, job: int) -> None:
        self.client.set(f"extraction:pending:{self.nodes[node]}", job)

    # What must hold.

    @rule()
    def reconcile(self) -> None:
        self.scene.reconcile()
        assert unordered(read_state(self.client)) == unordered(self.scene.expected())

    @rule()
    def reconcile_twice(self) -> None:
        self.scene.reconcile()
        assert not self.scene.reconcile()

    def happen(self, do: Callable[[], Any]) -> None:
        """The messages are on their way; whether they arrive is seen later."""
        self.late += self.scene.change(do)


def unordered(state: dict[str, Any]) -> dict[str, Any]:
    """What is told late stands in a queue where it came in. The DLQ is what it was."""
    return {
        key: sorted(value) if key.endswith(":queue") else value
        for key, value in state.items()
        if not key.endswith(":dlq")
    }


@pytest.mark.both_databases
def test_one_pass_makes_redis_follow_the_database(database: Database, redis_client: Redis) -> None:
    few = settings(
        max_examples=60 if database.is_sqlite else 8,
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )

    class Machine(ReconcileMachine):
        def __init__(self) -> None:
            super().__init__(database, redis_client)

    run_state_machine_as_test(Machine, settings=few)
