"""Whether Redis answers at the moment, said once when that changes."""

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Outage:
    """After a failure Redis is left alone for a while; then one caller looks whether it is back."""

    def __init__(
        self,
        without: str,
        address: str,
        *,
        rest_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._without = without
        self._address = address
        self._rest_seconds = rest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._down = False
        self._retry_at = 0.0

    def may_try(self) -> bool:
        with self._lock:
            now = self._clock()
            due = not self._down or now >= self._retry_at
            if self._down and due:
                self._retry_at = now + self._rest_seconds
            return due

    def begin(self, error: Exception) -> None:
        with self._lock:
            known, self._down = self._down, True
            self._retry_at = self._clock() + self._rest_seconds
        if not known:
            log.warning(
                "Redis at %s cannot be used (%s): %s; check REDIS_URL and the server",
                self._address,
                error or type(error).__name__,
                self._without,
            )

    def end(self) -> None:
        with self._lock:
            known, self._down = self._down, False
        if known:
            log.info("Redis at %s can be used again", self._address)
