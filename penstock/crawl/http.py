"""HTTP requests, bounded in size, time and redirects, to addresses that are checked first."""

import ipaddress
import random
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar

import httpcore
import httpx

from penstock.crawl.politeness import HostLimiter
from penstock.crawl.urls import normalise_url, parse_url
from penstock.errors import DocumentFault, ErrorClass
from penstock.retry import parse_retry_after

MAX_REDIRECTS = 5
MAX_WAIT_SECONDS = 30.0
"""A longer `Retry-After` is not waited for here: the fault carries it to the caller."""
# A server that sends a byte now and then never times out by itself: the whole response has this
# many read timeouts.
RESPONSE_TIMEOUTS = 10
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 24 * 3600.0
_KEEPALIVE_SECONDS = 5.0
_MAX_ADDRESSES = 4
# The body of an error is read up to this size, so that the connection can be used again.
_SHORT_BODY_BYTES = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KINDS = {
    401: ErrorClass.FORBIDDEN,
    403: ErrorClass.FORBIDDEN,
    408: ErrorClass.TIMEOUT,
    429: ErrorClass.RATE_LIMITED,
    451: ErrorClass.FORBIDDEN,
}
# All of public IPv6. What lies outside is local, or carries an IPv4 address inside (mapped,
# compatible, NAT64) that could be a private one; so does 6to4.
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")

T = TypeVar("T")


class HttpFault(DocumentFault):
    """A request that failed; `status` is None when there was no response."""

    def __init__(
        self,
        kind: ErrorClass,
        message: str,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(kind, message, retry_after_seconds=retry_after_seconds)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; the content is read only when it is a success."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes = field(default=b"", repr=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_empty_page(self) -> bool:
        """HTML without a character, which failing servers send with status 200."""
        is_html = "html" in self.headers.get("content-type", "").lower()
        return self.is_success and is_html and not self.content.strip()

    @property
    def retry_after_seconds(self) -> float | None:
        seconds = parse_retry_after(self.headers)
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
        """The fault of a document whose request got this response."""
        if self.is_empty_page:
            return HttpFault(ErrorClass.UNAVAILABLE, f"{self.url} is an empty page")
        phrase = HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else ""
        return HttpFault(
            _KINDS.get(self.status, ErrorClass.UNAVAILABLE),
            f"HTTP {self.status} {phrase}".rstrip() + f" for {self.url}",
            status=self.status,
            retry_after_seconds=self.retry_after_seconds,
        )


class HttpClient:
    """GET requests. Safe to share by threads; cookies are not kept."""

    def __init__(
        self,
        *,
        allow_private: bool,
        timeout_seconds: float,
        user_agent: str,
        limiter: HostLimiter,
    ) -> None:
        self._limiter = limiter
        self._http = httpx.Client(
            transport=_GuardedTransport(allow_private=allow_private),
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
    ) -> HttpResponse:
        """The response at the end of the redirects; `before_hop` may refuse any URL on the way."""
        hop = url
        for _ in range(MAX_REDIRECTS + 1):
            host = require_web_url(hop).host
            before_hop(hop)
            response = self._get(hop, host, headers, max_bytes)
            if response.redirect_url is None:
                return response
            hop = response.redirect_url
        message = f"more than {MAX_REDIRECTS} redirects from {url}, the last one to {hop}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message)

    def close(self) -> None:
        self._http.close()

    def _get(self, url: str, host: str, headers: Mapping[str, str], max_bytes: int) -> HttpResponse:
        with self._limiter.slot(host):
            try:
                return self._request(url, headers, max_bytes)
            except httpx.TimeoutException as error:
                message = f"no complete response from {url} in time ({error})"
                raise HttpFault(ErrorClass.TIMEOUT, message) from error
            except (httpx.TransportError, CompressionError) as error:
                message = f"the transfer of {url} failed: {error or type(error).__name__}"
                raise HttpFault(ErrorClass.UNAVAILABLE, message) from error

    def _request(self, url: str, headers: Mapping[str, str], max_bytes: int) -> HttpResponse:
        with self._http.stream("GET", url, headers=dict(headers)) as stream:
            response = HttpResponse(url, stream.status_code, stream.headers)
            if response.is_success:
                return replace(response, content=_read_body(stream, max_bytes))
            wait_seconds = response.retry_after_seconds
            if wait_seconds is not None and wait_seconds <= MAX_WAIT_SECONDS:
                self._limiter.pause(stream.url.host, wait_seconds)
            _discard_body(stream)
            return response


def _read_body(stream: httpx.Response, max_bytes: int) -> bytes:
    url = str(stream.url)
    declared = stream.headers.get("content-length", "")
    if declared.isdecimal():
        check_size(int(declared), url, max_bytes)
    # Limited before and after unpacking: an endless body may unpack to nothing.
    body = limit_size(stream.iter_raw(), url, max_bytes)
    coding = stream.headers.get("content-encoding", "").strip().lower()
    if coding not in {"", "identity", *CODINGS}:
        message = f"{url} has the content coding {coding!r}; accepted are {OFFERED}"
        raise DocumentFault(ErrorClass.UNSUPPORTED, message)
    unpacked = CODINGS[coding](body) if coding in CODINGS else body
    return b"".join(limit_size(unpacked, url, max_bytes))


def _discard_body(stream: httpx.Response) -> None:
    """Read a short body that is not needed: only then can the connection be used again."""
    declared = stream.headers.get("content-length", "")
    is_short = declared.isdecimal() and int(declared) <= _SHORT_BODY_BYTES
    if is_short or stream.status_code == HTTPStatus.NOT_MODIFIED:
        with suppress(httpx.TransportError):
            for _ in stream.iter_raw():
                pass


def limit_size(pieces: Iterable[bytes], url: str, max_bytes: int) -> Iterator[bytes]:
    """The same pieces, until together they are too large."""
    size = 0
    for piece in pieces:
        size += len(piece)
        check_size(size, url, max_bytes)
        yield piece


def check_size(size: int, url: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise DocumentFault(
            ErrorClass.TOO_LARGE,
            f"{url} has at least {size} bytes, more than the {max_bytes} allowed; "
            "raise PENSTOCK_MAX_DOCUMENT_BYTES to accept it",
        )


def retry_request(request: Callable[[], T], tries: int, sleep: Callable[[float], None]) -> T:
    """Make a request until it succeeds, fails permanently, or `tries` are used up."""
    for number in range(tries - 1):
        try:
            return request()
        except DocumentFault as fault:
            if not is_worth_retrying(fault):
                raise
            # A wait that the host asked for is kept by the limiter, for all threads. Jitter only
            # adds, so that threads that failed together do not come back together.
            if fault.retry_after_seconds is None:
                sleep(_FIRST_WAIT_SECONDS * 2.0**number * (1.0 + 0.5 * random.random()))
    return request()


def is_worth_retrying(fault: DocumentFault) -> bool:
    """Whether the same request may succeed within seconds."""
    if not isinstance(fault, HttpFault) or fault.kind.permanent:
        return False
    if (fault.retry_after_seconds or 0) > MAX_WAIT_SECONDS:
        return False
    status = fault.status
    return status is None or status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500


def require_web_url(url: str) -> httpx.URL:
    """The parsed URL; DocumentFault when it is not http(s)."""
    parsed = parse_url(url)
    if parsed is None:
        raise DocumentFault(ErrorClass.FORBIDDEN, f"{url!r} is not a valid http or https URL")
    return parsed


def checked_addresses(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The host's addresses; DocumentFault when one of them is not allowed.

    One private address among public ones refuses the host: such a mixture is an attack.
    """
    try:
        addresses = resolve_host(host, port)
    except OSError as error:
        reason = error.strerror or error
        raise httpcore.ConnectError(f"the host {host} has no address: {reason}") from error
    for address in addresses:
        if not allow_private and not is_public(address):
            raise DocumentFault(
                ErrorClass.FORBIDDEN,
                f"the host {host} has the address {address}, which is not public; set "
                "PENSTOCK_ALLOW_PRIVATE_ADDRESSES=true to allow it",
            )
    return addresses


def resolve_host(host: str, port: int) -> list[str]:
    """All addresses of a host, in the order the system prefers."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host} is not a valid host name") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether an IP address can be reached from anywhere."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return ip in _PUBLIC_IPV6 and ip not in _SIX_TO_FOUR and ip.is_global
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


class _GuardedBackend(httpcore.NetworkBackend):
    """Resolves and checks a host once, then connects to that address.

    A second look-up could answer differently (DNS rebinding). Host header and TLS name are set
    by the layers above from the host's name, so certificates are checked as usual.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError(f"the host {host} has no address")
        addresses = checked_addresses(host, port, allow_private=self._allow_private)
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return self._sockets.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class _GuardedTransport(httpx.HTTPTransport):
    """Connects to checked addresses only; the environment's proxies are not used.

    Connections in use are as many as there are threads that ask, so only idle ones are counted.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._pool = _Pool(
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=_GuardedBackend(allow_private=allow_private),
        )


class _Pool(httpcore.ConnectionPool):
    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        """Made for the first page that needs it: reading all certificates takes longer than the
        start of a run of local files."""
        return httpx.create_ssl_context()

    def create_connection(self, origin: httpcore.Origin) -> httpcore.ConnectionInterface:
        return _Connection(
            origin,
            ssl_context=self._trusted if origin.scheme == b"https" else None,
            keepalive_expiry=self._keepalive_expiry,
            network_backend=self._network_backend,
        )


class _Connection(httpcore.HTTPConnection):
    """A connection whose responses end within a bounded time."""

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            with self._request_lock:
                if self._connection is None:
                    read_seconds: float = request.extensions["timeout"]["read"]
                    stream = _BoundedStream(self._connect(request), read_seconds)
                    self._connection = _Http1Connection(self._origin, stream, _KEEPALIVE_SECONDS)
        except BaseException:
            self._connect_failed = True
            raise
        return self._connection.handle_request(request)


class _Http1Connection(httpcore.HTTP11Connection):
    """Closed when more has come than the server declared: the surplus, whatever a page has put
    there, would be taken for the next response."""

    def _response_closed(self) -> None:
        surplus, _ = self._h11_state.trailing_data
        if surplus:
            self.close()
        else:
            super()._response_closed()


class _BoundedStream(httpcore.NetworkStream):
    """A stream with a deadline for all that is read after a request was written."""

    def __init__(self, stream: httpcore.NetworkStream, read_seconds: float) -> None:
        self._stream = stream
        self._read_seconds = read_seconds
        self._deadline = 0.0

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._deadline = time.monotonic() + RESPONSE_TIMEOUTS * self._read_seconds
        self._stream.write(buffer, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        read_seconds = timeout or self._read_seconds
        timeout_seconds = min(self._seconds_left(), read_seconds)
        try:
            return self._stream.read(max_bytes, timeout_seconds)
        except httpcore.ReadTimeout as error:
            self._seconds_left()
            raise httpcore.ReadTimeout(f"nothing came for {read_seconds:g} s") from error

    def _seconds_left(self) -> float:
        left_seconds = self._deadline - time.monotonic()
        if left_seconds <= 0:
            limit_seconds = RESPONSE_TIMEOUTS * self._read_seconds
            raise httpcore.ReadTimeout(f"not all of it came within {limit_seconds:g} s")
        return left_seconds

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


_PIECE_BYTES = 1 << 16
_GZIP_WRAPPER = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"


class CompressionError(Exception):
    """The bytes are not in the compression they are said to be in, or end too early."""


def gunzip_pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack in pieces of bounded size, so that the reader can stop at its own limit."""
    member, started = zlib.decompressobj(_GZIP_WRAPPER), False
    for chunk in chunks:
        while chunk:
            if member.eof:
                # A file may hold several members; padding after the last one is not a member.
                if not chunk.startswith(_GZIP_MAGIC[:1]):
                    return
                member = zlib.decompressobj(_GZIP_WRAPPER)
            started = True
            try:
                yield member.decompress(chunk, _PIECE_BYTES)
            except zlib.error as error:
                raise CompressionError(str(error)) from error
            chunk = member.unused_data if member.eof else member.unconsumed_tail
    if started and not member.eof:
        raise CompressionError("it ends too early")


def gunzip_whole(content: bytes, max_bytes: int) -> bytes:
    """The content unpacked if it is gzip, as it is if not; CompressionError above `max_bytes`."""
    if not content.startswith(_GZIP_MAGIC):
        return content
    unpacked = bytearray()
    for piece in gunzip_pieces([content]):
        unpacked += piece
        if len(unpacked) > max_bytes:
            raise CompressionError(f"it unpacks to more than {max_bytes} bytes")
    return bytes(unpacked)


def unbrotli_pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same for Brotli (RFC 7932), which has neither members nor padding.

    The limit is a soft one: a piece may be half as large again.
    """
    import brotli  # type: ignore[import-untyped]

    stream, started = brotli.Decompressor(), False
    try:
        for chunk in filter(None, chunks):
            started = True
            # `can_accept_more_data` is about waiting input only, not about waiting output.
            while piece := stream.process(chunk, output_buffer_limit=_PIECE_BYTES):
                yield piece
                if stream.is_finished():
                    break
                chunk = b""
    except brotli.error as error:
        raise CompressionError(str(error)) from error
    if started and not stream.is_finished():
        raise CompressionError("it ends too early")


OFFERED = "gzip, br"
CODINGS: Mapping[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "gzip": gunzip_pieces,
    # RFC 9110, 8.4.1.3: the old name of the same.
    "x-gzip": gunzip_pieces,
    "br": unbrotli_pieces,
}
"""The content codings that can be unpacked."""
