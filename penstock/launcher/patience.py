"""How long a caller is willing to wait for a server, and who hears about it meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Report = Callable[[str, float], None]
"""Told a short phrase and the seconds waited so far, many times: for a spinner."""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Patience:
    """One caller's wait, from its first moment to its deadline."""

    timeout_seconds: float
    report: Report | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        return self.started + self.timeout_seconds - time.monotonic()

    def say(self, phrase: str) -> None:
        if self.report is not None:
            self.report(phrase, time.monotonic() - self.started)

    def pause(self, phrase: str) -> None:
        """Wait a moment; TimeoutError when the time is up."""
        if self.seconds_left <= 0:
            raise TimeoutError(phrase)
        self.say(phrase)
        time.sleep(_POLL_SECONDS)
