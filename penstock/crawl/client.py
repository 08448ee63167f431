"""Single HTTP requests, bounded in size, time and redirects, on guarded connections."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from penstock.crawl.compression import CODINGS, OFFERED, CompressionError
from penstock.crawl.guard import require_web_url
from penstock.crawl.politeness import HostGates
from penstock.crawl.retry import MAX_WAIT_SECONDS, HttpFault, parse_retry_after
from penstock.crawl.transport import GuardedTransport
from penstock.crawl.url import normalise_url
from penstock.errors import DocumentFault, ErrorClass

# Of an answer that is no success, only a short body is worth keeping the connection for.
_SHORT_BODY_BYTES = 1 << 16
_LONGEST_WAIT_SECONDS = 24 * 3600.0
_NOT_MODIFIED = 304
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said; the content is read for successful answers only."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes = field(default=b"", repr=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_blank_page(self) -> bool:
        """A page without a single letter is a server in trouble, not a document."""
        is_html = "html" in self.headers.get("content-type", "").lower()
        return self.is_success and is_html and not self.content.strip()

    @property
    def retry_after_seconds(self) -> float | None:
        seconds = parse_retry_after(self.headers.get("retry-after"))
        return None if seconds is None else min(seconds, _LONGEST_WAIT_SECONDS)

    @property
    def redirect_url(self) -> str | None:
        location = self.headers.get("location")
        if self.status not in _REDIRECTS or not location:
            return None
        try:
            target = str(httpx.URL(self.url).join(location))
        except (httpx.InvalidURL, UnicodeError):
            return location
        return normalise_url(target) or target

    def fault(self) -> HttpFault:
        """What this answer means for the document, when it does not bring it."""
        if self.is_blank_page:
            return HttpFault(ErrorClass.UNAVAILABLE, f"{self.url} came as an empty page")
        phrase = HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else ""
        return HttpFault(
            _KINDS.get(self.status, ErrorClass.UNAVAILABLE),
            f"HTTP {self.status} {phrase}".rstrip() + f" for {self.url}",
            status=self.status,
            retry_after_seconds=self.retry_after_seconds,
        )


_KINDS = {
    401: ErrorClass.FORBIDDEN,
    403: ErrorClass.FORBIDDEN,
    408: ErrorClass.TIMEOUT,
    429: ErrorClass.RATE_LIMITED,
    451: ErrorClass.FORBIDDEN,
}


class Client:
    """GET requests. Safe to share by threads; keeps no cookies from one page to the next."""

    def __init__(
        self,
        *,
        allow_private: bool,
        timeout_seconds: float,
        max_redirects: int,
        user_agent: str,
        gates: HostGates,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._max_redirects = max_redirects
        self._gates = gates
        self._http = httpx.Client(
            transport=GuardedTransport(allow_private=allow_private),
            timeout=timeout_seconds,
            headers={"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": OFFERED},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            trust_env=False,
        )

    def follow(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        max_bytes: int,
        before_hop: Callable[[str], None],
    ) -> Answer:
        """The answer at the end of the redirects; `before_hop` may refuse any URL on the way."""
        hop = url
        for _ in range(self._max_redirects + 1):
            host = require_web_url(hop).host
            before_hop(hop)
            answer = self._get(hop, host, headers, max_bytes)
            if answer.redirect_url is None:
                return answer
            hop = answer.redirect_url
        message = f"more than {self._max_redirects} redirects from {url}, the last one to {hop}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message)

    def close(self) -> None:
        self._http.close()

    def _get(self, url: str, host: str, headers: Mapping[str, str], max_bytes: int) -> Answer:
        with self._gates.turn(host):
            try:
                return self._exchange(url, headers, max_bytes)
            except httpx.TimeoutException as error:
                message = f"no whole answer from {url} in time ({error})"
                raise HttpFault(ErrorClass.TIMEOUT, message) from error
            except (httpx.TransportError, CompressionError) as error:
                message = f"the transfer of {url} failed: {error or type(error).__name__}"
                raise HttpFault(ErrorClass.UNAVAILABLE, message) from error

    def _exchange(self, url: str, headers: Mapping[str, str], max_bytes: int) -> Answer:
        with self._http.stream("GET", url, headers=dict(headers)) as response:
            answer = Answer(url, response.status_code, response.headers)
            if answer.is_success:
                return replace(answer, content=_read(response, max_bytes))
            wait_seconds = answer.retry_after_seconds
            if wait_seconds is not None and wait_seconds <= MAX_WAIT_SECONDS:
                self._gates.hold(response.url.host, wait_seconds)
            _use_up(response)
            return answer


def _read(response: httpx.Response, max_bytes: int) -> bytes:
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(response, f"{declared} bytes", max_bytes)
    content = bytearray()
    for piece in _decoded(response, _bounded(response, max_bytes)):
        content += piece
        if len(content) > max_bytes:
            raise _too_large(response, "a body", max_bytes)
    return bytes(content)


def _bounded(response: httpx.Response, max_bytes: int) -> Iterator[bytes]:
    """The body as it was sent: compressed, an endless one may well unpack to nothing."""
    received = 0
    for chunk in response.iter_raw():
        received += len(chunk)
        if received > max_bytes:
            raise _too_large(response, "a body", max_bytes)
        yield chunk


def _decoded(response: httpx.Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in {"", "identity"}:
        return chunks
    if coding in CODINGS:
        return CODINGS[coding](chunks)
    message = f"{response.url} came with the content coding {coding!r}; offered were {OFFERED}"
    raise DocumentFault(ErrorClass.UNSUPPORTED, message)


def _use_up(response: httpx.Response) -> None:
    """Read what nobody wants, if it is short: only then can the connection be used again."""
    declared = response.headers.get("content-length", "")
    is_short = declared.isdecimal() and int(declared) <= _SHORT_BODY_BYTES
    if is_short or response.status_code == _NOT_MODIFIED:
        with suppress(httpx.TransportError):
            for _ in response.iter_raw():
                pass


def _too_large(response: httpx.Response, what: str, max_bytes: int) -> DocumentFault:
    return DocumentFault(
        ErrorClass.TOO_LARGE,
        f"{response.url} has {what}, more than the {max_bytes} bytes allowed; "
        "raise PENSTOCK_MAX_DOCUMENT_BYTES to accept it",
    )
