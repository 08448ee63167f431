"""When a failed item is tried again, and when it is not."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass

EXTRACTOR_MISSING_SECONDS = 30.0
FREE_SECONDS = 1.0
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class FixedDelays:
    """A table of delays; its last entry repeats."""

    seconds: tuple[float, ...] = (0.5, 2.0, 10.0, 30.0, 60.0)

    def __call__(self, failures: int) -> float:
        return self.seconds[min(failures, len(self.seconds)) - 1]


@dataclass(frozen=True, slots=True)
class ExponentialDelays:
    """`base · 2ⁿ`, n from 0, up to a limit."""

    base_seconds: float
    max_seconds: float

    def __call__(self, failures: int) -> float:
        return float(min(self.base_seconds * 2 ** min(failures - 1, 30), self.max_seconds))


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The budget of one stage and the delays between its attempts."""

    max_attempts: int
    backoff: Callable[[int], float]
    """Seconds to wait after the n-th failure, n from 1."""

    def next_delay(self, fault: Fault, attempts: int) -> float | None:
        """Seconds until the next attempt, or None when the item is dead.

        `attempts` counts this failure, unless it is a free one.
        """
        if fault.kind.permanent:
            return None
        if fault.is_free:
            return with_jitter(fault.retry_after_seconds or FREE_SECONDS)
        if attempts >= self.max_attempts:
            return None
        delay = self.backoff(attempts)
        if fault.kind is ErrorClass.EXTRACTOR_MISSING:
            delay = max(delay, EXTRACTOR_MISSING_SECONDS)
        return with_jitter(max(delay, fault.retry_after_seconds or 0.0))


RetryRules = Mapping[Stage, RetryRule]


def with_jitter(seconds: float) -> float:
    """A little more, never less: a delay that a server asked for is kept."""
    return seconds * (1 + random.uniform(0, _JITTER))


def default_rules() -> dict[Stage, RetryRule]:
    """The delays and budgets when none are configured."""
    return {
        Stage.TEXT: RetryRule(4, FixedDelays()),
        Stage.EXTRACT: RetryRule(2, ExponentialDelays(10, 60)),
        Stage.EMBED: RetryRule(5, ExponentialDelays(10, 300)),
    }
