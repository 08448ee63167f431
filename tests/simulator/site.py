"""A living careers site on loopback, which can also misbehave, and remembers who asked what."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import format_datetime
from urllib.parse import parse_qs

from tests.simulator import listings
from tests.simulator.pages import Pages
from tests.simulator.server import SiteServer
from tests.simulator.trouble import Trouble
from tests.simulator.visit import Answer, Request, Visit

ANYWHERE = "*"
"""In place of a path: the whole site is in trouble."""
_HTML, _TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_XML, _JSON = "application/xml", "application/json"
_SITEMAP, _FEED, _LINKS = "/sitemap.xml", "/feed.xml", "/jobs"
_GREENHOUSE, _LEVER = "/v1/boards/weir/jobs", "/v0/postings/weir"
_ASHBY = "/posting-api/job-board/weir"


@dataclass
class _Plan:
    trouble: Trouble
    times_left: int | None


@dataclass
class Site(Pages):
    """Pages, lists of them, and behaviour. Everything may be changed while it is visited."""

    robots: str = "User-agent: *\nAllow: /\n"
    """robots.txt, without the line that names the sitemap."""
    shows_sitemap: bool = True
    sends_etag: bool = True
    sends_last_modified: bool = True
    latency_seconds: float = 0.0
    """How long it takes until an answer begins."""
    _plans: dict[str, list[_Plan]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.server = SiteServer(self._find, self._serve)
        self.sitemap_url = self.url + _SITEMAP
        self.feed_url = self.url + _FEED
        self.links_url = self.url + _LINKS
        self.greenhouse_url = self.url + _GREENHOUSE
        self.lever_url = self.url + _LEVER
        self.ashby_url = self.url + _ASHBY

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def trouble(self, path: str, trouble: Trouble, times: int | None = None) -> None:
        """Misbehave at a path, so many times or for ever; several troubles come in turn."""
        with self._lock:
            self._plans.setdefault(path, []).append(_Plan(trouble, times))

    def mend(self) -> None:
        """Behave again, everywhere."""
        with self._lock:
            self._plans.clear()

    def requests(self, path: str | None = None) -> list[Request]:
        """What was asked for, in order; at one path, if given."""
        return [one for one in list(self.server.requests) if path in (None, one.path)]

    def forget_requests(self) -> None:
        self.server.requests.clear()

    @property
    def most_at_once(self) -> int:
        """The largest number of requests that were under way at the same time."""
        return max((request.at_once for request in self.requests()), default=0)

    @property
    def open_connections(self) -> int:
        return self.server.open_connections

    def _serve(self, visit: Visit) -> None:
        if self.latency_seconds:
            visit.pause(self.latency_seconds)
        trouble = self._next_trouble(visit.request.path)
        if trouble is None:
            visit.send_answer()
        else:
            trouble.play(visit)

    def _next_trouble(self, path: str) -> Trouble | None:
        with self._lock:
            for plan in self._plans.get(path, []) + self._plans.get(ANYWHERE, []):
                if plan.times_left is None:
                    return plan.trouble
                if plan.times_left > 0:
                    plan.times_left -= 1
                    return plan.trouble
        return None

    def _find(self, request: Request) -> Answer:
        with self._lock:
            page = self._pages.get(request.path)
            if page is None:
                return self._find_list(request)
            headers = {"Content-Type": page.media_type}
            if self.sends_last_modified:
                headers["Last-Modified"] = format_datetime(page.changed, usegmt=True)
            return self._conditional(request, page.bytes_at(self.url + request.path), headers)

    def _find_list(self, request: Request) -> Answer:
        found = self._list(request)
        if found is None:
            status = self._gone.get(request.path, 404)
            return Answer(status, b"Not here.\n", {"Content-Type": _TEXT})
        body, media_type = found
        return self._conditional(request, body, {"Content-Type": media_type})

    def _list(self, request: Request) -> tuple[bytes, str] | None:
        jobs = self.listed_jobs()
        lists: dict[str, Callable[[], tuple[bytes, str]]] = {
            "/": lambda: (listings.render_links(jobs), _HTML),
            "/robots.txt": lambda: (self._robots_txt(), _TEXT),
            _LINKS: lambda: (listings.render_links(jobs), _HTML),
            _FEED: lambda: (listings.render_feed(jobs, self.url), "application/rss+xml"),
            _GREENHOUSE: lambda: (listings.render_greenhouse(jobs), _JSON),
            _LEVER: lambda: (listings.render_lever(jobs, *_paging(request)), _JSON),
            _ASHBY: lambda: (listings.render_ashby(jobs), _JSON),
        }
        if self.shows_sitemap:
            lists[_SITEMAP] = lambda: (listings.render_sitemap(jobs), _XML)
        return lists[request.path]() if request.path in lists else None

    def _robots_txt(self) -> bytes:
        named = f"\nSitemap: {self.sitemap_url}\n" if self.shows_sitemap else ""
        return (self.robots + named).encode()

    def _conditional(self, request: Request, body: bytes, headers: dict[str, str]) -> Answer:
        """RFC 9110, 13.2.2: when a tag is given, the date is not looked at."""
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if self.sends_etag:
            headers["ETag"] = etag
        given = request.headers.get("if-none-match")
        since = request.headers.get("if-modified-since")
        if given is not None:
            is_same = self.sends_etag and etag in given
        else:
            is_same = since is not None and since == headers.get("Last-Modified")
        return Answer(304, b"", headers) if is_same else Answer(200, body, headers)


def _paging(request: Request) -> tuple[int, int]:
    query = parse_qs(request.query)
    return int(query.get("skip", ["0"])[0]), int(query.get("limit", ["100"])[0])


@contextmanager
def running_site() -> Iterator[Site]:
    """A site that is open; closed at the end, also when a test fails."""
    site = Site()
    site.server.start()
    try:
        yield site
    finally:
        site.server.stop()
