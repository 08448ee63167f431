"""What a site's robots.txt allows, asked once per site (RFC 9309)."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
from protego import Protego

from penstock.crawl.client import Answer
from penstock.crawl.url import root_url
from penstock.errors import DocumentFault, ErrorClass

# RFC 9309, 2.4: no longer than a day. A failure is asked about again soon.
_KEEP_SECONDS = 24 * 3600.0
_KEEP_FAILURE_SECONDS = 60.0
# RFC 9309, 2.5 asks for at least 500 KiB.
_MAX_BYTES = 4 * 1024 * 1024
# A refused address and a host that asks for time say all there is to say.
_OWN_REASON = frozenset({ErrorClass.FORBIDDEN, ErrorClass.RATE_LIMITED})
_ALLOW_ALL = Protego.parse("")


@dataclass(slots=True)
class _Site:
    lock: threading.Lock = field(default_factory=threading.Lock)
    rules: Protego = _ALLOW_ALL
    refusal: DocumentFault | None = None
    expires: float = 0.0


class Robots:
    """The rules of every site met so far. Safe to share by threads.

    `ask(url, max_bytes)` gets a robots.txt, and raises when the site fails to answer.
    `slow_down(host, seconds)` is told how far apart a host wants its requests to be.
    """

    def __init__(
        self,
        ask: Callable[[str, int], Answer],
        agent: str,
        slow_down: Callable[[str, float], None],
    ) -> None:
        self._ask = ask
        self._agent = agent
        self._slow_down = slow_down
        self._lock = threading.Lock()
        self._sites: dict[str, _Site] = {}

    def check(self, url: str) -> None:
        """Refuse a URL that its site does not want crawled."""
        if not self._rules(url).can_fetch(url, self._agent):
            message = f"robots.txt of {httpx.URL(url).host} does not allow {self._agent} at {url}"
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
            delay_seconds = site.rules.crawl_delay(self._agent)
            if delay_seconds is not None:
                self._slow_down(httpx.URL(url).host, delay_seconds)
        except DocumentFault as fault:
            site.refusal = fault
            site.expires = time.monotonic() + _KEEP_FAILURE_SECONDS

    def _read(self, url: str) -> Protego:
        try:
            answer = self._ask(url, _MAX_BYTES)
        except DocumentFault as fault:
            if fault.kind in _OWN_REASON:
                raise
            raise _unreachable(url, str(fault)) from fault
        # RFC 9309, 2.3.1.3: a site that has no robots.txt to show allows everything.
        return Protego.parse(answer.content.decode("utf-8-sig", "replace"))


def _unreachable(url: str, reason: str) -> DocumentFault:
    return DocumentFault(
        ErrorClass.UNAVAILABLE,
        f"{url} cannot be read, so the site counts as closed to crawlers for now ({reason})",
    )
