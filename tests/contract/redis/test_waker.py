"""A waiting worker hears at once, and again after whatever happens to Redis."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from redis import Redis

from penstock.local.valkey import ValkeyServer
from penstock.queue.items import ItemStatus
from penstock.redis.client import build_redis_client
from penstock.redis.keys import WAKE_CHANNEL
from penstock.redis.mirror import RedisMirror, Waker
from tests.contract.redis.moves import make_work, move
from tests.faults.scenarios.proxy import Proxy
from tests.together import wait_until


class Bell:
    """Counts how often it was rung."""

    def __init__(self) -> None:
        self.rings = 0
        self.rung = threading.Event()

    def __call__(self) -> None:
        self.rings += 1
        self.rung.set()

    def wait(self, seconds: float = 60.0) -> None:
        assert self.rung.wait(seconds), f"not called in {seconds} seconds"
        self.rung.clear()


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def proxy(valkey: str) -> Iterator[Proxy]:
    with Proxy(valkey) as proxy:
        yield proxy


def test_a_worker_hears_at_once(redis_client: Redis, bell: Bell) -> None:
    dispatch = RedisMirror(redis_client)
    delays = []
    with Waker(redis_client, bell):
        bell.wait()
        for number in range(1, 12):
            started = time.monotonic()
            dispatch.apply([move(make_work(number), ItemStatus.PENDING)])
            bell.wait()
            delays.append(time.monotonic() - started)
    # The machine may have other things to do in between.
    assert median(delays) < 0.5


def test_only_what_comes_into_a_queue_wakes(redis_client: Redis) -> None:
    dispatch = RedisMirror(redis_client)
    with redis_client.pubsub() as subscription:  # type: ignore[no-untyped-call]
        subscription.subscribe(WAKE_CHANNEL)
        wait_until(lambda: subscription.get_message(timeout=0.1) is not None)
        dispatch.apply([move(make_work(1), ItemStatus.PROCESSING)])
        dispatch.apply([move(make_work(1), ItemStatus.RETRY_PENDING, 1)])
        dispatch.apply([move(make_work(2), ItemStatus.FAILED)])
        two = [move(make_work(number), ItemStatus.PENDING) for number in (3, 4)]
        dispatch.apply(two)
        dispatch.apply(two)
        message = subscription.get_message(timeout=60)
        assert message is not None
        assert message["data"] == "extraction"
        assert subscription.get_message(timeout=0.1) is None


def test_it_calls_back_after_a_broken_connection(proxy: Proxy, bell: Bell) -> None:
    with build_redis_client(proxy.url) as client, Waker(client, bell):
        bell.wait()
        proxy.cut()
        bell.wait()
        client.publish(WAKE_CHANNEL, "text")
        bell.wait()
    assert bell.rings == 3


def test_it_waits_for_a_redis_that_is_not_there_yet(
    tmp_path: Path, proxy: Proxy, bell: Bell, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with ValkeyServer(tmp_path) as server:
        proxy.turn_to(server.start())
        server.stop()
        with build_redis_client(proxy.url) as client, Waker(client, bell):
            wait_until(lambda: bool(caplog.records))
            assert bell.rings == 0
            proxy.turn_to(server.start())
            bell.wait()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_connection_that_died_without_an_error_is_replaced(
    proxy: Proxy, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.redis.mirror._RENEW_SECONDS", 0.3)
    with build_redis_client(proxy.url) as client, Waker(client, bell):
        bell.wait()
        bell.wait()


def test_a_callback_that_fails_is_called_again(
    redis_client: Redis, bell: Bell, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        bell()
        raise ValueError("no")

    with Waker(redis_client, fail):
        bell.wait()
        redis_client.publish(WAKE_CHANNEL, "text")
        bell.wait()
    assert "the callback of a wake-up has failed" in caplog.text


def test_bytes_that_are_no_text_do_not_end_it(redis_client: Redis, bell: Bell) -> None:
    with Waker(redis_client, bell):
        bell.wait()
        redis_client.publish(WAKE_CHANNEL, b"\xff\xfe")
        bell.wait()
        redis_client.publish(WAKE_CHANNEL, "text")
        bell.wait()


@pytest.mark.parametrize("state", ["listening", "hanging"])
def test_it_stops_promptly(proxy: Proxy, bell: Bell, state: str) -> None:
    with build_redis_client(proxy.url) as client:
        waker = Waker(client, bell)
        if state == "hanging":
            proxy.hangs.set()
            waker.start()
        else:
            waker.start()
            bell.wait()
        started = time.monotonic()
        waker.stop()
        assert time.monotonic() - started < 10


def test_no_callback_runs_after_the_stop(redis_client: Redis, bell: Bell) -> None:
    with Waker(redis_client, bell):
        bell.wait()
    redis_client.publish(WAKE_CHANNEL, "text")
    assert not bell.rung.wait(0.3)
