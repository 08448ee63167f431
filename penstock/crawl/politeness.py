"""How hosts are treated: the crawler names itself, limits its requests and obeys robots.txt."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from protego import Protego

from penstock import __version__
from penstock.crawl.urls import root_url
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass

AGENT = "Penstock"
HOME = "https://github.com/penstock/penstock"
MAX_DELAY_SECONDS = 60.0
"""The longest `Crawl-delay` that is kept: with a longer one a crawl would not end."""

log = logging.getLogger(__name__)


def user_agent(contact: str | None) -> str:
    """The User-Agent header, with the address for complaints."""
    address = (contact or "").strip() or HOME
    # Other characters do not fit into a header, or would end it.
    if not (address.isascii() and address.isprintable()):
        raise ConfigurationError(
            f"PENSTOCK_CRAWL_CONTACT={address!r} does not fit into a request: "
            "use printable ASCII characters, such as an e-mail address or a URL"
        )
    return f"{AGENT}/{__version__} (+{address})"


class _Host:
    def __init__(self, concurrency: int, delay_seconds: float) -> None:
        self.slots = threading.BoundedSemaphore(concurrency)
        self.delay_seconds = delay_seconds
        self.last_start = float("-inf")
        self.next_start = 0.0
        self.pauses = 0


class HostLimiter:
    """Concurrency and delay per host, shared by all threads that fetch."""

    def __init__(
        self, delay_seconds: float, concurrency: int, sleep: Callable[[float], None]
    ) -> None:
        self._delay_seconds = delay_seconds
        self._concurrency = concurrency
        self._sleep = sleep
        self._lock = threading.Lock()
        self._hosts: dict[str, _Host] = {}
        self._warned: set[str] = set()

    @contextmanager
    def slot(self, name: str) -> Iterator[None]:
        """Wait until a request to this host may start; hold one of its slots inside the block."""
        with self._lock:
            host = self._host(name)
        with host.slots:
            pauses = -1
            # A pause that begins while this thread sleeps holds for this thread too.
            while pauses != host.pauses:
                pauses, wait_seconds = self._reserve(host)
                if wait_seconds > 0:
                    self._sleep(wait_seconds)
            yield

    def pause(self, name: str, seconds: float) -> None:
        """Start no request to this host for a while, from any thread: its Retry-After says so."""
        with self._lock:
            host = self._host(name)
            host.next_start = max(host.next_start, time.monotonic() + seconds)
            host.pauses += 1

    def set_delay(self, name: str, seconds: float) -> None:
        """Keep at least this delay between requests to a host: its robots.txt says so."""
        with self._lock:
            host = self._host(name)
            host.delay_seconds = max(self._delay_seconds, min(seconds, MAX_DELAY_SECONDS))
            host.next_start = max(host.next_start, host.last_start + host.delay_seconds)
            warn = seconds > MAX_DELAY_SECONDS and name not in self._warned
            if warn:
                self._warned.add(name)
        if warn:
            message = "robots.txt of %s wants %g s between two requests; it gets %g s"
            log.warning(message, name, seconds, host.delay_seconds)

    def _host(self, name: str) -> _Host:
        return self._hosts.setdefault(name, _Host(self._concurrency, self._delay_seconds))

    def _reserve(self, host: _Host) -> tuple[int, float]:
        with self._lock:
            now = time.monotonic()
            host.last_start = max(now, host.next_start)
            host.next_start = host.last_start + host.delay_seconds
            return host.pauses, host.last_start - now


# RFC 9309, 2.4: no longer than a day.
_KEEP_SECONDS = 24 * 3600.0
_KEEP_FAILURE_SECONDS = 60.0
# RFC 9309, 2.5 asks for at least 500 KiB.
_MAX_BYTES = 4 * 1024 * 1024
# These faults are passed on as they are.
_PASSED_ON = frozenset({ErrorClass.FORBIDDEN, ErrorClass.RATE_LIMITED})
_ALLOW_ALL = Protego.parse("")


@dataclass(slots=True)
class _Site:
    lock: threading.Lock = field(default_factory=threading.Lock)
    rules: Protego = _ALLOW_ALL
    refusal: DocumentFault | None = None
    expires: float = 0.0


class Robots:
    """The rules of every site so far (RFC 9309). Safe to share by threads.

    `get(url, max_bytes)` fetches a robots.txt, and raises DocumentFault when the site fails. The
    limiter gets the `Crawl-delay` of a host.
    """

    def __init__(self, get: Callable[[str, int], bytes], limiter: HostLimiter) -> None:
        self._get = get
        self._limiter = limiter
        self._lock = threading.Lock()
        self._sites: dict[str, _Site] = {}

    def check(self, url: str) -> None:
        """Raise DocumentFault for a URL that its site does not allow."""
        # RFC 9309, 2.2.1: rules are matched by the product token alone.
        if not self._rules(url).can_fetch(url, AGENT):
            message = f"robots.txt of {httpx.URL(url).host} does not allow {AGENT} at {url}"
            raise DocumentFault(ErrorClass.FORBIDDEN, message)

    def sitemaps(self, url: str) -> list[str]:
        """The sitemaps that the site of this URL names."""
        return list(self._rules(url).sitemaps)

    def _rules(self, url: str) -> Protego:
        origin = root_url(url)
        with self._lock:
            site = self._sites.setdefault(origin, _Site())
        with site.lock:
            if time.monotonic() >= site.expires:
                self._refresh(site, origin + "robots.txt")
            if site.refusal is not None:
                # A new error each time: threads must not share one traceback.
                raise DocumentFault(
                    site.refusal.kind,
                    str(site.refusal),
                    retry_after_seconds=site.refusal.retry_after_seconds,
                ) from site.refusal
            return site.rules

    def _refresh(self, site: _Site, url: str) -> None:
        try:
            site.rules, site.refusal = self._read(url), None
            site.expires = time.monotonic() + _KEEP_SECONDS
            # RFC 9309 does not know Crawl-delay, but sites use it.
            delay_seconds = site.rules.crawl_delay(AGENT)
            if delay_seconds is not None:
                self._limiter.set_delay(httpx.URL(url).host, delay_seconds)
        except DocumentFault as fault:
            site.refusal = fault
            site.expires = time.monotonic() + _KEEP_FAILURE_SECONDS

    def _read(self, url: str) -> Protego:
        try:
            content = self._get(url, _MAX_BYTES)
        except DocumentFault as fault:
            if fault.kind in _PASSED_ON:
                raise
            message = f"{url} cannot be read, so the site is not crawled for now ({fault})"
            raise DocumentFault(ErrorClass.UNAVAILABLE, message) from fault
        # RFC 9309, 2.3.1.3: a site without a robots.txt allows everything.
        return Protego.parse(content.decode("utf-8-sig", "replace"))
