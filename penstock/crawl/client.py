"""Single HTTP requests, bounded in size, time and redirects, on guarded connections."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from penstock.crawl.compression import GzipError, gunzip_pieces
from penstock.crawl.guard import require_web_url
from penstock.crawl.politeness import HostGates
from penstock.crawl.retry import MAX_WAIT_SECONDS, HttpFault, parse_retry_after
from penstock.crawl.transport import GuardedTransport
from penstock.crawl.url import normalise_url
from penstock.errors import DocumentFault, ErrorClass

# A server that sends a byte now and then never times out; the whole body does after this many.
_BODY_TIMEOUTS = 10
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
    def retry_after_seconds(self) -> float | None:
        return parse_retry_after(self.headers.get("retry-after"))

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
        """What this answer means for the document, when it is no success."""
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
            # Gzip alone, because it is the one coding that is unpacked here with a limit.
            headers={"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": "gzip"},
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
            require_web_url(hop)
            before_hop(hop)
            answer = self._get(hop, headers, max_bytes)
            if answer.redirect_url is None:
                return answer
            hop = answer.redirect_url
        message = f"more than {self._max_redirects} redirects from {url}, the last one to {hop}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message)

    def close(self) -> None:
        self._http.close()

    def _get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> Answer:
        with self._gates.turn(httpx.URL(url).host):
            try:
                return self._exchange(url, headers, max_bytes)
            except httpx.TimeoutException as error:
                message = f"no answer from {url} within {self._timeout_seconds:g} s"
                raise HttpFault(ErrorClass.TIMEOUT, message) from error
            except (httpx.TransportError, GzipError) as error:
                message = f"the transfer of {url} failed: {error or type(error).__name__}"
                raise HttpFault(ErrorClass.UNAVAILABLE, message) from error

    def _exchange(self, url: str, headers: Mapping[str, str], max_bytes: int) -> Answer:
        with self._http.stream("GET", url, headers=dict(headers)) as response:
            answer = Answer(url, response.status_code, response.headers)
            wait_seconds = answer.retry_after_seconds
            if not answer.is_success:
                if wait_seconds is not None and wait_seconds <= MAX_WAIT_SECONDS:
                    self._gates.hold(response.url.host, wait_seconds)
                return answer
            content = self._read(response, max_bytes)
            return Answer(url, response.status_code, response.headers, content)

    def _read(self, response: httpx.Response, max_bytes: int) -> bytes:
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > max_bytes:
            raise _too_large(response, f"{declared} bytes", max_bytes)
        content = bytearray()
        for piece in _decoded(response, self._in_time(response)):
            content += piece
            if len(content) > max_bytes:
                raise _too_large(response, "a body", max_bytes)
        return bytes(content)

    def _in_time(self, response: httpx.Response) -> Iterator[bytes]:
        limit_seconds = self._timeout_seconds * _BODY_TIMEOUTS
        deadline = time.monotonic() + limit_seconds
        for chunk in response.iter_raw():
            if time.monotonic() > deadline:
                message = f"{response.url} did not arrive within {limit_seconds:g} s"
                raise HttpFault(ErrorClass.TIMEOUT, message)
            yield chunk


def _decoded(response: httpx.Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in {"", "identity"}:
        return chunks
    if coding in {"gzip", "x-gzip"}:
        return gunzip_pieces(chunks)
    message = f"{response.url} came with the content coding {coding!r}; only gzip was offered"
    raise DocumentFault(ErrorClass.UNSUPPORTED, message)


def _too_large(response: httpx.Response, what: str, max_bytes: int) -> DocumentFault:
    return DocumentFault(
        ErrorClass.TOO_LARGE,
        f"{response.url} has {what}, more than the {max_bytes} bytes allowed; "
        "raise PENSTOCK_MAX_DOCUMENT_BYTES to accept it",
    )
