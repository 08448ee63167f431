"""When a failed request is worth another try, and how long to wait for it."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from penstock.errors import DocumentFault, ErrorClass

MAX_WAIT_SECONDS = 30.0
"""Longer waits are not slept through but handed back, as the fault's `retry_after_seconds`."""
_FIRST_WAIT_SECONDS = 0.5
_TOO_MANY_REQUESTS = 429

T = TypeVar("T")


class HttpFault(DocumentFault):
    """A request that failed; `status` is None when no answer came."""

    def __init__(
        self,
        kind: ErrorClass,
        message: str,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(kind, message, retry_after_seconds=retry_after_seconds)
        self.status = status


def is_worth_retrying(fault: DocumentFault) -> bool:
    """Whether the same request may well succeed within seconds."""
    if not isinstance(fault, HttpFault) or fault.kind.permanent:
        return False
    if (fault.retry_after_seconds or 0) > MAX_WAIT_SECONDS:
        return False
    return fault.status is None or fault.status == _TOO_MANY_REQUESTS or fault.status >= 500


def retry_request(request: Callable[[], T], tries: int, sleep: Callable[[float], None]) -> T:
    """Make a request until it succeeds, fails for good, or has been tried often enough."""
    for number in range(tries - 1):
        try:
            return request()
        except DocumentFault as fault:
            if not is_worth_retrying(fault):
                raise
            # A wait that the host asked for is kept by its gate, for all threads.
            if fault.retry_after_seconds is None:
                sleep(_wait_seconds(number))
    return request()


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a `Retry-After` header, which holds a number or a date (RFC 9110, 10.2.3)."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _wait_seconds(number: int) -> float:
    # Jitter only adds, so that threads that failed together do not come back together.
    return _FIRST_WAIT_SECONDS * 2.0**number * (1.0 + 0.5 * random.random())
