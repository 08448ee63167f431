"""Leaving a failing service alone for a while: a circuit breaker, and the Retry-After header."""

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PART = re.compile(rf"({_NUMBER.pattern})(ms|[dhms])", re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER.pattern}(?:ms|[dhms]))+", re.ASCII)


class CircuitBreaker:
    """Opens after so many failures without a success in between; any success closes it.

    While it is open, one call every `open_seconds` is allowed, to find out whether the service is
    back; with `math.inf`, none. Safe from several threads.
    """

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
        self._opened_at = 0.0
        self._try_at = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._failures >= self._limit

    @property
    def open_for_seconds(self) -> float:
        """How long ago it opened; 0 when it is closed."""
        with self._lock:
            return self._clock() - self._opened_at if self._failures >= self._limit else 0.0

    def check(self) -> float | None:
        """None when a call is allowed, else the seconds until the next one is."""
        with self._lock:
            if self._failures < self._limit:
                return None
            now = self._clock()
            if now < self._try_at:
                return self._try_at - now
            # The allowed call may never report its end: the next is allowed after the same time.
            self._try_at = now + self._open_seconds
            self._trying = True
            return None

    def succeeded(self) -> bool:
        """Record a success; True if it closed the circuit."""
        with self._lock:
            was_open = self._failures >= self._limit
            self._failures = 0
            self._trying = False
            return was_open

    def failed(self) -> bool:
        """Record a failure; True if it opened the circuit."""
        with self._lock:
            self._failures += 1
            opened = self._failures == self._limit
            now = self._clock()
            if opened:
                self._opened_at = now
            # Calls that had started before it opened fail late and must not prolong it.
            if opened or self._trying:
                self._try_at = now + self._open_seconds
                self._trying = False
            return opened


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (RFC 9110, 10.2.3).

    The value is a number of seconds, a duration as Groq writes it (2m59.56s) or an HTTP date;
    None when there is none that can be read.
    """
    values = {name.lower(): value for name, value in headers.items()}
    milliseconds = parse_number(values.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = values.get("retry-after", "")
    seconds = parse_duration(text)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(text.strip())
        # RFC 9110, 5.6.7: a date without a zone is one in GMT.
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, OverflowError):
        return None


def parse_duration(text: str | None) -> float | None:
    """Seconds from a number, or from a duration such as 2m59.56s or 285ms."""
    text = (text or "").strip().lower()
    if _DURATION.fullmatch(text):
        parts = _PART.findall(text)
        return math.fsum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return parse_number(text)


def parse_number(text: str | None) -> float | None:
    """A decimal number without a sign; None for any other text."""
    found = _NUMBER.fullmatch((text or "").strip())
    return float(found[0]) if found else None
