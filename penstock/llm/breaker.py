"""An endpoint that keeps failing is left alone for a while, then tried with one call."""

import threading
import time
from collections.abc import Callable


class Breaker:
    """Opens after so many failures in a row; any success closes it. Safe from several threads."""

    def __init__(
        self,
        failures: int = 5,
        open_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._open_seconds = open_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._try_at = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._failures >= self._limit

    def check(self) -> float | None:
        """Seconds until the next try; None when the call may go, which may be that one try."""
        with self._lock:
            if self._failures < self._limit:
                return None
            wait_seconds = self._try_at - self._clock()
            if wait_seconds > 0:
                return wait_seconds
            # A try that nobody tells the end of must not keep all others out for ever.
            self._wait_again()
            self._trying = True
            return None

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0
            self._trying = False

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            # Calls that were under way when it opened fail late, and say nothing new.
            if self._failures == self._limit or self._trying:
                self._wait_again()
                self._trying = False

    def _wait_again(self) -> None:
        self._try_at = self._clock() + self._open_seconds
