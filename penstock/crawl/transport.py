"""HTTP connections that go to the very address the guard has checked."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from penstock.crawl import guard


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
        for address in self._addresses(host, port):
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
    """Carries httpx requests over guarded connections; the environment's proxies are not used."""

    def __init__(self, *, allow_private: bool) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
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
