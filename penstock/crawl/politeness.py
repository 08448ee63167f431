"""Not more requests to one host, at once or in a row, than it was promised; and saying who asks."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock import __version__
from penstock.errors import ConfigurationError

AGENT = "Penstock"
HOME = "https://github.com/penstock/penstock"
MAX_DELAY_SECONDS = 60.0
"""A site that wants more time between two requests does not get it: it would never be done."""

log = logging.getLogger(__name__)


def user_agent(contact: str | None) -> str:
    """Who asks, and where the owner of a site can complain."""
    told = (contact or "").strip() or HOME
    # Anything else does not fit into a header, or would end it.
    if not (told.isascii() and told.isprintable()):
        raise ConfigurationError(
            f"PENSTOCK_CRAWL_CONTACT={told!r} does not fit into a request: "
            "use printable ASCII characters, such as an e-mail address or a URL"
        )
    return f"{AGENT}/{__version__} (+{told})"


class _Gate:
    def __init__(self, concurrency: int, delay_seconds: float) -> None:
        self.slots = threading.BoundedSemaphore(concurrency)
        self.delay_seconds = delay_seconds
        self.last_start = float("-inf")
        self.next_start = 0.0
        self.holds = 0


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
        self._warned: set[str] = set()

    @contextmanager
    def turn(self, host: str) -> Iterator[None]:
        """Wait until this host may be asked again, and count as a visitor meanwhile."""
        with self._lock:
            gate = self._gate(host)
        with gate.slots:
            self._wait(gate)
            yield

    def hold(self, host: str, seconds: float) -> None:
        """Ask this host nothing for a while, from any thread: it said so."""
        with self._lock:
            gate = self._gate(host)
            gate.next_start = max(gate.next_start, time.monotonic() + seconds)
            gate.holds += 1

    def slow_down(self, host: str, seconds: float) -> None:
        """Keep at least this distance between requests to a host: its robots.txt says so."""
        with self._lock:
            gate = self._gate(host)
            gate.delay_seconds = max(self._delay_seconds, min(seconds, MAX_DELAY_SECONDS))
            gate.next_start = max(gate.next_start, gate.last_start + gate.delay_seconds)
            is_news = seconds > MAX_DELAY_SECONDS and host not in self._warned
            if is_news:
                self._warned.add(host)
        if is_news:
            log.warning(
                "robots.txt of %s wants %g s between two requests; it gets %g s",
                host,
                seconds,
                gate.delay_seconds,
            )

    def _gate(self, host: str) -> _Gate:
        return self._gates.setdefault(host, _Gate(self._concurrency, self._delay_seconds))

    def _wait(self, gate: _Gate) -> None:
        holds = -1
        # A host that asks for time while a thread waits for it is not asked by that thread either.
        while holds != gate.holds:
            holds, wait_seconds = self._reserve(gate)
            if wait_seconds > 0:
                self._sleep(wait_seconds)

    def _reserve(self, gate: _Gate) -> tuple[int, float]:
        with self._lock:
            now = time.monotonic()
            gate.last_start = max(now, gate.next_start)
            gate.next_start = gate.last_start + gate.delay_seconds
            return gate.holds, gate.last_start - now
