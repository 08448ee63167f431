"""The life of a work item, the same on both databases."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass, StoreError
from penstock.queue.configuration import (
    Configuration,
    UnservedWork,
    list_unserved,
    record_configuration,
)
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.items import Claim, ItemPayload, ItemStatus, Outcome
from penstock.queue.queue import SUPERSEDED, WorkQueue
from penstock.queue.retry import ExponentialDelays, RetryRule, default_rules
from penstock.queue.sweep import INTERRUPTED
from penstock.redis.client import build_redis_client
from penstock.redis.mirror import RedisMirror
from penstock.store.database import Database
from penstock.store.schema import attempts, events, nodes, work_items, workers
from tests.factories import (
    NOON,
    Desk,
    add_node,
    at,
    make_fault,
    make_item,
    node_ids,
    read_node,
    read_rows,
)
from tests.together import run_together, wait_until

pytestmark = pytest.mark.both_databases

PERMANENT = [kind for kind in ErrorClass if kind.permanent]
SPENDING = [k for k in ErrorClass if not k.permanent and k is not ErrorClass.RATE_LIMITED]


@pytest.fixture(
    params=["database alone", pytest.param("with Valkey", marks=pytest.mark.full_suite)]
)
def desk(database: Database, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """The same rules hold with and without a mirror in Redis."""
    if request.param == "database alone":
        yield Desk(database)
        return
    with build_redis_client(request.getfixturevalue("valkey")) as client:
        client.flushall()
        yield Desk(database, WorkQueue(default_rules(), mirror=RedisMirror(client)))


def history_of(desk: Desk, item_id: int) -> list[tuple[int, str, str, str | None]]:
    c = attempts.c
    query = sa.select(c.attempt, c.error_class, c.message, c.owner).where(c.item_id == item_id)
    with desk.database.read() as tx:
        return [tuple(row) for row in tx.execute(query.order_by(c.id))]


# Enqueue


def test_an_item_is_recorded_pending_with_full_budgets(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item(priority=3, run_id=7, payload=ItemPayload(size=5)))
    row = desk.row(item_id)
    assert (row.status, row.attempts, row.rescues) == (ItemStatus.PENDING, 0, 0)
    assert (row.priority, row.run_id, row.payload) == (3, 7, {"size": 5})
    assert (row.run_at, row.created_at, row.finished_at) == (NOON, NOON, None)
    assert row.lease_token is None


def test_many_items_are_recorded_at_once_and_keep_their_order(desk: Desk) -> None:
    items = [make_item() for _ in range(300)]
    ids = desk.enqueue(*items)
    assert ids == sorted(set(ids))
    assert node_ids(desk.claim(limit=300).items) == [item.node_id for item in items]


def test_nothing_to_enqueue_is_no_error(desk: Desk) -> None:
    assert desk.enqueue() == []


def test_a_second_active_item_of_a_node_and_stage_is_not_recorded(desk: Desk) -> None:
    first = make_item()
    [item_id] = desk.enqueue(first)
    assert desk.enqueue(first, make_item(first.node_id, payload=ItemPayload(size=1))) == []
    assert list(desk.rows()) == [item_id]
    assert desk.row(item_id).payload == {}


def test_a_duplicate_inside_one_batch_is_recorded_once(desk: Desk) -> None:
    item = make_item()
    desk.enqueue(item, item)
    assert len(desk.rows()) == 1


def test_the_other_stages_of_a_node_have_items_of_their_own(desk: Desk) -> None:
    text = make_item()
    embed = make_item(text.node_id, Stage.EMBED)
    assert len(desk.enqueue(text, embed)) == 2


def test_a_node_whose_item_has_ended_may_be_enqueued_again(desk: Desk) -> None:
    item = make_item()
    desk.enqueue(item)
    desk.complete(desk.claim())
    desk.enqueue(item)
    desk.cancel()
    desk.enqueue(item)
    assert [row.status for row in desk.rows().values()] == ["complete", "cancelled", "pending"]


def test_new_content_starts_the_active_item_over_and_fences_its_worker(desk: Desk) -> None:
    item = make_item(payload=ItemPayload(raw_key="old"), run_id=1)
    [item_id] = desk.enqueue(item)
    desk.fail(desk.claim(), make_fault())
    old = desk.later(10).claim()
    again = make_item(item.node_id, payload=ItemPayload(raw_key="new"), run_id=2, priority=9)
    assert desk.enqueue(again, replace_active=True) == [item_id]
    row = desk.row(item_id)
    assert (row.status, row.attempts, row.run_id) == (ItemStatus.PENDING, 0, 2)
    assert (row.payload, row.priority, row.lease_token) == ({"raw_key": "new"}, 9, None)
    assert desk.complete(old) == []
    assert desk.claim().items[0].payload == ItemPayload(raw_key="new")


def test_replacing_records_what_is_not_active_yet(desk: Desk) -> None:
    assert len(desk.enqueue(make_item(), make_item(), replace_active=True)) == 2


@pytest.mark.parametrize(
    ("stage", "statuses"),
    [
        (Stage.TEXT, (None, None)),
        (Stage.EXTRACT, ("queued", None)),
        (Stage.EMBED, (None, "queued")),
    ],
)
def test_enqueueing_marks_the_node_as_queued(
    desk: Desk, stage: Stage, statuses: tuple[str | None, str | None]
) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    desk.enqueue(make_item(node_id, stage))
    node = read_node(desk.database, node_id)
    assert (node.extraction_status, node.embedding_status) == statuses


# Claim


def test_a_claim_is_a_lease_with_an_owner_and_an_end(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item())
    claim = desk.later(5).claim("somebody")
    row = desk.row(item_id)
    assert (row.status, row.lease_owner, row.lease_token) == ("processing", "somebody", claim.token)
    assert row.claimed_at == NOON + timedelta(seconds=5)
    assert row.lease_expires_at == NOON + timedelta(seconds=65)
    assert row.started_at is None


def test_higher_priority_comes_first_then_the_oldest(desk: Desk) -> None:
    items = [make_item(priority=priority) for priority in (0, 5, 0, 9, 5)]
    desk.enqueue(*items)
    order = [items[n].node_id for n in (3, 1, 4, 0, 2)]
    assert node_ids(desk.claim().items) == order


def test_a_due_retry_does_not_jump_over_work_of_higher_priority(desk: Desk) -> None:
    desk.enqueue(make_item())
    desk.fail(desk.claim(), make_fault())
    urgent = make_item(priority=1)
    desk.later(60).enqueue(urgent)
    assert node_ids(desk.claim(limit=1).items) == [urgent.node_id]


def test_a_retry_waits_until_it_is_due(desk: Desk) -> None:
    desk.enqueue(make_item(stage=Stage.EXTRACT))
    desk.fail(desk.claim(), make_fault())
    assert not desk.later(9.9).claim()
    assert desk.later(1.2).claim()


def test_only_the_asked_stages_are_claimed(desk: Desk) -> None:
    desk.enqueue(*[make_item(stage=stage) for stage in Stage])
    claim = desk.claim(stages=[Stage.EXTRACT, Stage.EMBED])
    assert [item.stage for item in claim.items] == [Stage.EXTRACT, Stage.EMBED]


def test_only_the_asked_run_is_claimed(desk: Desk) -> None:
    desk.enqueue(make_item(run_id=1), make_item(run_id=2), make_item())
    assert [item.run_id for item in desk.claim(run_id=2).items] == [2]


def test_a_claim_takes_no_more_than_its_limit(desk: Desk) -> None:
    desk.enqueue(*[make_item() for _ in range(5)])
    assert [len(desk.claim(limit=2).items) for _ in range(4)] == [2, 2, 1, 0]


def test_workers_that_claim_at_once_share_no_item(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(100)])

    def claim_all(worker: int) -> list[int]:
        found: list[int] = []
        while claim := desk.claim(f"worker {worker}", limit=7):
            found += claim.ids
        return found

    claimed = [item_id for found in run_together(5, claim_all) for item_id in found]
    assert sorted(claimed) == ids


def test_a_batch_whose_worker_died_is_claimed_in_halves_and_without_others(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(50)])
    desk.start(desk.claim())
    desk.later(61).sweep()
    fresh = desk.enqueue(make_item(), make_item())
    claims = [desk.claim() for _ in range(8)]
    assert [len(claim.items) for claim in claims] == [25, 13, 6, 3, 2, 1, 2, 0]
    assert [number for claim in claims[:6] for number in claim.ids] == ids
    assert claims[6].ids == fresh


def test_rescued_items_are_halved_no_further_than_is_asked_for(desk: Desk) -> None:
    desk.enqueue(*[make_item() for _ in range(20)])
    desk.start(desk.claim())
    desk.later(61).sweep()
    sizes = [len(desk.claim(least_suspects=6).items) for _ in range(4)]
    assert sizes == [10, 6, 4, 0]


def test_an_item_without_a_rescue_left_is_claimed_by_itself_and_not_begun(desk: Desk) -> None:
    desk.queue = replace(desk.queue, max_rescues=1)
    first, second = desk.enqueue(make_item(), make_item())
    desk.start(desk.claim())
    desk.later(61).sweep()
    claims = [desk.claim(least_suspects=6, begins=lambda items: items) for _ in range(2)]
    assert [claim.ids for claim in claims] == [[first], [second]]
    assert all(claim.on_trial and not claim.started for claim in claims)
    # Its process died of something else before its turn came.
    assert len(desk.later(61).sweep().freed) == 2


@pytest.mark.parametrize("place", [0, 17, 49])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_document_that_kills_its_process_is_found_and_takes_no_other_along(
    desk: Desk, place: int, threads: int
) -> None:
    """The process works on as many claims as it has threads, and all of them die together."""
    ids = desk.enqueue(*[make_item() for _ in range(50)])
    at_risk: list[int] = []
    while claims := [claim for _ in range(threads) if (claim := desk.claim(least_suspects=6))]:
        on_trial = [claim for claim in claims if claim.on_trial]
        begun = on_trial[:1] or claims
        for claim in begun:
            desk.start(claim)
        if any(ids[place] in claim.ids for claim in begun):
            at_risk.append(sum(len(claim.items) for claim in begun))
            desk.later(61).sweep()
            continue
        for claim in begun:
            desk.complete(claim)
        for claim in claims:
            desk.release(claim)
    assert desk.row(ids[place]).status == ItemStatus.FAILED
    others = {desk.row(number).status for number in ids if number != ids[place]}
    assert others == {ItemStatus.COMPLETE}
    assert len(at_risk) == desk.queue.max_rescues + 1
    assert at_risk == sorted(at_risk, reverse=True)
    assert at_risk[-1] == 1


def test_a_rescued_item_is_not_claimed_with_others(desk: Desk) -> None:
    desk.enqueue(make_item())
    suspect = desk.claim()
    desk.start(suspect)
    desk.later(61).sweep()
    first, second = desk.enqueue(make_item(priority=1), make_item(priority=1))
    assert desk.claim().ids == [first, second]
    assert desk.claim().ids == suspect.ids


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupted_item_comes_before_the_backlog(desk: Desk, begun: bool) -> None:
    desk.enqueue(make_item())
    text = desk.claim()
    backlog = desk.enqueue(*[make_item() for _ in range(3)])
    following = desk.go_on(text, Stage.EXTRACT)
    if begun:
        desk.start(following)
    desk.later(61).sweep()
    assert desk.claim(limit=1).ids == following.ids
    assert desk.claim().ids == backlog


def test_an_item_that_was_given_back_comes_before_the_backlog_of_its_run(desk: Desk) -> None:
    [first, second] = desk.enqueue(make_item(run_id=7), make_item(run_id=7))
    claim = desk.claim(limit=1)
    following = desk.go_on(claim, Stage.EMBED)
    desk.release(following)
    assert desk.claim(limit=1, run_id=7).ids == following.ids
    assert desk.claim(limit=1, run_id=7).ids == [second]
    assert first < second < following.ids[0]


def test_an_interrupted_item_has_its_turn_once(desk: Desk) -> None:
    """One that fails after its rescue waits like any other that failed."""
    desk.enqueue(make_item())
    text = desk.claim()
    desk.enqueue(make_item())
    desk.release(desk.go_on(text, Stage.EXTRACT))
    again = desk.claim(limit=1)
    desk.fail(again, make_fault())
    assert desk.later(100).claim(limit=1).ids != again.ids


def test_an_interrupted_backfill_still_waits_for_fresh_work(desk: Desk) -> None:
    desk.enqueue(make_item(priority=-10))
    interrupted = desk.claim()
    desk.later(61).sweep()
    [fresh] = desk.enqueue(make_item())
    assert desk.claim(limit=1).ids == [fresh]
    assert desk.claim(limit=1).ids == interrupted.ids


# Start, complete, go on


def test_starting_marks_the_item_and_its_node(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    [item_id] = desk.enqueue(make_item(node_id, Stage.EXTRACT))
    claim = desk.claim()
    desk.later(2).start(claim)
    assert desk.row(item_id).started_at == NOON + timedelta(seconds=2)
    assert read_node(desk.database, node_id).extraction_status == "processing"


def test_a_claim_starts_what_is_begun_at_once_and_nothing_else(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    begun, waiting = desk.enqueue(make_item(node_id, Stage.EMBED), make_item())
    claim = desk.later(2).claim(
        begins=lambda items: [item for item in items if item.stage is Stage.EMBED]
    )
    assert claim.started == {begun}
    assert desk.row(begun).started_at == NOON + timedelta(seconds=2)
    assert desk.row(waiting).started_at is None
    assert read_node(desk.database, node_id).embedding_status == "processing"
    swept = desk.later(61).sweep()
    assert ([item.id for item in swept.rescued], [item.id for item in swept.freed]) == (
        [begun],
        [waiting],
    )


def test_a_completed_item_keeps_its_outcome_and_gives_up_its_lease(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item())
    claim = desk.claim()
    desk.start(claim)
    assert desk.later(3).complete(claim, Outcome.REUSED) == list(claim.items)
    row = desk.row(item_id)
    assert (row.status, row.outcome) == (ItemStatus.COMPLETE, Outcome.REUSED)
    assert (row.started_at, row.finished_at) == (NOON, NOON + timedelta(seconds=3))
    assert (row.lease_token, row.lease_owner, row.lease_expires_at) == (None, None, None)


def test_an_item_is_completed_once(desk: Desk) -> None:
    desk.enqueue(make_item())
    claim = desk.claim()
    assert desk.complete(claim)
    assert desk.complete(claim) == []
    assert desk.fail(claim, make_fault()) == []


def test_part_of_a_claim_can_be_completed(desk: Desk) -> None:
    first, second = desk.enqueue(make_item(), make_item())
    claim = desk.claim()
    with at(desk.database) as tx:
        desk.queue.complete(tx, claim, claim.items[:1], Outcome.DONE)
        assert desk.queue.complete(tx, claim, [], Outcome.DONE) == []
    assert (desk.row(first).status, desk.row(second).status) == ("complete", "processing")


def test_the_next_stage_is_opened_under_the_same_lease(desk: Desk) -> None:
    desk.enqueue(make_item(priority=4, run_id=7, payload=ItemPayload("a")))
    claim = desk.claim()
    following = desk.go_on(claim, Stage.EXTRACT)
    [item] = following.items
    assert (following.token, item.stage) == (claim.token, Stage.EXTRACT)
    assert (item.priority, item.run_id, item.payload) == (4, 7, ItemPayload("a"))
    assert not desk.claim("another")
    assert desk.complete(following) == [item]


def test_a_worker_of_one_stage_leaves_the_next_one_pending(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    desk.enqueue(make_item(node_id))
    assert not desk.go_on(desk.claim(), Stage.EXTRACT, leased=False)
    assert read_node(desk.database, node_id).extraction_status == "queued"
    [item] = desk.claim("another").items
    assert item.stage is Stage.EXTRACT


def test_a_next_stage_that_waits_already_is_not_recorded_twice(desk: Desk) -> None:
    text = make_item(payload=ItemPayload("a"), run_id=2)
    [_, waiting] = desk.enqueue(text, make_item(text.node_id, Stage.EMBED))
    desk.go_on(desk.claim(stages=[Stage.TEXT]), Stage.EMBED, leased=False)
    [item] = desk.claim().items
    assert (item.id, item.run_id, item.payload) == (waiting, 2, ItemPayload("a"))


def test_a_next_stage_held_by_another_worker_gets_the_new_payload(desk: Desk) -> None:
    text = make_item(payload=ItemPayload("a"), run_id=2)
    desk.enqueue(text, make_item(text.node_id, Stage.EMBED, run_id=1))
    stale = desk.claim("other", stages=[Stage.EMBED])
    desk.start(stale)
    following = desk.go_on(desk.claim(), Stage.EMBED)
    closed = [*desk.complete(stale), *desk.complete(following)]
    if not closed:
        closed = desk.complete(desk.claim())
    assert [(item.run_id, item.payload) for item in closed] == [(2, ItemPayload("a"))]


def test_work_of_no_run_leaves_a_runs_item_to_its_run(desk: Desk) -> None:
    """A node is extracted again on request while its run still waits for the vector."""
    extract = make_item(stage=Stage.EXTRACT, payload=ItemPayload("asked for"))
    [_, waiting] = desk.enqueue(
        extract, make_item(extract.node_id, Stage.EMBED, run_id=7, payload=ItemPayload("a"))
    )
    following = desk.go_on(desk.claim(stages=[Stage.EXTRACT]), Stage.EMBED)
    [item] = desk.complete(following)
    assert (item.id, item.run_id, item.payload) == (waiting, 7, ItemPayload("a"))


# Fail


def test_text_is_tried_again_after_half_a_second_two_and_ten(desk: Desk) -> None:
    assert_delays(desk, Stage.TEXT, make_fault(), 0.5, 2, 10)


def test_extraction_waits_twice_as_long_each_time_up_to_a_minute(desk: Desk) -> None:
    patient = default_rules() | {Stage.EXTRACT: RetryRule(9, ExponentialDelays(10, 60))}
    desk.queue = WorkQueue(patient)
    assert_delays(desk, Stage.EXTRACT, make_fault(), 10, 20, 40, 60, 60)


def test_embedding_waits_twice_as_long_each_time_up_to_five_minutes(desk: Desk) -> None:
    patient = default_rules() | {Stage.EMBED: RetryRule(9, ExponentialDelays(10, 300))}
    desk.queue = WorkQueue(patient)
    assert_delays(desk, Stage.EMBED, make_fault(), 10, 20, 40, 80, 160, 300, 300)


@pytest.mark.parametrize("stage", [Stage.TEXT, Stage.EXTRACT])
def test_a_missing_extractor_is_given_half_a_minute(desk: Desk, stage: Stage) -> None:
    assert_delays(desk, stage, make_fault(ErrorClass.EXTRACTOR_MISSING), 30)


def test_a_fault_that_names_a_longer_wait_gets_it(desk: Desk) -> None:
    fault = make_fault(ErrorClass.UNAVAILABLE, retry_after_seconds=120)
    assert_delays(desk, Stage.EXTRACT, fault, 120)


def test_a_rate_limit_waits_as_long_as_the_server_asks(desk: Desk) -> None:
    fault = make_fault(ErrorClass.RATE_LIMITED, retry_after_seconds=42)
    assert_delays(desk, Stage.EXTRACT, fault, 42, 42, 42)


def test_a_rate_limit_without_a_delay_waits_a_little(desk: Desk) -> None:
    assert_delays(desk, Stage.EXTRACT, make_fault(ErrorClass.RATE_LIMITED), 1, 1)


def test_a_rate_limit_never_spends_an_attempt(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item(stage=Stage.EXTRACT))
    for _ in range(20):
        [verdict] = desk.fail(desk.claim(), make_fault(ErrorClass.RATE_LIMITED))
        assert not verdict.dead
        desk.later(2)
    assert desk.row(item_id).attempts == 0
    assert len(history_of(desk, item_id)) == 20


def assert_delays(desk: Desk, stage: Stage, fault: Fault, *seconds: float) -> None:
    """After each failure an item waits so long, or up to a tenth longer."""
    [item_id] = desk.enqueue(make_item(stage=stage))
    for wanted in seconds:
        desk.fail(desk.claim(), fault)
        row = desk.row(item_id)
        delay = (row.run_at - NOON).total_seconds() - desk.second
        assert row.status == ItemStatus.RETRY_PENDING
        assert wanted <= round(delay, 5) <= wanted * 1.1
        desk.later(delay + 0.001)


@pytest.mark.parametrize(
    ("stage", "budget"), [(Stage.TEXT, 4), (Stage.EXTRACT, 2), (Stage.EMBED, 5)]
)
def test_an_item_is_dead_when_its_budget_is_spent(desk: Desk, stage: Stage, budget: int) -> None:
    for kind in SPENDING:
        [item_id] = desk.enqueue(make_item(stage=stage))
        ends = []
        for _ in range(budget):
            [verdict] = desk.fail(desk.claim(), make_fault(kind))
            ends.append(verdict.dead)
            desk.later(400)
        assert ends == [False] * (budget - 1) + [True]
        row = desk.row(item_id)
        assert (row.status, row.attempts, row.error_class) == (ItemStatus.FAILED, budget, kind)
        assert row.lease_token is None
    assert not desk.claim()


def test_a_permanent_fault_is_not_tried_again(desk: Desk) -> None:
    for kind in PERMANENT:
        [item_id] = desk.enqueue(make_item())
        [verdict] = desk.fail(desk.claim(), make_fault(kind, "broken"))
        assert verdict.dead
        row = desk.row(item_id)
        assert (row.status, row.attempts, row.finished_at) == (ItemStatus.FAILED, 1, NOON)
        assert (row.error_class, row.error_message) == (kind, "broken")


def test_a_dead_letter_holds_its_whole_history(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item(stage=Stage.EXTRACT))
    desk.fail(desk.claim("one"), make_fault(ErrorClass.TIMEOUT, "slow"))
    desk.later(60).fail(desk.claim("two"), make_fault(ErrorClass.RATE_LIMITED, "wait"))
    desk.later(60).fail(desk.claim("three"), make_fault(ErrorClass.UNAVAILABLE, "gone"))
    assert desk.row(item_id).status == ItemStatus.FAILED
    assert history_of(desk, item_id) == [
        (1, "timeout", "slow", "one"),
        (1, "rate_limited", "wait", "two"),
        (2, "unavailable", "gone", "three"),
    ]


def test_a_node_that_waits_for_a_retry_is_queued(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    desk.enqueue(make_item(node_id, Stage.EXTRACT))
    claim = desk.claim()
    desk.start(claim)
    desk.fail(claim, make_fault())
    assert read_node(desk.database, node_id).extraction_status == "queued"


@pytest.mark.parametrize("message", ["nul \x00 byte", "half \ud83d a pair", "x" * 100_000])
def test_any_message_can_be_recorded(desk: Desk, message: str) -> None:
    desk.enqueue(make_item())
    [verdict] = desk.fail(desk.claim(), make_fault(message=message))
    assert not verdict.dead


# Release, cancel, requeue


def test_a_released_item_goes_back_at_no_cost(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    [item_id] = desk.enqueue(make_item(node_id, Stage.EXTRACT))
    claim = desk.claim()
    desk.start(claim)
    assert desk.release(claim) == 1
    row = desk.row(item_id)
    assert (row.status, row.attempts, row.rescues) == (ItemStatus.PENDING, 0, 0)
    assert (row.lease_token, row.started_at) == (None, None)
    assert read_node(desk.database, node_id).extraction_status == "queued"
    assert desk.claim().ids == [item_id]


def test_cancelling_ends_what_is_active_and_nothing_else(desk: Desk) -> None:
    done, dead, waiting, busy, other = desk.enqueue(
        *[make_item(run_id=run_id) for run_id in (1, 1, 1, 1, 2)]
    )
    desk.complete(desk.claim(limit=1))
    desk.fail(desk.claim(limit=1), make_fault(ErrorClass.CORRUPTION))
    desk.fail(desk.claim(limit=1), make_fault())
    desk.claim(limit=1)
    cancelled = desk.cancel(work_items.c.run_id == 1)
    assert sorted(item.id for item in cancelled) == [waiting, busy]
    statuses = [desk.row(item_id).status for item_id in (done, dead, waiting, busy, other)]
    assert statuses == ["complete", "failed", "cancelled", "cancelled", "pending"]


def test_a_requeued_item_has_full_budgets_and_its_history(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    [item_id] = desk.enqueue(make_item(node_id, Stage.EXTRACT, payload=ItemPayload("a")))
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION, "broken"))
    [item] = desk.later(100).requeue("Requeued by hand.")
    assert (item.id, item.payload) == (item_id, ItemPayload("a"))
    row = desk.row(item_id)
    assert (row.status, row.attempts, row.rescues) == (ItemStatus.PENDING, 0, 0)
    assert (row.run_at, row.finished_at) == (NOON + timedelta(seconds=100), None)
    assert row.error_message == "broken\n\nRequeued by hand."
    assert len(history_of(desk, item_id)) == 1
    assert read_node(desk.database, node_id).extraction_status == "queued"


def test_only_failed_items_are_requeued(desk: Desk) -> None:
    desk.enqueue(make_item(), make_item())
    desk.complete(desk.claim(limit=1))
    assert desk.requeue() == []


def test_a_failed_item_beside_an_active_one_is_not_requeued(desk: Desk) -> None:
    item = make_item()
    desk.enqueue(item)
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION))
    desk.enqueue(item)
    assert desk.requeue() == []


def test_of_two_failed_items_of_one_node_and_stage_one_is_requeued(desk: Desk) -> None:
    item = make_item()
    for _ in range(2):
        desk.enqueue(item)
        desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION))
    assert len(desk.requeue()) == 1


def test_a_dead_letter_is_superseded_by_a_later_item_that_is_complete(desk: Desk) -> None:
    item = make_item()
    [old] = desk.enqueue(item)
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION, "broken"))
    desk.enqueue(item)
    desk.complete(desk.claim())
    assert desk.requeue() == []
    row = desk.row(old)
    assert row.status == ItemStatus.CANCELLED
    assert row.error_message == f"broken\n\n{SUPERSEDED}"


def test_a_dead_letter_whose_successor_completes_meanwhile_is_not_requeued(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was active when superseded ones were looked for, and is complete a moment later."""
    item = make_item()
    desk.enqueue(item)
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION))
    desk.enqueue(item)
    desk.complete(desk.claim())
    monkeypatch.setattr(WorkQueue, "_cancel_superseded", lambda *_: None)
    assert desk.requeue() == []


def test_a_dead_letter_that_is_newer_than_what_is_complete_is_requeued(desk: Desk) -> None:
    item = make_item()
    desk.enqueue(item)
    desk.complete(desk.claim())
    [dead] = desk.enqueue(item)
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION))
    assert [one.id for one in desk.requeue()] == [dead]


# A lost lease


def lose_to_another(desk: Desk) -> None:
    desk.later(61).sweep()
    assert desk.claim("another")


def lose_to_the_sweep(desk: Desk) -> None:
    desk.later(61).sweep()


def lose_to_a_cancellation(desk: Desk) -> None:
    desk.cancel()


def write_nothing(desk: Desk, claim: Claim) -> None:
    assert desk.complete(claim) == []
    assert desk.fail(claim, make_fault(ErrorClass.CORRUPTION)) == []
    assert not desk.go_on(claim, Stage.EMBED)
    assert not desk.go_on(claim, Stage.EMBED, leased=False)
    assert desk.release(claim) == 0
    desk.start(claim)


@pytest.mark.parametrize("lose", [lose_to_another, lose_to_the_sweep, lose_to_a_cancellation])
def test_a_worker_that_lost_its_lease_writes_nothing(
    desk: Desk, lose: Callable[[Desk], None]
) -> None:
    with at(desk.database) as tx:
        items = [make_item(add_node(tx), Stage.EXTRACT) for _ in range(2)]
    desk.enqueue(*items)
    claim = desk.claim("slow")
    lose(desk)
    tables = (work_items, nodes, attempts, events)
    before = read_rows(desk.database, *tables)
    write_nothing(desk, claim)
    assert read_rows(desk.database, *tables) == before


def test_an_expired_lease_that_nobody_took_may_still_be_used(desk: Desk) -> None:
    desk.enqueue(make_item())
    claim = desk.claim()
    assert desk.later(3600).complete(claim)


# Heartbeat


def test_a_heartbeat_extends_every_lease_of_its_owner(desk: Desk) -> None:
    mine, theirs = desk.enqueue(make_item(), make_item())
    desk.claim("me", limit=1)
    desk.claim("them", limit=1)
    assert desk.later(50).renew("me") == 1
    assert desk.row(mine).lease_expires_at == NOON + timedelta(seconds=110)
    assert desk.row(theirs).lease_expires_at == NOON + timedelta(seconds=60)


def test_a_renewed_lease_is_not_swept(desk: Desk) -> None:
    desk.enqueue(make_item())
    desk.claim("me")
    desk.later(50).renew("me")
    assert not desk.later(50).sweep()


def test_a_job_over_its_hard_limit_is_not_renewed(desk: Desk) -> None:
    desk.queue = WorkQueue(default_rules(), lease_seconds=60, job_timeout_seconds=100)
    desk.enqueue(make_item())
    claim = desk.claim("me")
    assert desk.later(99).renew("me") == 1
    assert desk.later(1).renew("me") == 0
    assert [item.id for item in desk.later(60).sweep().freed] == claim.ids


def test_the_next_stage_has_a_hard_limit_of_its_own(desk: Desk) -> None:
    desk.queue = WorkQueue(default_rules(), lease_seconds=60, job_timeout_seconds=100)
    desk.enqueue(make_item())
    claim = desk.claim("me")
    desk.later(90).go_on(claim, Stage.EXTRACT)
    assert desk.later(90).renew("me") == 1


def test_a_heartbeat_runs_while_its_block_lasts(database: Database) -> None:
    queue = WorkQueue(default_rules())

    def expiry() -> datetime:
        found: datetime = Desk(database).row(item_id).lease_expires_at
        return found

    with Heartbeat(database, queue, every_seconds=0.01) as heartbeat:
        with database.write() as tx:
            [item_id] = queue.enqueue(tx, [make_item()]).values()
            queue.claim(tx, heartbeat.owner)
        first = expiry()
        wait_until(lambda: expiry() > first)
    last = expiry()
    with database.read() as tx:
        assert tx.execute(sa.select(workers.c.status)).scalars().all() == ["stopped"]
    assert expiry() == last


# SQLite has one writer at a time: there, everything waits.
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_heartbeat_does_not_wait_for_what_is_being_written(desk: Desk) -> None:
    desk.enqueue(make_item(), make_item())
    claim = desk.claim()
    with ThreadPoolExecutor(1) as pool, at(desk.database) as tx:
        desk.queue.complete(tx, claim, claim.items[1:], Outcome.DONE)
        assert pool.submit(desk.renew).result(timeout=30) == 1


# Sweep


def test_an_item_that_was_not_begun_goes_back_free(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item())
    desk.claim()
    swept = desk.later(61).sweep()
    assert [item.id for item in swept.freed] == [item_id]
    row = desk.row(item_id)
    assert (row.status, row.rescues, row.attempts) == (ItemStatus.PENDING, 0, 0)
    assert row.error_message == INTERRUPTED


def test_an_item_that_was_begun_counts_a_rescue_and_no_attempt(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_id = add_node(tx)
    [item_id] = desk.enqueue(make_item(node_id, Stage.EMBED))
    desk.start(desk.claim())
    swept = desk.later(61).sweep()
    assert [item.id for item in swept.rescued] == [item_id]
    row = desk.row(item_id)
    assert (row.status, row.rescues, row.attempts) == (ItemStatus.PENDING, 1, 0)
    assert (row.lease_token, row.started_at) == (None, None)
    assert read_node(desk.database, node_id).embedding_status == "queued"


def test_a_live_lease_is_not_swept(desk: Desk) -> None:
    desk.enqueue(make_item())
    desk.claim()
    assert not desk.later(60).sweep()


def test_items_claimed_with_a_poison_document_spend_nothing(desk: Desk) -> None:
    poison, mate = desk.enqueue(make_item(), make_item())
    claim = desk.claim()
    with at(desk.database) as tx:
        desk.queue.start(tx, claim, claim.items[:1])
    desk.later(61).sweep()
    assert (desk.row(poison).rescues, desk.row(mate).rescues) == (1, 0)


def test_the_note_of_an_interruption_is_appended_once(desk: Desk) -> None:
    [item_id] = desk.enqueue(make_item())
    desk.fail(desk.claim(), make_fault(message="slow"))
    for _ in range(3):
        desk.later(61).start(desk.claim())
        desk.later(61).sweep()
    assert desk.row(item_id).error_message == f"slow\n\n{INTERRUPTED}"


def test_an_item_that_keeps_killing_its_workers_is_dead(desk: Desk) -> None:
    desk.queue = replace(desk.queue, max_rescues=2)
    [item_id] = desk.enqueue(make_item())
    for _ in range(2):
        desk.start(desk.claim("victim"))
        assert desk.later(61).sweep().rescued
    desk.start(desk.claim("victim"))
    [verdict] = desk.later(61).sweep().dead
    assert verdict.dead
    row = desk.row(item_id)
    assert (row.status, row.rescues, row.attempts) == (ItemStatus.FAILED, 2, 0)
    assert (row.lease_token, row.finished_at) == (None, NOON + timedelta(seconds=desk.second))
    history = history_of(desk, item_id)
    assert [(kind, owner) for _, kind, _, owner in history] == 3 * [("unknown", "victim")]
    assert [message for _, _, message, _ in history] == [
        "its worker died while at it (rescue 1 of 2)",
        "its worker died while at it (rescue 2 of 2)",
        "its worker died while at it, 3 times: not tried again",
    ]


def test_sweeps_at_once_take_an_item_back_once(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(40)])
    desk.start(desk.claim())
    desk.later(61)
    swept = run_together(4, lambda _: desk.sweep())
    assert sorted(item.id for one in swept for item in one.rescued) == ids
    assert {desk.row(item_id).rescues for item_id in ids} == {1}


# Time


def test_unserved_work_is_that_of_the_stages_and_runs_that_are_asked_for(desk: Desk) -> None:
    own, others = (Configuration(name, True, "hash/words@64", (name,)) for name in ("a", "b"))
    with desk.database.write() as tx:
        keys = [record_configuration(tx, one) for one in (own, others)]
    desk.enqueue(*[make_item(stage=Stage.EXTRACT, run_id=7, requires=key) for key in keys])

    with desk.database.read() as tx:
        found = {stage: list_unserved(tx, own, [stage]) for stage in Stage}
        assert list_unserved(tx, own, [*Stage], not_runs=[7]) == []

    extract = [UnservedWork(others, waits=True)]
    assert found == {Stage.TEXT: [], Stage.EXTRACT: extract, Stage.EMBED: []}


def test_times_come_back_in_utc_whatever_zone_they_went_in_with(desk: Desk) -> None:
    east = timezone(timedelta(hours=9))
    with desk.database.write() as tx:
        node_id = add_node(tx, extracted_at=NOON.astimezone(east))
    found = read_node(desk.database, node_id).extracted_at
    assert (found, found.tzinfo) == (NOON, UTC)


def test_a_time_without_a_zone_is_refused(desk: Desk) -> None:
    naive = datetime(2031, 5, 4, 12, 0)  # noqa: DTZ001 - that is the mistake
    with pytest.raises(StoreError, match="without a zone"), desk.database.write() as tx:
        add_node(tx, extracted_at=naive)


def test_the_clock_of_a_transaction_is_utc(database: Database) -> None:
    before = datetime.now(UTC)
    with database.write() as tx:
        now = tx.now
    assert now.tzinfo is UTC
    assert abs(now - before) < timedelta(seconds=30)
