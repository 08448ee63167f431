"""The rate limit of one process: its threads share the allowances."""

import threading
import time
from collections.abc import Callable

from penstock.llm.allowance import Allowance, Grant
from penstock.llm.ratelimit import RateHeaders
from penstock.llm.turns import GatedRateLimit


class LocalGate:
    """The allowances of all models, in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._allowances: dict[str, Allowance] = {}

    def attempt(self, model: str, tokens: int) -> Grant | float:
        with self._lock:
            return self._allowance(model).attempt(self._clock(), tokens)

    def observe(self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        with self._lock:
            self._allowance(model).observe(self._clock(), grant, headers, tokens)

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        with self._lock:
            self._allowance(model).hold(self._clock(), grant, seconds)

    def _allowance(self, model: str) -> Allowance:
        return self._allowances.setdefault(model, Allowance())


class LocalRateLimit(GatedRateLimit):
    """For the threads of one process. Other processes are noticed by the refusals they cause."""

    def __init__(self) -> None:
        super().__init__(LocalGate())
