"""Fetches the bytes of a document: a local file, a web page, an S3 object or a `payload_ref`."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from penstock.crawl.access import AllowedPrefixes, OffLimits, real_path
from penstock.crawl.files import has_version, path_of_uri, read_file
from penstock.crawl.http import (
    CODINGS,
    CompressionError,
    HttpClient,
    HttpFault,
    HttpResponse,
    check_size,
    limit_size,
    retry_request,
)
from penstock.crawl.listing import Listed
from penstock.crawl.politeness import HostLimiter, Robots, user_agent
from penstock.crawl.s3 import build_once, s3_errors, split_object_url, status_of
from penstock.crawl.urls import normalise_url
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass
from penstock.retry import CircuitBreaker

WEB = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Marks:
    """What the last successful processing of a document stored, to recognise changes by."""

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
    """The server says that the document has not changed since the marks were stored."""


def is_untouched(listed: Listed, marks: Marks | None) -> bool:
    """Whether it is a local file that was not written since it had these marks."""
    version = None if marks is None else marks.etag
    return version is not None and listed.path is not None and has_version(listed.path, version)


def fetch_file(listed: Listed, off_limits: OffLimits, max_bytes: int) -> Fetched:
    """The bytes of a local file; DocumentFault when it cannot or may not be read."""
    assert listed.path is not None, "only local files have a path"
    off_limits.check_path(listed.path)
    content, version = read_file(listed.path, max_bytes)
    return Fetched(content, None, version, None, listed.url)


class Fetcher:
    """Fetches documents within limits of size, time and requests per host.

    Safe to share by threads; close it after use. Raises DocumentFault when one document cannot be
    fetched.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout_seconds: float = 15.0,
        max_bytes: int = 50 * 1024 * 1024,
        tries: int = 3,
        delay_seconds: float = 0.0,
        concurrency_per_host: int = 4,
        contact: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        s3: Callable[[], Any] | None = None,
        off_limits: OffLimits = OffLimits(),  # noqa: B008 - it cannot change
    ) -> None:
        self.interrupt: Callable[[], None] = lambda: None
        """Called before every request and after every wait; raises to stop the crawl."""
        self._off_limits = off_limits
        self._s3 = None if s3 is None else build_once(s3)
        self._max_bytes = max_bytes
        self._tries = tries
        self._wait = sleep
        limiter = HostLimiter(delay_seconds, concurrency_per_host, self._sleep)
        self._client = HttpClient(
            allow_private=allow_private,
            timeout_seconds=timeout_seconds,
            user_agent=user_agent(contact),
            limiter=limiter,
        )
        self._robots = Robots(self._get_robots, limiter)

    def fetch(self, listed: Listed, marks: Marks | None = None) -> Fetched | NotModified:
        """The document's bytes, unless its server or its file system says that the marks hold."""
        if is_untouched(listed, marks):
            return NotModified()
        marks = marks or Marks()
        if listed.path is not None:
            return fetch_file(listed, self._off_limits, self._max_bytes)
        if listed.content is not None:
            return Fetched(listed.content, listed.media_type, None, None, listed.url)
        if self._s3 is not None and listed.url.startswith("s3://"):
            self._off_limits.check_object(listed.url)
            client = self._s3()
            return retry_request(
                lambda: fetch_object(client, listed.url, marks, self._max_bytes),
                self._tries,
                self._sleep,
            )
        headers = {"If-None-Match": marks.etag, "If-Modified-Since": marks.last_modified}
        conditions = {name: value for name, value in headers.items() if value}
        response = self._request(listed.url, conditions)
        return NotModified() if response.status == HTTPStatus.NOT_MODIFIED else _fetched(response)

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

    def _request(self, url: str, conditions: dict[str, str]) -> HttpResponse:
        def once() -> HttpResponse:
            self.interrupt()
            response = self._client.follow(
                url,
                headers=conditions,
                max_bytes=self._max_bytes,
                before_hop=self._robots.check,
            )
            unchanged = response.status == HTTPStatus.NOT_MODIFIED and bool(conditions)
            if response.is_empty_page or not (response.is_success or unchanged):
                raise response.fault()
            return response

        return retry_request(once, self._tries, self._sleep)

    def _get_robots(self, url: str, max_bytes: int) -> bytes:
        def once() -> bytes:
            response = self._client.follow(
                url, headers={}, max_bytes=max_bytes, before_hop=lambda _: None
            )
            if response.status >= 500 or response.status == HTTPStatus.TOO_MANY_REQUESTS:
                raise response.fault()
            return response.content

        return retry_request(once, self._tries, self._sleep)


def _fetched(response: HttpResponse) -> Fetched:
    return Fetched(
        response.content,
        response.headers.get("content-type"),
        _sendable(response.headers.get("etag")),
        _sendable(response.headers.get("last-modified")),
        normalise_url(response.url) or response.url,
    )


def _sendable(value: str | None) -> str | None:
    """The value if it fits into a header of the next request."""
    return value if value and value.isascii() and value.isprintable() else None


_CHUNK_BYTES = 1 << 16


def fetch_object(client: Any, url: str, marks: Marks, max_bytes: int) -> Fetched | NotModified:
    """The object at an `s3://` URL, unless it still has the ETag of the marks."""
    bucket, key = split_object_url(url)
    condition = {"IfNoneMatch": marks.etag} if marks.etag else {}
    with s3_errors("fetch", url, "the source"):
        try:
            found: dict[str, Any] = client.get_object(Bucket=bucket, Key=key, **condition)
        except client.exceptions.ClientError as error:
            if condition and status_of(error) == HTTPStatus.NOT_MODIFIED:
                return NotModified()
            raise
    with closing(found["Body"]) as body:
        check_size(found.get("ContentLength", 0), url, max_bytes)
        packed = limit_size(_read_chunks(body, url), url, max_bytes)
        unpacked = _unpack(found.get("ContentEncoding", ""), packed, url)
        content = b"".join(limit_size(unpacked, url, max_bytes))
    changed_at = found["ResponseMetadata"]["HTTPHeaders"].get("last-modified")
    return Fetched(content, found.get("ContentType"), found.get("ETag"), changed_at, url)


def _read_chunks(body: Any, url: str) -> Iterator[bytes]:
    try:
        with s3_errors("fetch", url, "the source"):
            yield from body.iter_chunks(_CHUNK_BYTES)
    except DocumentFault as fault:
        # The client repeats requests by itself, but not a transfer that broke off.
        raise HttpFault(fault.kind, str(fault)) from fault


def _unpack(coding: str, pieces: Iterator[bytes], url: str) -> Iterator[bytes]:
    # Some uploaders leave the coding of their own transfer behind.
    named = {one.strip() for one in coding.lower().split(",")} - {"", "identity", "aws-chunked"}
    if len(named) > 1 or named - CODINGS.keys():
        message = f"{url} has the content coding {coding!r}, which is not supported"
        raise DocumentFault(ErrorClass.UNSUPPORTED, message)
    try:
        yield from CODINGS[named.pop()](pieces) if named else pieces
    except CompressionError as error:
        message = f"{url} cannot be unpacked as {coding}: {error}"
        raise DocumentFault(ErrorClass.CORRUPTION, message) from error


MAX_FAILURES = 5
# These say that one document has gone, and nothing about the others.
_GONE = frozenset({404, 410})


class SourceCircuit:
    """The circuit breaker of one source in one run: once open, it stays open."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._breaker = CircuitBreaker(MAX_FAILURES, math.inf)
        self._last = ""

    @property
    def is_open(self) -> bool:
        return self._breaker.is_open

    @property
    def reason(self) -> str:
        return (
            f"the circuit of {self._source} is open: {MAX_FAILURES} documents failed in this run, "
            f"so the rest was not fetched (the last one: {self._last})"
        )

    def check(self) -> None:
        """Refuse a document while the circuit is open."""
        if self.is_open:
            raise DocumentFault(ErrorClass.UNAVAILABLE, self.reason)

    def failed(self, fault: DocumentFault) -> bool:
        """Count a failure; True for the one that opens the circuit."""
        if not _affects_source(fault):
            return False
        if not self.is_open:
            self._last = str(fault)
        return self._breaker.failed()


def _affects_source(fault: DocumentFault) -> bool:
    """Whether a failure makes the next document of the source likely to fail as well."""
    if isinstance(fault, HttpFault) and fault.status is not None:
        return fault.status not in _GONE
    return not fault.kind.permanent


SCHEMES = ("s3://", "http://", "https://", "file://")


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """Fetches the `payload_ref` of a node with the crawler's checks and limits."""

    fetcher: Fetcher
    roots: Sequence[Path]
    """Folders below which files may be read; empty: none may."""
    home: Path
    """Penstock's own folder, in which only roots inside it may be read."""
    prefixes: AllowedPrefixes
    """S3 prefixes that may be read."""

    def read(self, reference: str, tenant_id: str) -> Fetched:
        """Raises DocumentFault when the payload cannot, or may not, be fetched."""
        try:
            got = self.fetcher.fetch(self._listed(reference, tenant_id))
        except ConfigurationError as error:
            # A reference to a missing bucket is the fault of its node: it must not pause the stage.
            raise DocumentFault(ErrorClass.FORBIDDEN, str(error)) from error
        if isinstance(got, NotModified):
            raise DocumentFault(ErrorClass.UNAVAILABLE, f"{reference} sent no content")
        return got

    def _listed(self, reference: str, tenant_id: str) -> Listed:
        if reference.startswith("file://"):
            return Listed(reference, reference, path=self._checked_path(path_of_uri(reference)))
        if reference.startswith("s3://"):
            bucket, key = split_object_url(reference)
            if not self.prefixes.allow(bucket, key, tenant_id):
                message = f"{reference} is not below a prefix in PENSTOCK_API_S3_PREFIXES"
                raise DocumentFault(ErrorClass.FORBIDDEN, message)
        return Listed(reference, reference)

    def _checked_path(self, path: Path) -> Path:
        # Links are followed first: one below a root may lead out of it.
        real = real_path(path)
        above = [root.resolve() for root in self.roots if real.is_relative_to(root.resolve())]
        if not above:
            message = f"{path} is not below a folder in PENSTOCK_PAYLOAD_ROOTS"
            raise DocumentFault(ErrorClass.FORBIDDEN, message)
        # A root above the home does not include the home; one inside it was set on purpose.
        home = self.home.resolve()
        inside_home = any(root != home and root.is_relative_to(home) for root in above)
        if real.is_relative_to(home) and not inside_home:
            message = (
                f"{path} is in the home folder, which holds the data of every tenant: "
                "add a folder inside it to PENSTOCK_PAYLOAD_ROOTS, or move the file"
            )
            raise DocumentFault(ErrorClass.FORBIDDEN, message)
        return real


def check_reference(reference: str) -> str | None:
    """Why a `payload_ref` is not valid; None when it is."""
    if reference.startswith(SCHEMES):
        return None
    return f"payload_ref must begin with {', '.join(SCHEMES)}"
