"""What holds for every rate limit: in one process, and in several that share a Redis."""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import groq
import pytest
from redis import Redis, RedisError

from penstock.errors import Interrupted
from penstock.llm.groq import build_groq_client
from penstock.llm.ratelimit import (
    CallGate,
    Grant,
    HeaderLimit,
    LocalGate,
    RateHeaders,
    RateLimit,
    read_rate_headers,
)
from penstock.local.valkey import ValkeyServer
from penstock.redis.client import build_redis_client
from penstock.redis.ratelimit import FallbackCallGate, RedisCallGate
from penstock.retry import parse_retry_after
from penstock.testing import GroqServer
from penstock.testing.script import Reply
from tests.contract.rate_simulation import (
    MODEL,
    START,
    Clock,
    Outcome,
    Simulation,
    request_limit,
    token_limit,
)
from tests.together import run_together

_prefixes = (f"test{number}:" for number in itertools.count())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["local", pytest.param("shared", marks=pytest.mark.full_suite)])
def gate(request: pytest.FixtureRequest, clock: Clock) -> CallGate:
    if request.param == "local":
        return LocalGate(clock)
    return RedisCallGate(request.getfixturevalue("redis_client"), next(_prefixes), clock)


@pytest.fixture(params=["local", pytest.param("shared", marks=pytest.mark.full_suite)])
def limit(request: pytest.FixtureRequest) -> RateLimit:
    if request.param == "local":
        return RateLimit(LocalGate())
    client = request.getfixturevalue("redis_client")
    return RateLimit(FallbackCallGate(client, RedisCallGate(client, next(_prefixes))))


def requests_left(remaining: int, limit: int = 10, reset_seconds: float = 5.0) -> RateHeaders:
    return RateHeaders(requests=HeaderLimit(limit, remaining, reset_seconds))


def tokens_left(remaining: int, limit: int = 6000, reset_seconds: float = 30.0) -> RateHeaders:
    return RateHeaders(tokens=HeaderLimit(limit, remaining, reset_seconds))


def granted(gate: CallGate, tokens: int = 100) -> Grant:
    answer = gate.attempt(MODEL, tokens)
    assert isinstance(answer, Grant), f"has to wait for {answer} s"
    return answer


def wait_of(gate: CallGate, tokens: int = 100) -> float:
    answer = gate.attempt(MODEL, tokens)
    assert not isinstance(answer, Grant), "may go at once"
    return answer


@pytest.mark.full_suite
def test_calls_go_freely_while_nothing_is_known(gate: CallGate) -> None:
    for _ in range(100):
        granted(gate, tokens=100_000)


def test_headers_of_an_unlimited_server_change_nothing(gate: CallGate) -> None:
    gate.observe(MODEL, granted(gate), requests_left(10, limit=10, reset_seconds=0), 100)
    gate.observe(MODEL, granted(gate), requests_left(9, limit=10, reset_seconds=0), 100)
    for _ in range(100):
        granted(gate)


def test_the_bucket_flows_by_what_was_used_until_it_is_full(gate: CallGate, clock: Clock) -> None:
    gate.observe(MODEL, granted(gate), requests_left(0, limit=10, reset_seconds=5), 100)
    assert wait_of(gate) == pytest.approx(0.5)
    clock.now += 0.5
    granted(gate)
    assert wait_of(gate) == pytest.approx(0.5)


def test_a_reset_is_the_time_until_the_bucket_is_full(gate: CallGate) -> None:
    """As Groq counts: what is told is the time until full, not until the next one."""
    gate.observe(MODEL, granted(gate), requests_left(20, limit=50, reset_seconds=179.56), 100)
    for _ in range(20):
        granted(gate)
    assert wait_of(gate) == pytest.approx(179.56 / 30)


def test_headers_older_than_what_was_started_since_are_corrected(gate: CallGate) -> None:
    first = granted(gate)
    for _ in range(8):
        granted(gate)
    gate.observe(MODEL, first, requests_left(9, limit=10, reset_seconds=0.5), 100)
    granted(gate)
    assert wait_of(gate) == pytest.approx(0.5)


def test_headers_never_raise_what_is_left(gate: CallGate) -> None:
    gate.observe(MODEL, granted(gate), requests_left(0), 100)
    gate.observe(MODEL, None, requests_left(8, reset_seconds=1), 100)
    assert wait_of(gate) > 0


def test_tokens_wait_for_their_own_bucket(gate: CallGate) -> None:
    gate.observe(MODEL, granted(gate), tokens_left(3000), 100)
    granted(gate, tokens=2000)
    assert wait_of(gate, tokens=2000) == pytest.approx(10)
    granted(gate, tokens=1000)


def test_what_was_estimated_too_high_is_given_back(gate: CallGate) -> None:
    gate.observe(MODEL, granted(gate), tokens_left(3000), 100)
    grant = granted(gate, tokens=3000)
    assert wait_of(gate, tokens=1000) == pytest.approx(10)
    gate.observe(MODEL, grant, RateHeaders(), 1000)
    granted(gate, tokens=2000)


def test_what_was_estimated_too_low_is_taken(gate: CallGate) -> None:
    gate.observe(MODEL, granted(gate), tokens_left(3000), 100)
    gate.observe(MODEL, granted(gate, tokens=1000), RateHeaders(), 3000)
    assert wait_of(gate, tokens=1000) == pytest.approx(10)


def test_a_call_larger_than_the_limit_goes_when_the_bucket_is_full(
    gate: CallGate, clock: Clock
) -> None:
    gate.observe(MODEL, granted(gate), tokens_left(3000), 100)
    assert wait_of(gate, tokens=9000) == pytest.approx(30)
    clock.now += 30
    granted(gate, tokens=9000)


def test_models_have_limits_of_their_own(gate: CallGate) -> None:
    gate.hold(MODEL, granted(gate), 60)
    assert isinstance(gate.attempt("large", 100), Grant)


def test_a_refusal_holds_all_calls(gate: CallGate, clock: Clock) -> None:
    gate.hold(MODEL, granted(gate), 2.5)
    assert wait_of(gate) == pytest.approx(2.5)
    clock.now += 2.5
    granted(gate)


def test_after_a_hold_callers_start_one_after_the_other(gate: CallGate, clock: Clock) -> None:
    grants = [granted(gate) for _ in range(16)]
    gate.hold(MODEL, grants[0], 1)
    clock.now += 1
    granted(gate)
    assert wait_of(gate) > 0.01


def test_refusals_of_calls_that_were_under_way_together_slow_down_once(
    gate: CallGate, clock: Clock
) -> None:
    grants = [granted(gate) for _ in range(20)]
    clock.now += 0.1
    gate.hold(MODEL, grants[0], 1)
    for grant in grants[1:8]:
        gate.hold(MODEL, grant, 1)
    clock.now += 1
    granted(gate)
    assert wait_of(gate) < 0.1


def test_refusals_while_nothing_gets_through_do_not_slow_down(gate: CallGate, clock: Clock) -> None:
    for _ in range(10):
        gate.hold(MODEL, granted(gate), 60)
        assert wait_of(gate) > 59
        clock.now += 60
    for _ in range(16):
        granted(gate)


def test_a_refusal_returns_what_the_call_had_taken(gate: CallGate, clock: Clock) -> None:
    gate.observe(MODEL, granted(gate), tokens_left(3000), 100)
    gate.hold(MODEL, granted(gate, tokens=3000), 1)
    clock.now += 1
    granted(gate, tokens=3000)


def test_a_limit_in_headers_is_used_fully_and_kept(gate: CallGate, clock: Clock) -> None:
    outcome = Simulation([gate], clock, request_limit(clock, 20)).run(400)
    assert outcome.per_second > 0.95 * 20
    assert outcome.refused_share < 0.02


def test_a_limit_is_learnt_from_refusals_alone(gate: CallGate, clock: Clock) -> None:
    outcome = Simulation([gate], clock, request_limit(clock, 20), headers=False).run(400)
    assert outcome.per_second > 0.95 * 20
    assert outcome.refused_share < 0.02


def test_a_learnt_pace_has_no_bursts(gate: CallGate, clock: Clock) -> None:
    outcome = Simulation([gate], clock, request_limit(clock, 20), headers=False).run(200)
    assert most_in(0.5, outcome, after=START + 2) <= 0.5 * 20 * 1.5 + 1


def test_a_token_limit_is_used_fully_and_kept(gate: CallGate, clock: Clock) -> None:
    outcome = Simulation([gate], clock, token_limit(clock, per_second=3000)).run(300)
    assert outcome.per_second > 0.95 * 10
    assert outcome.refused_share < 0.02


def test_a_large_burst_does_not_hide_the_limit(gate: CallGate, clock: Clock) -> None:
    limits = request_limit(clock, per_second=2, burst=60)
    outcome = Simulation([gate], clock, limits, headers=False).run(200)
    assert outcome.per_second > 0.95 * 2
    assert outcome.refused_share < 0.06


@pytest.mark.parametrize("headers", [True, False])
def test_both_kinds_decide_alike(redis_client: Redis, headers: bool) -> None:
    def starts(make: Callable[[Clock], CallGate]) -> list[float]:
        clock = Clock()
        limits = request_limit(clock, 20)
        return Simulation([make(clock)], clock, limits, headers=headers).run(200).starts

    shared = starts(lambda clock: RedisCallGate(redis_client, next(_prefixes), clock))
    assert shared == pytest.approx(starts(LocalGate))


@pytest.mark.parametrize("headers", [True, False])
def test_two_processes_together_stay_within_the_limit(
    redis_client: Redis, clock: Clock, headers: bool
) -> None:
    prefix = next(_prefixes)
    gates = [RedisCallGate(redis_client, prefix, clock) for _ in range(2)]
    limits = request_limit(clock, 20, burst=40)
    outcome = Simulation(gates, clock, limits, headers=headers).run(400)
    assert outcome.per_second > 0.95 * 20
    assert sum(moment > START + 1 for moment in outcome.refused) < 0.02 * 400


def test_all_waiting_threads_can_be_stopped(limit: RateLimit) -> None:
    limit.hold(MODEL, 60)
    stopping = threading.Event()
    threading.Timer(0.1, stopping.set).start()

    def call(_: int) -> None:
        with pytest.raises(Interrupted):
            limit.acquire(MODEL, 100, stopping)

    started = time.monotonic()
    run_together(4, call)
    assert time.monotonic() - started < 30


def test_a_thread_that_stops_waiting_makes_room_for_the_next(limit: RateLimit) -> None:
    limit.hold(MODEL, 0.6)
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Interrupted):
        limit.acquire(MODEL, 100, stopped)
    limit.acquire(MODEL, 100)


def test_threads_share_what_the_headers_allow(limit: RateLimit) -> None:
    limit.acquire(MODEL, 100)
    # Before the bucket begins to fill.
    started = time.monotonic()
    limit.observe(MODEL, requests_left(0, limit=10, reset_seconds=0.25), 100)
    run_together(16, lambda _: limit.acquire(MODEL, 100))
    assert time.monotonic() - started > 15 / 40


@pytest.mark.full_suite
@pytest.mark.parametrize("headers", [True, False])
def test_sixteen_threads_keep_the_limit_of_a_real_server(limit: RateLimit, headers: bool) -> None:
    with GroqServer() as server, closing(build_groq_client("key", server.base_url)) as client:
        server.limit_requests(per_second=20)
        server.always(None, Reply(content="{}").after(0.3))
        # The best of three: other programs on the machine can only slow it down.
        rates: list[float] = []
        while len(rates) < 3 and max(rates, default=0) <= 0.8 * 20:
            refused = server.count(status=429)
            started = time.monotonic()
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda _: ask(client, limit, headers), range(100)))
            rates.append(100 / (time.monotonic() - started))
            assert server.count(status=429) - refused <= 10
        assert max(rates) > 0.8 * 20, rates


def test_keys_expire(redis_client: Redis) -> None:
    prefix = next(_prefixes)
    gate = RedisCallGate(redis_client, prefix)
    gate.hold(MODEL, granted(gate), 7200)
    assert 7200 < redis_client.ttl(prefix + MODEL) < 7200 + 3700


@pytest.mark.full_suite
def test_without_redis_each_process_keeps_the_limit_for_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ValkeyServer(tmp_path) as server, build_redis_client(server.start()) as client:
        limit = RateLimit(FallbackCallGate(client, RedisCallGate(client)))
        limit.acquire(MODEL, 100)
        server.stop()
        with caplog.at_level(logging.WARNING):
            limit.observe(MODEL, requests_left(5), 100)
            limit.acquire(MODEL, 100)
            started = time.monotonic()
            limit.hold(MODEL, 0.2)
            limit.acquire(MODEL, 100)
    assert time.monotonic() - started > 0.19
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "REDIS_URL" in caplog.text


def test_redis_is_used_again_when_it_is_back(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    shared = FailingGate(clock)
    gate = FallbackCallGate(Redis(), shared, clock)
    for _ in range(3):
        granted(gate)
    shared.fails = False
    with caplog.at_level(logging.INFO):
        granted(gate)
        assert shared.granted == 0
        clock.now += 60
        granted(gate)
    assert shared.granted == 1
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


class FailingGate(LocalGate):
    """As if in a Redis that does not answer."""

    fails = True
    granted = 0

    def attempt(self, model: str, tokens: int) -> Grant | float:
        if self.fails:
            raise RedisError("no answer")
        self.granted += 1
        return super().attempt(model, tokens)


def most_in(seconds: float, outcome: Outcome, after: float) -> int:
    """The most calls that started within so many seconds."""
    starts = [start for start in outcome.starts if start >= after]
    return max(sum(first <= start < first + seconds for start in starts) for first in starts)


def ask(client: "groq.Groq", limit: RateLimit, headers: bool) -> None:
    for _ in range(20):
        limit.acquire(MODEL, 100)
        try:
            raw = client.chat.completions.with_raw_response.create(
                model=MODEL, messages=[{"role": "user", "content": "Pumps"}]
            )
        except groq.RateLimitError as error:
            limit.hold(MODEL, parse_retry_after(error.response.headers) or 1.0)
        else:
            limit.observe(MODEL, read_rate_headers(raw.headers if headers else {}), 100)
            return
    raise AssertionError("refused twenty times")
