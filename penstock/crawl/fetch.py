"""One door to the bytes of a document, whether it is a local file or a page on the web."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.crawl.client import Answer, Client
from penstock.crawl.listing import Listed
from penstock.crawl.localfile import read_file
from penstock.crawl.politeness import AGENT, HostGates, user_agent
from penstock.crawl.retry import retry_request
from penstock.crawl.robots import Robots
from penstock.crawl.s3_client import build_once
from penstock.crawl.url import normalise_url

WEB = ("http://", "https://")
_NOT_MODIFIED = 304
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True)
class Marks:
    """What is known of a document from the last time it was processed with success."""

    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None
    simhash: int | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document's bytes, as its source gave them."""

    content: bytes = field(repr=False)
    media_type: str | None
    """The whole Content-Type header, with its charset; None for local files."""
    etag: str | None
    last_modified: str | None
    final_url: str
    """Where the redirects ended."""


@dataclass(frozen=True, slots=True)
class NotModified:
    """The server says that nothing has changed since the marks were taken."""


class Fetcher:
    """Fetches documents politely and within bounds. Safe to share by threads; close it after use.

    Raises DocumentFault for whatever keeps one document from being fetched.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout_seconds: float = 15.0,
        max_bytes: int = 50 * 1024 * 1024,
        max_redirects: int = 5,
        tries: int = 3,
        delay_seconds: float = 0.0,
        concurrency_per_host: int = 4,
        contact: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        s3: Callable[[], Any] | None = None,
    ) -> None:
        self.interrupt: Callable[[], None] = lambda: None
        """Called before every request and after every wait; raises when nothing more is wanted."""
        self._s3 = None if s3 is None else build_once(s3)
        self._max_bytes = max_bytes
        self._tries = tries
        self._wait = sleep
        gates = HostGates(delay_seconds, concurrency_per_host, self._sleep)
        self._client = Client(
            allow_private=allow_private,
            timeout_seconds=timeout_seconds,
            max_redirects=max_redirects,
            user_agent=user_agent(contact),
            gates=gates,
        )
        # RFC 9309, 2.2.1: rules are matched by the product token alone.
        self._robots = Robots(self._ask_robots, AGENT, gates.slow_down)

    def fetch(self, listed: Listed, marks: Marks | None = None) -> Fetched | NotModified:
        """The document's bytes, unless its server says that the marks still hold."""
        if listed.path is not None:
            content = read_file(listed.path, self._max_bytes)
            return Fetched(content, None, None, None, listed.url)
        if listed.content is not None:
            return Fetched(listed.content, listed.media_type, None, None, listed.url)
        if self._s3 is not None and listed.url.startswith("s3://"):
            return self._fetch_object(self._s3(), listed.url, marks or Marks())
        answer = self._request(listed.url, _conditions(marks or Marks()))
        return NotModified() if answer.status == _NOT_MODIFIED else _fetched(answer)

    def get(self, url: str) -> Fetched:
        """The bytes at a URL, unconditionally."""
        return _fetched(self._request(url, {}))

    def check(self, listed: Listed) -> None:
        """Refuse a page that may not be fetched, without fetching it."""
        if listed.url.startswith(WEB) and listed.content is None:
            self._robots.check(listed.url)

    def sitemaps(self, url: str) -> list[str]:
        """The sitemaps that robots.txt of the URL's site names."""
        return self._robots.sitemaps(url)

    def close(self) -> None:
        self._client.close()

    def _sleep(self, seconds: float) -> None:
        self._wait(seconds)
        self.interrupt()

    def _fetch_object(self, client: Any, url: str, marks: Marks) -> Fetched | NotModified:
        from penstock.crawl.s3_object import fetch_object

        def once() -> Fetched | NotModified:
            return fetch_object(client, url, marks, self._max_bytes)

        return retry_request(once, self._tries, self._sleep)

    def _request(self, url: str, conditions: dict[str, str]) -> Answer:
        def once() -> Answer:
            self.interrupt()
            answer = self._client.follow(
                url,
                headers=conditions,
                max_bytes=self._max_bytes,
                before_hop=self._robots.check,
            )
            unchanged = answer.status == _NOT_MODIFIED and bool(conditions)
            if answer.is_blank_page or not (answer.is_success or unchanged):
                raise answer.fault()
            return answer

        return retry_request(once, self._tries, self._sleep)

    def _ask_robots(self, url: str, max_bytes: int) -> Answer:
        def once() -> Answer:
            answer = self._client.follow(
                url, headers={}, max_bytes=max_bytes, before_hop=lambda _: None
            )
            if answer.status >= 500 or answer.status == _TOO_MANY_REQUESTS:
                raise answer.fault()
            return answer

        return retry_request(once, self._tries, self._sleep)


def _conditions(marks: Marks) -> dict[str, str]:
    headers = {"If-None-Match": marks.etag, "If-Modified-Since": marks.last_modified}
    return {name: value for name, value in headers.items() if value}


def _fetched(answer: Answer) -> Fetched:
    return Fetched(
        answer.content,
        answer.headers.get("content-type"),
        _sendable(answer.headers.get("etag")),
        _sendable(answer.headers.get("last-modified")),
        normalise_url(answer.url) or answer.url,
    )


def _sendable(value: str | None) -> str | None:
    """A mark must fit into the header of the next request."""
    return value if value and value.isascii() and value.isprintable() else None
