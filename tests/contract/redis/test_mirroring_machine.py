"""Whatever happens to jobs, and in whatever order it is told: Redis shows the newest that it heard.

The model is a plain history of jobs, of which each node has one active at most.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from penstock.documents import Stage
from penstock.queue.items import ACTIVE_STATUSES, ItemStatus, StatusChange, WorkItem
from penstock.redis.mirror import RedisMirror, job_of_change
from tests.contract.redis.moves import expect_state, make_work, move, read_state

PENDING, PROCESSING, RETRY = ACTIVE_STATUSES
FAILED = ItemStatus.FAILED
NEXT = {
    PENDING: [PROCESSING, PENDING, ItemStatus.CANCELLED],
    PROCESSING: [PENDING, RETRY, ItemStatus.COMPLETE, FAILED, ItemStatus.CANCELLED],
    RETRY: [PROCESSING, PENDING, ItemStatus.CANCELLED],
    FAILED: [PENDING],
}
PLACES = [(node, stage) for node in ("north", "south") for stage in (Stage.EXTRACT, Stage.EMBED)]

choices = st.integers(0, 1000)


class MirrorMachine(RuleBasedStateMachine):
    """Plays the database, and a wire that loses nothing but the order."""

    def __init__(self, client: Redis) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.dispatch = RedisMirror(client)
        self.second = 0
        self.newest: dict[int, StatusChange] = {}
        self.on_the_wire: list[StatusChange] = []
        self.delivered: list[StatusChange] = []
        # By job, the newest that Redis was told, in the order in which that became so.
        self.heard: dict[int, StatusChange] = {}
        self.dead: dict[str, list[str]] = {}

    # What happens to jobs.

    @rule(place=st.sampled_from(PLACES), tenant=st.sampled_from(["acme", "a b"]))
    def enqueue(self, place: tuple[str, Stage], tenant: str) -> None:
        node_id, stage = place
        if not self.is_busy(node_id, stage):
            job_id = len(self.newest) + 1
            item = make_work(job_id, node_id=node_id, stage=stage, tenant_id=tenant)
            self.happen(item, PENDING)

    @precondition(lambda self: self.newest)
    @rule(which=choices, how=choices)
    def go_on(self, which: int, how: int) -> None:
        told = list(self.newest.values())[which % len(self.newest)]
        possible = NEXT.get(told.status, [])
        if told.status is FAILED and self.is_busy(told.item.node_id, told.item.stage):
            return
        if possible:
            self.happen(told.item, possible[how % len(possible)])

    # What the wire does.

    @precondition(lambda self: self.on_the_wire)
    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        self.tell(self.on_the_wire[:count])

    @precondition(lambda self: len(self.on_the_wire) > 1)
    @rule(data=st.data())
    def deliver_shuffled(self, data: st.DataObject) -> None:
        shuffled = data.draw(st.permutations(self.on_the_wire))
        self.tell(shuffled[: data.draw(st.integers(1, len(shuffled)))])

    @precondition(lambda self: self.delivered)
    @rule(which=choices)
    def deliver_again(self, which: int) -> None:
        self.tell([self.delivered[which % len(self.delivered)]])

    # What must hold.

    @invariant()
    def redis_shows_what_it_heard(self) -> None:
        found = read_state(self.client)
        expected = expect_state(list(self.heard.values())) | self.dead
        if self.on_the_wire:
            # Until all is heard, two jobs of a node may seem active.
            found, expected = without_nodes(found), without_nodes(expected)
        assert found == expected

    # The model.

    def is_busy(self, node_id: str, stage: Stage) -> bool:
        return any(
            told.item.node_id == node_id
            and told.item.stage is stage
            and told.status in ACTIVE_STATUSES
            for told in self.newest.values()
        )

    def happen(self, item: WorkItem, status: ItemStatus) -> None:
        self.second += 1
        self.newest[item.id] = move(item, status, self.second)
        self.on_the_wire.append(self.newest[item.id])

    def tell(self, moves: list[StatusChange]) -> None:
        self.dispatch.apply(moves)
        for told in moves:
            if told in self.on_the_wire:
                self.on_the_wire.remove(told)
                self.delivered.append(told)
            self.hear(told)

    def hear(self, told: StatusChange) -> None:
        known = self.heard.get(told.item.id)
        if known and told.at <= known.at:
            return
        self.heard.pop(told.item.id, None)
        self.heard[told.item.id] = told
        if told.status is FAILED:
            job = job_of_change(told)
            self.dead.setdefault(f"{job.queue}:dlq", []).insert(0, job.payload)


def without_nodes(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key.split(":")[1] != "pending"}


def test_redis_shows_the_newest_change_in_any_order(redis_client: Redis) -> None:
    class Machine(MirrorMachine):
        def __init__(self) -> None:
            super().__init__(redis_client)

    run_state_machine_as_test(Machine, settings=settings(max_examples=60, stateful_step_count=40))
