"""Every move of a work item shows in Redis, under the keys that operators know."""

import json
import random

import pytest
from redis import Redis

from penstock.documents import Stage
from penstock.queue.items import ItemStatus, StatusChange
from penstock.redis.keys import Queue
from penstock.redis.mirror import RedisMirror
from penstock.redis.reconcile import queue_depths
from tests.contract.redis.moves import (
    due,
    expect_payload,
    expect_state,
    make_work,
    move,
    read_jobs,
    read_retries,
    read_state,
)
from tests.factories import NOON, TENANT

PENDING, PROCESSING, RETRY = ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_PENDING
COMPLETE, FAILED, CANCELLED = ItemStatus.COMPLETE, ItemStatus.FAILED, ItemStatus.CANCELLED
COUNTER = f"extraction:tenant:pending:{TENANT}"


@pytest.fixture
def dispatch(redis_client: Redis) -> RedisMirror:
    return RedisMirror(redis_client)


@pytest.mark.parametrize(
    ("stage", "queue"),
    [(Stage.TEXT, "text"), (Stage.EXTRACT, "extraction"), (Stage.EMBED, "embedding")],
)
def test_each_stage_has_its_queue(
    dispatch: RedisMirror, redis_client: Redis, stage: Stage, queue: str
) -> None:
    item = make_work(stage=stage)
    dispatch.apply([move(item, PENDING)])
    assert read_state(redis_client) == {
        f"{queue}:queue": [expect_payload(item)],
        f"{queue}:pending:node-1": "1",
        f"{queue}:tenant:pending:{TENANT}": "1",
    }
    assert queue_depths(redis_client)[queue] == {"queue": 1, "retry": 0, "dlq": 0}


def test_new_jobs_come_in_at_the_left(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([move(make_work(1), PENDING), move(make_work(2), PENDING)])
    dispatch.apply([move(make_work(3), PENDING, 1)])
    assert read_jobs(redis_client, "extraction:queue") == [3, 2, 1]


def test_a_retry_waits_by_when_it_is_due(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([move(make_work(), PENDING), move(make_work(), PROCESSING, 1)])
    tried = make_work(attempts=1)
    dispatch.apply([move(tried, RETRY, 2.25)])
    told = move(tried, RETRY, 2.25)
    assert read_retries(redis_client, "extraction:retry") == {
        expect_payload(tried): due(told.at).timestamp()
    }
    assert redis_client.exists("extraction:queue") == 0


def test_a_claimed_job_still_counts(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([move(make_work(), PENDING)])
    dispatch.apply([move(make_work(), PROCESSING, 1)])
    assert read_state(redis_client) == {"extraction:pending:node-1": "1", COUNTER: "1"}


@pytest.mark.parametrize("end", [COMPLETE, CANCELLED])
@pytest.mark.parametrize("before", [PENDING, PROCESSING, RETRY])
def test_an_ended_job_leaves_nothing(
    dispatch: RedisMirror, redis_client: Redis, before: ItemStatus, end: ItemStatus
) -> None:
    dispatch.apply([move(make_work(), before)])
    dispatch.apply([move(make_work(), end, 1)])
    assert read_state(redis_client) == {}


def test_a_dead_job_is_in_the_dlq_with_its_error(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    dispatch.apply([move(make_work(), PENDING), move(make_work(attempts=3), FAILED, 1)])
    assert list(read_state(redis_client)) == ["extraction:dlq"]
    [text] = redis_client.lrange("extraction:dlq", 0, -1)
    dead = json.loads(text)
    assert dead["job_id"] == 1
    assert dead["attempts"] == 3
    assert dead["error"] == "timeout: it took too long"
    assert dead["failed_at"] == "2031-05-04T12:00:01+00:00"


def test_the_dlq_keeps_the_newest_ten_thousand(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([move(make_work(number), FAILED, number) for number in range(1, 10_006)])
    dead = read_jobs(redis_client, "extraction:dlq")
    assert len(dead) == 10_000
    assert (dead[0], dead[-1]) == (10_005, 6)


def test_a_cleared_dlq_stays_cleared(dispatch: RedisMirror, redis_client: Redis) -> None:
    dead = [move(make_work(), FAILED, 1)]
    dispatch.apply(dead)
    redis_client.delete("extraction:dlq")
    dispatch.apply(dead)
    assert read_state(redis_client) == {}


def test_a_job_that_fails_again_after_a_requeue_is_in_the_dlq_again(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    item = make_work()
    dispatch.apply([move(item, FAILED, 1)])
    dispatch.apply([move(item, PENDING, 2)])
    assert read_jobs(redis_client, "extraction:queue") == [1]
    dispatch.apply([move(item, FAILED, 3)])
    assert read_jobs(redis_client, "extraction:dlq") == [1, 1]


def test_applying_a_change_twice_changes_nothing(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    told = [
        move(make_work(1), PENDING),
        move(make_work(2), PENDING),
        move(make_work(1), FAILED, 1),
        move(make_work(3), RETRY, 1),
    ]
    dispatch.apply(told)
    once = read_state(redis_client)
    dispatch.apply(told)
    for one in told:
        dispatch.apply([one])
    assert read_state(redis_client) == once


@pytest.mark.parametrize("end", [COMPLETE, CANCELLED, FAILED])
def test_a_late_change_does_not_bring_back_an_ended_job(
    dispatch: RedisMirror, redis_client: Redis, end: ItemStatus
) -> None:
    item = make_work()
    dispatch.apply([move(item, end, 2)])
    before = read_state(redis_client)
    dispatch.apply([move(item, PENDING, 0), move(item, PROCESSING, 1)])
    assert read_state(redis_client) == before


def test_of_changes_at_one_moment_the_last_applied_holds(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    item = make_work()
    dispatch.apply([move(item, PENDING), move(item, PROCESSING), move(item, PENDING)])
    assert read_jobs(redis_client, "extraction:queue") == [1]
    dispatch.apply([move(item, PROCESSING)])
    assert redis_client.exists("extraction:queue") == 0


def test_a_node_key_names_the_newest_job_in_any_order_of_changes(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    first, second = make_work(1, node_id="node"), make_work(2, node_id="node")
    dispatch.apply([move(second, PENDING, 5)])
    dispatch.apply([move(first, PENDING, 1)])
    dispatch.apply([move(first, COMPLETE, 4)])
    assert redis_client.get("extraction:pending:node") == "2"
    assert redis_client.get(COUNTER) == "1"


def test_a_counter_never_falls_below_nothing(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([move(make_work(1), PENDING), move(make_work(2), PENDING)])
    redis_client.set(COUNTER, -7)
    dispatch.apply([move(make_work(1), COMPLETE, 1)])
    assert redis_client.exists(COUNTER) == 0
    dispatch.apply([move(make_work(2), COMPLETE, 1)])
    assert redis_client.exists(COUNTER) == 0


def test_tenants_are_counted_apart_whatever_their_names(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    names = ["acme", "a b", "a\nb", "Zürich:pending:1", ""]
    items = [make_work(number, tenant_id=name) for number, name in enumerate(names, 1)]
    dispatch.apply([move(item, PENDING) for item in items])
    assert read_state(redis_client) == expect_state([move(item, PENDING) for item in items])
    dispatch.apply([move(item, COMPLETE, 1) for item in items])
    assert read_state(redis_client) == {}


def test_one_transaction_may_move_jobs_of_several_queues(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    text, extract = make_work(1, stage=Stage.TEXT), make_work(2, node_id="node-1")
    dispatch.apply([move(text, PROCESSING)])
    told = [move(text, COMPLETE, 1), move(extract, PENDING, 1)]
    dispatch.apply(told)
    assert read_state(redis_client) == expect_state(told)


def test_jobs_deep_in_a_long_queue_are_found(dispatch: RedisMirror, redis_client: Redis) -> None:
    items = [make_work(number) for number in range(1, 5001)]
    dispatch.apply([move(item, PENDING) for item in items])
    taken = random.Random(7).sample(items, 400)
    dispatch.apply([move(item, PROCESSING, 1) for item in taken])
    gone = {item.id for item in taken}
    left = [item.id for item in reversed(items) if item.id not in gone]
    assert read_jobs(redis_client, "extraction:queue") == left


def test_ten_thousand_moves_are_one_call(dispatch: RedisMirror, redis_client: Redis) -> None:
    items = [make_work(number) for number in range(1, 10_001)]
    dispatch.apply([move(item, PENDING) for item in items])
    assert redis_client.get(COUNTER) == "10000"
    assert read_jobs(redis_client, "extraction:queue") == list(range(10_000, 0, -1))
    dispatch.apply([move(item, PROCESSING, 1) for item in reversed(items)])
    assert redis_client.llen("extraction:queue") == 0
    dispatch.apply([move(item, COMPLETE, 2) for item in items])
    assert read_state(redis_client) == {}


def test_memory_of_ended_jobs_is_bounded(dispatch: RedisMirror, redis_client: Redis) -> None:
    redis_client.zadd("extraction:ended", {f"{number}": 1 for number in range(100_010)})
    dispatch.apply([move(make_work(200_000), COMPLETE)])
    assert redis_client.zcard("extraction:ended") == 100_000
    assert redis_client.zscore("extraction:ended", "200000") is not None


@pytest.mark.parametrize("name", ["queue", "retry", "dlq", "jobs", "ended"])
def test_a_value_of_another_kind_is_removed_and_named(
    dispatch: RedisMirror,
    redis_client: Redis,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    redis_client.set(f"extraction:{name}", "somebody else's")
    dispatch.apply([move(make_work(1), FAILED), move(make_work(2), RETRY)])
    dispatch.apply([move(make_work(3), PENDING)])
    assert queue_depths(redis_client)["extraction"] == {"queue": 1, "retry": 1, "dlq": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"extraction:{name}" in caplog.text


def test_counters_and_node_keys_of_another_type_are_overwritten(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    redis_client.lpush(COUNTER, "x")
    redis_client.lpush("extraction:pending:node-1", "x")
    dispatch.apply([move(make_work(), PENDING)])
    assert read_state(redis_client) == expect_state([move(make_work(), PENDING)])


def test_a_wipe_in_the_middle_leaves_nothing_negative(
    dispatch: RedisMirror, redis_client: Redis
) -> None:
    dispatch.apply([move(make_work(1), PENDING), move(make_work(2), PENDING)])
    redis_client.flushall()
    told = [move(make_work(1), COMPLETE, 1), move(make_work(2), PROCESSING, 1)]
    dispatch.apply(told)
    assert read_state(redis_client) == expect_state(told[1:])


def test_no_changes_make_no_call(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([])
    assert redis_client.keys() == []


def test_depths_of_values_of_another_kind_are_nothing(redis_client: Redis) -> None:
    redis_client.set("text:queue", "x")
    empty = {"queue": 0, "retry": 0, "dlq": 0}
    assert queue_depths(redis_client) == {queue.value: empty for queue in Queue}


def test_a_retry_without_a_time_is_due_at_once(dispatch: RedisMirror, redis_client: Redis) -> None:
    dispatch.apply([StatusChange(make_work(), RETRY, NOON)])
    assert list(read_retries(redis_client, "extraction:retry").values()) == [NOON.timestamp()]
