"""HTTP/1.1 and HTTP/2 connections that go to the very address the guard has checked."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from penstock.crawl import guard
from penstock.crawl.answertime import answer_ends, patience
from penstock.crawl.http2 import KEEP_SECONDS, Http2Connection

_MOST_ADDRESSES = 4


class GuardedBackend(httpcore.NetworkBackend):
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
        for address in self._addresses(host, port)[:_MOST_ADDRESSES]:
            try:
                return self._sockets.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            return guard.checked_addresses(host, port, allow_private=self._allow_private)
        except OSError as error:
            reason = error.strerror or error
            raise httpcore.ConnectError(f"the host {host} has no address: {reason}") from error


class GuardedTransport(httpx.BaseTransport):
    """Carries httpx requests over guarded connections; the environment's proxies are not used.

    Connections in use are as many as there are threads that ask, so only idle ones are counted.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._pool = _Pool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=KEEP_SECONDS,
            network_backend=GuardedBackend(allow_private=allow_private),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        with _httpx_errors():
            answer = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    url,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _httpx_errors():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        with _httpx_errors():
            self._answer.close()


@contextmanager
def _httpx_errors() -> Iterator[None]:
    try:
        yield
    except httpcore.TimeoutException as error:
        raise httpx.TimeoutException(str(error)) from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise httpx.TransportError(str(error)) from error


class _Pool(httpcore.ConnectionPool):
    def create_connection(self, origin: httpcore.Origin) -> httpcore.ConnectionInterface:
        return _Connection(
            origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            http2=True,
            network_backend=self._network_backend,
        )


class _Connection(httpcore.HTTPConnection):
    """Speaks the protocol that the server chose, in a way that ends and that threads can share."""

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            with self._request_lock:
                if self._connection is None:
                    read_seconds: float = request.extensions["timeout"]["read"]
                    self._connection = self._speak(self._connect(request), read_seconds)
        except BaseException:
            self._connect_failed = True
            raise
        return self._connection.handle_request(request)

    def _speak(
        self, stream: httpcore.NetworkStream, read_seconds: float
    ) -> httpcore.ConnectionInterface:
        tls = stream.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            return Http2Connection(self._origin, stream.get_extra_info("socket"), read_seconds)
        bounded = _BoundedStream(stream, read_seconds)
        return _Http1Connection(self._origin, bounded, KEEP_SECONDS)


class _Http1Connection(httpcore.HTTP11Connection):
    """Not used again when more has come than the server declared: that, whatever a page has put
    there, would be taken for the next answer."""

    def _response_closed(self) -> None:
        surplus, _ = self._h11_state.trailing_data
        if surplus:
            self.close()
        else:
            super()._response_closed()


class _BoundedStream(httpcore.NetworkStream):
    """What comes after a request was written comes within a bounded time, or not at all."""

    def __init__(self, stream: httpcore.NetworkStream, read_seconds: float) -> None:
        self._stream = stream
        self._read_seconds = read_seconds
        self._ends = 0.0

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._ends = answer_ends(self._read_seconds)
        self._stream.write(buffer, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        read_seconds = timeout or self._read_seconds
        patience_seconds = patience(self._ends, read_seconds)
        try:
            return self._stream.read(max_bytes, patience_seconds)
        except httpcore.ReadTimeout as error:
            # Perhaps the time for the whole answer has run out as well.
            patience(self._ends, read_seconds)
            raise httpcore.ReadTimeout(f"nothing came for {read_seconds:g} s") from error

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
