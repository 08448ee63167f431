"""Rate limits that are really kept: token buckets, and the headers that tell the truth of them."""

import math
import time
from collections.abc import Callable

from penstock.testing.behaviours import Behaviour
from penstock.testing.failures import rate_limited, too_large

Headers = tuple[tuple[str, str], ...]

_PLENTY = 100_000_000
# Rounding must not make a client that waited exactly as told come too early.
_TOLERANCE = 1e-6


class Bucket:
    """Fills steadily up to its capacity. What is spent unasked may leave it in debt."""

    def __init__(
        self, per_second: float, capacity: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_second = per_second
        self.capacity = capacity
        self._clock = clock
        self._level = capacity
        self._filled_at = clock()

    @property
    def level(self) -> float:
        now = self._clock()
        gained = (now - self._filled_at) * self.per_second
        self._level = min(self.capacity, self._level + gained)
        self._filled_at = now
        return self._level

    @property
    def full_in_seconds(self) -> float:
        return (self.capacity - self.level) / self.per_second

    def wait_seconds(self, amount: float) -> float:
        """How long until so much can be spent; 0 when it can be now."""
        missing = amount - self.level
        return missing / self.per_second if missing > _TOLERANCE else 0.0

    def spend(self, amount: float) -> None:
        self._level = self.level - amount


class Limits:
    """What one key may ask for. Only the server's thread spends; others set a whole new bucket."""

    def __init__(self) -> None:
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None

    def refuse(self, tokens: int) -> Behaviour | None:
        """Why a request of that size is not let in; one that is let in has paid."""
        if self.tokens and tokens > self.tokens.capacity:
            return too_large(int(self.tokens.capacity), tokens)
        if wait := self.requests.wait_seconds(1) if self.requests else 0.0:
            return _refusal("requests per minute (RPM)", "requests", wait)
        if wait := self.tokens.wait_seconds(tokens) if self.tokens else 0.0:
            return _refusal("tokens per minute (TPM)", "tokens", wait)
        if self.requests:
            self.requests.spend(1)
        self.charge_tokens(tokens)
        return None

    def charge_tokens(self, tokens: int) -> None:
        """Spend what an answer turned out to cost."""
        if self.tokens:
            self.tokens.spend(tokens)

    @property
    def headers(self) -> Headers:
        return _headers("requests", self.requests) + _headers("tokens", self.tokens)


def format_duration(seconds: float) -> str:
    """As Groq writes durations: 285ms, 7.66s, 2m59.56s, 1h0m5s."""
    if 0 < seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds * 100) / 100, 60)
    hours, minutes = divmod(int(minutes), 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{larger}{round(rest, 2):g}s"


def _refusal(limit: str, unit: str, wait_seconds: float) -> Behaviour:
    wait = f"{math.ceil(wait_seconds * 1000) / 1000:g}"
    message = (
        f"Rate limit reached for model `{{model}}` on {limit}. "
        f"Please try again in {format_duration(wait_seconds)}."
    )
    return rate_limited(wait, unit=unit, message=message)


def _headers(unit: str, bucket: Bucket | None) -> Headers:
    limit = bucket.capacity if bucket else _PLENTY
    level = bucket.level if bucket else _PLENTY
    reset = format_duration(bucket.full_in_seconds) if bucket else "0s"
    return (
        (f"x-ratelimit-limit-{unit}", str(int(limit))),
        (f"x-ratelimit-remaining-{unit}", str(max(0, int(level)))),
        (f"x-ratelimit-reset-{unit}", reset),
    )
