"""When a failed item is tried again, and when it is not."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass

EXTRACTOR_MISSING_SECONDS = 30.0
RATE_LIMIT_SECONDS = 1.0
_JITTER = 0.1


class Backoff(Protocol):
    """Seconds to wait after the n-th failure, n from 1."""

    def __call__(self, failures: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Steps:
    """A table of delays; its last entry repeats."""

    seconds: tuple[float, ...] = (0.5, 2.0, 10.0, 30.0, 60.0)

    def __call__(self, failures: int) -> float:
        return self.seconds[min(failures, len(self.seconds)) - 1]


@dataclass(frozen=True, slots=True)
class Doubling:
    """`base · 2ⁿ`, n from 0, up to a limit."""

    base_seconds: float
    max_seconds: float

    def __call__(self, failures: int) -> float:
        return float(min(self.base_seconds * 2 ** min(failures - 1, 30), self.max_seconds))


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The budget of one stage and the delays between its attempts."""

    max_attempts: int
    backoff: Backoff

    def next_delay(self, fault: Fault, attempts: int) -> float | None:
        """Seconds until the next attempt, or None when the item is dead.

        `attempts` counts this failure, except for a rate limit, which never spends one.
        """
        if fault.kind.permanent:
            return None
        if fault.kind is ErrorClass.RATE_LIMITED:
            return with_jitter(fault.retry_after_seconds or RATE_LIMIT_SECONDS)
        if attempts >= self.max_attempts:
            return None
        delay = self.backoff(attempts)
        if fault.kind is ErrorClass.EXTRACTOR_MISSING:
            delay = max(delay, EXTRACTOR_MISSING_SECONDS)
        return with_jitter(max(delay, fault.retry_after_seconds or 0.0))


RetryRules = Mapping[Stage, RetryRule]


def with_jitter(seconds: float) -> float:
    """A little more, never less: a promise to wait is kept."""
    return seconds * (1 + random.uniform(0, _JITTER))


def default_rules() -> dict[Stage, RetryRule]:
    """The delays and budgets that hold when nobody configured others."""
    return {
        Stage.TEXT: RetryRule(4, Steps()),
        Stage.EXTRACT: RetryRule(2, Doubling(10, 60)),
        Stage.EMBED: RetryRule(5, Doubling(10, 300)),
    }
