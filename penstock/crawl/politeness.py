"""Not more requests to one host, at once or in a row, than it was promised."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Gate:
    def __init__(self, concurrency: int) -> None:
        self.slots = threading.BoundedSemaphore(concurrency)
        self.next_start = 0.0


class HostGates:
    """One gate per host, shared by all threads that fetch."""

    def __init__(
        self, delay_seconds: float, concurrency: int, sleep: Callable[[float], None]
    ) -> None:
        self._delay_seconds = delay_seconds
        self._concurrency = concurrency
        self._sleep = sleep
        self._lock = threading.Lock()
        self._gates: dict[str, _Gate] = {}

    @contextmanager
    def turn(self, host: str) -> Iterator[None]:
        """Wait until this host may be asked again, and count as a visitor meanwhile."""
        with self._lock:
            gate = self._gate(host)
        with gate.slots:
            wait_seconds = self._reserve(gate)
            if wait_seconds > 0:
                self._sleep(wait_seconds)
            yield

    def hold(self, host: str, seconds: float) -> None:
        """Ask this host nothing for a while, from any thread: it said so."""
        with self._lock:
            gate = self._gate(host)
            gate.next_start = max(gate.next_start, time.monotonic() + seconds)

    def _gate(self, host: str) -> _Gate:
        return self._gates.setdefault(host, _Gate(self._concurrency))

    def _reserve(self, gate: _Gate) -> float:
        with self._lock:
            now = time.monotonic()
            start = max(now, gate.next_start)
            gate.next_start = start + self._delay_seconds
            return start - now
