"""What every rate limit promises, and what answers say about limits in their headers."""

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_PART = re.compile(rf"({_NUMBER})(ms|[dhms])", re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[dhms]))+", re.ASCII)
_PLAIN = re.compile(_NUMBER, re.ASCII)


@dataclass(frozen=True, slots=True)
class RateHeaders:
    """What one answer said of the limits; None where it said nothing."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests_seconds: float | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None
    reset_tokens_seconds: float | None = None


class RateLimit(Protocol):
    """Says when the next call may go out. The thread that acquires is the one that tells how
    its call went, by `observe` or `hold`, if it went at all."""

    def acquire(self, model: str, tokens: int, stopping: threading.Event | None = None) -> None:
        """Wait until one request of about so many tokens may go out to this model.

        Raises Interrupted when `stopping` is set meanwhile.
        """

    def observe(self, model: str, headers: RateHeaders, tokens: int) -> None:
        """An answer came that used so many tokens: believe what its headers say."""

    def hold(self, model: str, seconds: float) -> None:
        """A 429 came: nobody asks this model for so long, and slower from then on."""


def read_rate_headers(headers: Mapping[str, str]) -> RateHeaders:
    """The `x-ratelimit-*` headers; what is missing or unreadable is None."""
    said = _lower(headers)

    def count(name: str) -> int | None:
        value = _read_number(said.get(f"x-ratelimit-{name}"))
        return None if value is None else int(value)

    def seconds(name: str) -> float | None:
        return _read_duration(said.get(f"x-ratelimit-{name}"))

    return RateHeaders(
        limit_requests=count("limit-requests"),
        remaining_requests=count("remaining-requests"),
        reset_requests_seconds=seconds("reset-requests"),
        limit_tokens=count("limit-tokens"),
        remaining_tokens=count("remaining-tokens"),
        reset_tokens_seconds=seconds("reset-tokens"),
    )


def read_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait before asking again, from `retry-after-ms` or `Retry-After`."""
    said = _lower(headers)
    milliseconds = _read_number(said.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = said.get("retry-after")
    seconds = _read_duration(text)
    return _read_date(text, now) if seconds is None else seconds


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _read_number(text: str | None) -> float | None:
    found = _PLAIN.fullmatch((text or "").strip())
    return float(found[0]) if found else None


def _read_duration(text: str | None) -> float | None:
    """Groq writes 2m59.56s or 285ms; others write plain seconds."""
    text = (text or "").strip().lower()
    if _DURATION.fullmatch(text):
        parts = _PART.findall(text)
        return math.fsum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return _read_number(text)


def _read_date(text: str | None, now: datetime | None) -> float | None:
    try:
        moment = parsedate_to_datetime((text or "").strip())
        # RFC 9110, 5.6.7: a date without a zone is one in GMT.
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, OverflowError):
        return None
