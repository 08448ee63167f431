"""Callers, a gate and a server that keeps a limit, in time that passes by itself."""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from penstock.llm.ratelimit import CallGate, Grant, read_rate_headers
from penstock.retry import parse_retry_after
from penstock.testing.groq_server import Bucket, Limits

START = 1000.0
MODEL = "small"
TOKENS = 300


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Outcome:
    """When calls started, and what became of them."""

    starts: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return len(self.answered) / (self.answered[-1] - START)

    @property
    def refused_share(self) -> float:
        return len(self.refused) / len(self.starts)


class Simulation:
    """Each gate serves one process of so many callers, who stand in line as threads would."""

    def __init__(
        self,
        gates: Sequence[CallGate],
        clock: Clock,
        limits: Limits,
        *,
        callers: int = 16,
        headers: bool = True,
        latency_seconds: float = 0.3,
    ) -> None:
        self._gates = gates
        self._clock = clock
        self._limits = limits
        self._callers = callers
        self._headers = headers
        self._latency_seconds = latency_seconds
        self._chance = random.Random(7)
        self._numbers = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._waiting = [0 for _ in gates]
        self._asking = [False for _ in gates]
        self._todo = 0
        self.outcome = Outcome()

    def run(self, calls: int) -> Outcome:
        self._todo = calls
        for number, _ in itertools.product(range(len(self._gates)), range(self._callers)):
            self._later(0.0, partial(self._join, number))
        while len(self.outcome.answered) < calls:
            self._clock.now, _, step = heapq.heappop(self._agenda)
            step()
        return self.outcome

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        # Threads never wake, and requests never arrive, at the very moment they are meant to.
        moment = self._clock.now + seconds + self._chance.uniform(0, 0.003)
        heapq.heappush(self._agenda, (moment, next(self._numbers), step))

    def _join(self, number: int) -> None:
        if self._todo:
            self._todo -= 1
            self._waiting[number] += 1
            self._ask_next(number)

    def _ask_next(self, number: int) -> None:
        if self._waiting[number] and not self._asking[number]:
            self._asking[number] = True
            self._ask(number)

    def _ask(self, number: int) -> None:
        answer = self._gates[number].attempt(MODEL, TOKENS)
        if not isinstance(answer, Grant):
            self._later(answer, lambda: self._ask(number))
            return
        self._waiting[number] -= 1
        self._asking[number] = False
        self.outcome.starts.append(self._clock.now)
        self._later(0.0, lambda: self._arrive(number, answer))
        self._ask_next(number)

    def _arrive(self, number: int, grant: Grant) -> None:
        refusal = self._limits.refuse(TOKENS)
        headers = dict(self._limits.headers) if self._headers else {}
        if refusal is None:
            self._later(self._latency_seconds, lambda: self._answer(number, grant, headers))
        else:
            headers |= dict(refusal.headers)
            self._later(0.0, lambda: self._refuse(number, grant, headers))

    def _answer(self, number: int, grant: Grant, headers: dict[str, str]) -> None:
        self.outcome.answered.append(self._clock.now)
        self._gates[number].observe(MODEL, grant, read_rate_headers(headers), TOKENS)
        self._join(number)

    def _refuse(self, number: int, grant: Grant, headers: dict[str, str]) -> None:
        self.outcome.refused.append(self._clock.now)
        self._gates[number].hold(MODEL, grant, parse_retry_after(headers) or 1.0)
        self._todo += 1
        self._join(number)


def request_limit(clock: Clock, per_second: float, burst: float | None = None) -> Limits:
    limits = Limits()
    limits.requests = Bucket(per_second, burst or per_second, clock)
    return limits


def token_limit(clock: Clock, per_second: float) -> Limits:
    limits = Limits()
    limits.tokens = Bucket(per_second, per_second * 10, clock)
    return limits
