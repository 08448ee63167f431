from penstock.retry import CircuitBreaker
from tests.together import run_together


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(failures=3, open_seconds=30, clock=clock)
    for _ in range(3):
        breaker.failed()
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = CircuitBreaker(failures=3, open_seconds=30, clock=Clock())
    breaker.failed()
    breaker.failed()
    assert breaker.check() is None
    assert not breaker.is_open
    breaker.failed()
    assert breaker.check() == 30
    assert breaker.is_open


def test_a_success_between_failures_starts_the_count_again() -> None:
    breaker = CircuitBreaker(failures=2, clock=Clock())
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert not breaker.is_open


def test_check_returns_the_seconds_until_the_next_call() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 12
    assert breaker.check() == 18


def test_one_call_is_let_through_when_the_time_is_over() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    assert breaker.check() is None
    assert breaker.check() == 30
    assert breaker.is_open


def test_of_many_threads_only_one_makes_the_try() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    answers = run_together(8, lambda _: breaker.check())
    assert answers.count(None) == 1


def test_a_try_that_succeeds_closes_it() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    breaker.check()
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.check() is None


def test_a_try_that_fails_opens_it_for_the_full_time() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    breaker.check()
    clock.now += 5
    breaker.failed()
    assert breaker.check() == 30


def test_a_try_that_never_ends_is_followed_by_another() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    breaker.check()
    clock.now += 30
    assert breaker.check() is None


def test_calls_that_were_under_way_and_fail_late_do_not_keep_it_open_longer() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 20
    breaker.failed()
    assert breaker.check() == 10


def test_a_call_that_was_under_way_and_succeeds_closes_it() -> None:
    breaker = opened(Clock())
    breaker.succeeded()
    assert breaker.check() is None
