"""Redis may be down, slow or hanging: commits go on, quickly, and say so once."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from penstock.errors import ServiceError
from penstock.local.valkey import ValkeyServer
from penstock.queue.items import ItemStatus
from penstock.redis.backpressure import QueueLimits, RedisIntakeGate, RedisReservation, Refusal
from penstock.redis.client import build_redis_client
from penstock.redis.keys import Queue
from penstock.redis.mirror import RedisMirror
from penstock.redis.reconcile import queue_depths
from tests.contract.redis.moves import make_work, move, read_jobs
from tests.faults.scenarios.proxy import Proxy

TIMEOUT_SECONDS = 0.4
# Where an answer is expected.
PATIENCE_SECONDS = 3.0
# For a busy machine.
SLACK_SECONDS = 4.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def proxy(valkey: str, redis_client: Redis) -> Iterator[Proxy]:
    """In front of an empty Valkey."""
    del redis_client
    with Proxy(valkey) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Redis]:
    with build_redis_client(proxy.url, TIMEOUT_SECONDS) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patient_client(proxy: Proxy) -> Iterator[Redis]:
    with build_redis_client(proxy.url, PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture
def dispatch(client: Redis, clock: Clock) -> RedisMirror:
    return RedisMirror(client, clock=clock)


def tell(dispatch: RedisMirror, job_id: int = 1) -> float:
    """How many seconds a commit takes longer for it."""
    started = time.monotonic()
    dispatch.apply([move(make_work(job_id), ItemStatus.PENDING)])
    return time.monotonic() - started


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_a_dead_redis_costs_one_warning_and_no_time(
    proxy: Proxy, dispatch: RedisMirror, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.close()
    for number in range(3):
        tell(dispatch, number + 1)
        clock.now += 10
    assert levels(caplog) == ["WARNING"]
    assert "REDIS_URL" in caplog.text


def test_a_hanging_redis_costs_the_timeout_once(
    proxy: Proxy, dispatch: RedisMirror, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.hangs.set()
    assert tell(dispatch, 1) < TIMEOUT_SECONDS + SLACK_SECONDS
    assert sum(tell(dispatch, number) for number in range(2, 100)) < SLACK_SECONDS
    assert levels(caplog) == ["WARNING"]


def test_a_redis_that_hangs_later_costs_no_more(proxy: Proxy, dispatch: RedisMirror) -> None:
    tell(dispatch, 1)
    proxy.hangs.set()
    assert tell(dispatch, 2) < TIMEOUT_SECONDS + SLACK_SECONDS


def test_a_slow_redis_costs_the_timeout_at_most_though_each_step_is_quicker(
    proxy: Proxy, dispatch: RedisMirror
) -> None:
    proxy.delay_seconds = 0.75 * TIMEOUT_SECONDS
    assert tell(dispatch) < TIMEOUT_SECONDS + SLACK_SECONDS


def test_ten_thousand_moves_through_a_slow_redis_cost_the_timeout_at_most(
    proxy: Proxy, dispatch: RedisMirror
) -> None:
    tell(dispatch)
    proxy.delay_seconds = 0.5 * TIMEOUT_SECONDS
    moves = [move(make_work(number), ItemStatus.PENDING, 1) for number in range(1, 10_001)]
    started = time.monotonic()
    dispatch.apply(moves)
    assert time.monotonic() - started < TIMEOUT_SECONDS + 2 * SLACK_SECONDS


def test_redis_is_used_again_after_a_short_while(
    proxy: Proxy,
    patient_client: Redis,
    clock: Clock,
    redis_client: Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatch = RedisMirror(patient_client, clock=clock)
    caplog.set_level(logging.INFO)
    proxy.hangs.set()
    tell(dispatch, 1)
    proxy.cut()
    proxy.hangs.clear()
    tell(dispatch, 2)
    assert redis_client.keys() == []
    clock.now += 5
    tell(dispatch, 3)
    tell(dispatch, 4)
    assert read_jobs(redis_client, "extraction:queue") == [4, 3]
    assert levels(caplog) == ["WARNING", "INFO"]


@pytest.mark.full_suite
def test_a_redis_that_was_stopped_and_started_is_used_again(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with ValkeyServer(tmp_path) as server, Proxy(server.start()) as proxy:
        dispatch = RedisMirror(build_redis_client(proxy.url, PATIENCE_SECONDS), clock=clock)
        tell(dispatch, 1)
        server.stop()
        tell(dispatch, 2)
        proxy.turn_to(server.start())
        clock.now += 5
        tell(dispatch, 3)
        with build_redis_client(proxy.url) as client:
            assert 3 in read_jobs(client, "extraction:queue")
    assert levels(caplog) == ["WARNING", "INFO"]


def test_wrong_moves_do_not_raise(dispatch: RedisMirror, caplog: pytest.LogCaptureFixture) -> None:
    dispatch.apply(["not a move"])  # type: ignore[list-item]
    assert levels(caplog) == ["WARNING"]


def test_a_gate_without_redis_says_what_to_do_and_keeps_the_password(valkey: str) -> None:
    with Proxy(valkey) as proxy:
        url = proxy.url.replace("redis://", "redis://somebody:secret@")
    # Nobody listens there any more.
    gate = RedisIntakeGate(build_redis_client(url, TIMEOUT_SECONDS), QueueLimits(10, 10))
    with pytest.raises(ServiceError, match="REDIS_URL") as caught:
        gate.reserve([Queue.TEXT], "acme", 1)
    assert "secret" not in str(caught.value)
    assert url.rpartition("@")[2] in str(caught.value)
    with pytest.raises(ServiceError, match="REDIS_URL"):
        queue_depths(gate.client)


def test_a_gate_of_a_hanging_redis_answers_in_time(proxy: Proxy, client: Redis) -> None:
    proxy.hangs.set()
    gate = RedisIntakeGate(client, QueueLimits(10, 10))
    started = time.monotonic()
    with pytest.raises(ServiceError, match="REDIS_URL"):
        gate.reserve([Queue.TEXT], "acme", 1)
    assert time.monotonic() - started < TIMEOUT_SECONDS + SLACK_SECONDS


def test_settling_without_redis_does_not_raise(proxy: Proxy, patient_client: Redis) -> None:
    gate = RedisIntakeGate(patient_client, QueueLimits(10, 10))
    reservation = gate.reserve([Queue.TEXT], "acme", 1)
    assert not isinstance(reservation, Refusal)
    proxy.hangs.set()
    reservation.release()
    assert isinstance(reservation, RedisReservation)
