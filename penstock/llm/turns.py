"""Threads that wait for leave to call a model: in line, first come, first served."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from penstock.errors import Interrupted
from penstock.llm.allowance import Grant
from penstock.llm.ratelimit import RateHeaders

# Tokens that others give back, or a limit that was forgotten, may end a wait early.
LONGEST_PAUSE_SECONDS = 1.0
_LOOK_UP_SECONDS = 0.25


class Gate(Protocol):
    """Keeps the allowances of all models, without ever waiting."""

    def attempt(self, model: str, tokens: int) -> Grant | float:
        """The grant, or the seconds until it is worth asking again."""

    def observe(
        self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int
    ) -> None: ...

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None: ...


class Line:
    """Only the first in line asks the gate, so nobody overtakes and nobody asks in vain."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: deque[threading.Event] = deque()

    @contextmanager
    def turn(self, stopping: threading.Event | None) -> Iterator[None]:
        mine = threading.Event()
        self._join(mine)
        try:
            while not mine.wait(_LOOK_UP_SECONDS if stopping else None):
                _check(stopping)
            yield
        finally:
            self._leave(mine)

    def _join(self, mine: threading.Event) -> None:
        with self._lock:
            self._turns.append(mine)
            self._turns[0].set()

    def _leave(self, mine: threading.Event) -> None:
        with self._lock:
            self._turns.remove(mine)
            if self._turns:
                self._turns[0].set()


class GatedRateLimit:
    """A rate limit over any gate. It remembers for each thread the call that it has leave for."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._lines: dict[str, Line] = {}
        self._thread = threading.local()

    def acquire(self, model: str, tokens: int, stopping: threading.Event | None = None) -> None:
        with self._lines.setdefault(model, Line()).turn(stopping):
            answer = self._gate.attempt(model, tokens)
            while not isinstance(answer, Grant):
                _pause(min(answer, LONGEST_PAUSE_SECONDS), stopping)
                answer = self._gate.attempt(model, tokens)
        self._grants[model] = answer

    def observe(self, model: str, headers: RateHeaders, tokens: int) -> None:
        grant = self._grants.get(model)
        self._gate.observe(model, grant, headers, tokens)
        if grant:
            self._grants[model] = replace(grant, tokens=tokens)

    def hold(self, model: str, seconds: float) -> None:
        self._gate.hold(model, self._grants.pop(model, None), seconds)

    @property
    def _grants(self) -> dict[str, Grant]:
        grants: dict[str, Grant] = self._thread.__dict__.setdefault("grants", {})
        return grants


def _pause(seconds: float, stopping: threading.Event | None) -> None:
    if stopping is None:
        time.sleep(seconds)
    else:
        stopping.wait(seconds)
        _check(stopping)


def _check(stopping: threading.Event | None) -> None:
    if stopping and stopping.is_set():
        raise Interrupted("stopped while waiting for the rate limit; the call was not made")
