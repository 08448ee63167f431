"""The one factory of Groq clients, whose calls can be cut off."""

import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx

from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from groq import Groq

# What the Groq client puts between its base address and the endpoint.
_PREFIX = "/openai/v1/"
# For servers that need no key: the Groq client insists on one.
_NO_KEY = "none"
_STARTED = "penstock.started"
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


def build_groq_client(
    api_key: str | None,
    base_url: str | None,
    timeout_seconds: float = 60.0,
    connections: int = 100,
) -> "Groq":
    """The official client. Its own retries are off: the retry policy is ours.

    A base address that ends in `/v1`, as Ollama, vLLM and llama.cpp have it, is used unchanged.
    A key or an address that cannot be one raises ConfigurationError.
    """
    from groq import Groq

    key = (api_key or "").strip() or _NO_KEY
    # Checked here, since the error of a key that no header can carry would show the key.
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(
            "GROQ_API_KEY holds characters that no key has: copy it again, without anything around"
        )
    address = (base_url or "").strip().rstrip("/")
    if address and not address.lower().startswith(("http://", "https://")):
        raise ConfigurationError(
            "EXTRACTION_BASE_URL is no web address: begin it with http:// or https://"
        )
    http_client = AbortableClient(timeout_seconds, connections, drop_prefix=address.endswith("/v1"))
    return Groq(
        api_key=key,
        base_url=address or None,
        timeout=timeout_seconds,
        max_retries=0,
        http_client=http_client,
    )


class AbortableClient(httpx.Client):
    """An HTTP client that ends a call when its whole answer has not come within the timeout, and
    every call when it is closed. Safe from several threads."""

    def __init__(self, timeout_seconds: float, connections: int, *, drop_prefix: bool) -> None:
        super().__init__(
            timeout=timeout_seconds,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            event_hooks={"response": [self._limit_body]},
        )
        self._timeout_seconds = timeout_seconds
        self._drop_prefix = drop_prefix
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        extensions = {"trace": self._trace, _STARTED: time.monotonic()}
        request.extensions = {**request.extensions, **extensions}
        if self._drop_prefix:
            path = request.url.path.replace(f"/v1{_PREFIX}", "/v1/", 1)
            request.url = request.url.copy_with(path=path)
        return super().send(request, **options)

    def close(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            _shut_down(one)
        super().close()

    def _trace(self, event: str, details: dict[str, Any]) -> None:
        if event not in _CONNECTED:
            return
        connected = details["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets.add(connected)
        if self.is_closed:
            _shut_down(connected)

    def _limit_body(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.SyncByteStream)
        ends_at = response.request.extensions[_STARTED] + self._timeout_seconds
        response.stream = _TimedStream(response.stream, ends_at)


class _TimedStream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, ends_at: float) -> None:
        self._stream = stream
        self._ends_at = ends_at

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            if time.monotonic() > self._ends_at:
                raise httpx.ReadTimeout("the answer takes too long to come")
            yield piece

    def close(self) -> None:
        self._stream.close()


def _shut_down(connection: socket.socket) -> None:
    # Closing it would leave a thread that reads from it waiting.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
