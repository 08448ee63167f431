"""HTTP/1.1 and HTTP/2 connections that go to the very address the guard has checked."""

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httpcore
import httpx

from penstock.crawl import guard

_KEEP_SECONDS = 5.0
_MOST_ADDRESSES = 4
# A server that sends a byte now and then never times out; the whole answer does after this many.
_ANSWER_TIMEOUTS = 10
_READ_BYTES = 1 << 16
# So much of one body may come before somebody asks for it; all bodies together may have more.
_STREAM_WINDOW = 1 << 20
_CONNECTION_WINDOW = 1 << 24
_UNHEARD_READS = 16


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
            keepalive_expiry=_KEEP_SECONDS,
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
            return _Http2Connection(self._origin, stream.get_extra_info("socket"), read_seconds)
        bounded = _BoundedStream(stream, read_seconds)
        return _Http1Connection(self._origin, bounded, _KEEP_SECONDS)


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
        self._ends = time.monotonic() + _ANSWER_TIMEOUTS * self._read_seconds
        self._stream.write(buffer, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        read_seconds = timeout or self._read_seconds
        patience_seconds = _patience(self._ends, read_seconds)
        try:
            return self._stream.read(max_bytes, patience_seconds)
        except httpcore.ReadTimeout as error:
            # Perhaps the time for the whole answer has run out as well.
            _patience(self._ends, read_seconds)
            raise httpcore.ReadTimeout(f"nothing came for {read_seconds:g} s") from error

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _patience(ends: float, read_seconds: float) -> float:
    """How long to wait for the next bytes of an answer that has to be there at `ends`."""
    left_seconds = ends - time.monotonic()
    if left_seconds <= 0:
        limit_seconds = _ANSWER_TIMEOUTS * read_seconds
        raise httpcore.ReadTimeout(f"not all of it came within {limit_seconds:g} s")
    return min(left_seconds, read_seconds)


@dataclass(eq=False, slots=True)
class _Stream:
    """One answer on its way, among others on the same connection."""

    connection: "_Http2Connection"
    number: int
    ends: float
    events: deque[h2.events.Event] = field(default_factory=deque)
    is_over: bool = False
    """The server sends no more of it."""

    def __iter__(self) -> Iterator[bytes]:
        while isinstance(event := self.connection.next_event(self), h2.events.DataReceived):
            yield event.data or b""

    def close(self) -> None:
        self.connection.release(self)


class _Http2Connection(httpcore.ConnectionInterface):
    """GET requests of many threads over one TLS connection.

    With httpcore's own, threads that ask at the same time spoil its state and each other's
    answers. Here everything, reading and writing included, is done under one lock. Only waiting
    for bytes is not; one of the threads that wait for an answer does that for all of them.
    """

    def __init__(self, origin: httpcore.Origin, tls: ssl.SSLSocket, read_seconds: float) -> None:
        self._origin = origin
        self._socket = tls
        self._read_seconds = read_seconds
        self._h2 = _open_h2()
        self._changed = threading.Condition()
        self._streams: dict[int, _Stream] = {}
        self._is_watched = False
        self._failure: str | None = None
        self._is_used = False
        self._is_doubtful = False
        self._idle_since = 0.0

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        stream = self._open(request)
        try:
            status, headers = _head(self.next_event(stream))
        except BaseException:
            stream.close()
            raise
        version = {"http_version": b"HTTP/2"}
        return httpcore.Response(status, headers=headers, content=stream, extensions=version)

    def next_event(self, stream: _Stream) -> h2.events.Event:
        """What comes next of an answer; waits for it."""
        until = time.monotonic() + _patience(stream.ends, self._read_seconds)
        with self._changed:
            while not stream.events:
                if self._failure is not None:
                    raise httpcore.RemoteProtocolError(self._failure)
                self._wait(until - time.monotonic())
            event = stream.events.popleft()
            self._acknowledge(event)
        if isinstance(event, h2.events.StreamReset):
            raise httpcore.RemoteProtocolError(f"the server broke off: {_named(event)}")
        return event

    def release(self, stream: _Stream) -> None:
        """Nobody wants more of this answer: the server is told, if it has not sent it all."""
        with self._changed:
            if self._streams.pop(stream.number, None) is None:
                return
            self._idle_since = time.monotonic()
            for event in stream.events:
                self._acknowledge(event)
            if not stream.is_over and self._failure is None:
                with self._ended_by_errors():
                    self._h2.reset_stream(stream.number, h2.errors.ErrorCodes.CANCEL)
                    self._send()
            if self._is_doubtful and not self._streams:
                self._fail("an answer was late")

    def _open(self, request: httpcore.Request) -> _Stream:
        with self._changed:
            self._catch_up()
            if not self.is_available():
                # On a new connection the same would only happen again, and again.
                if self._is_used:
                    raise httpcore.ConnectionNotAvailable
                raise httpcore.RemoteProtocolError(self._failure or "the server takes no requests")
            self._is_used = True
            number = self._h2.get_next_available_stream_id()
            ends = time.monotonic() + _ANSWER_TIMEOUTS * self._read_seconds
            stream = self._streams[number] = _Stream(self, number, ends)
            with self._ended_by_errors():
                self._h2.send_headers(number, _request_headers(request), end_stream=True)
                self._send()
            return stream

    def _catch_up(self) -> None:
        """Hear what the server said while nobody listened, such as goodbye."""
        reads = 0
        # Bytes taken from under a thread that waits for them would leave it waiting.
        while not self._is_watched and reads < _UNHEARD_READS and self._receive():
            reads += 1

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            # Perhaps only this answer is late; perhaps nothing ever comes here again.
            self._is_doubtful = True
            raise httpcore.ReadTimeout(f"nothing came for {self._read_seconds:g} s")
        if self._is_watched:
            self._changed.wait(seconds)
            return
        self._is_watched = True
        arrival = select.poll()
        arrival.register(self._socket, select.POLLIN)
        self._changed.release()
        try:
            arrival.poll(seconds * 1000)
        finally:
            self._changed.acquire()
            self._is_watched = False
            self._changed.notify_all()
        self._receive()

    def _receive(self) -> bool:
        """Take in what has come, without waiting; False when there was nothing."""
        if self._failure is not None:
            return False
        with self._ended_by_errors():
            self._socket.settimeout(0)
            try:
                data = self._socket.recv(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            if not data:
                self._fail("the server hung up")
            for event in self._h2.receive_data(data):
                self._note(event)
            self._send()
        return True

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self._fail(f"the server ended the connection: {_named(event)}")
        if not isinstance(event, _ANSWER_EVENTS):
            return
        stream = self._streams.get(event.stream_id or 0)
        # Frames without data are no progress, and there is no end to how many could be sent.
        if stream is None or (isinstance(event, h2.events.DataReceived) and not event.data):
            self._acknowledge(event)
            return
        stream.events.append(event)
        stream.is_over |= isinstance(event, h2.events.StreamEnded | h2.events.StreamReset)

    def _acknowledge(self, event: h2.events.Event) -> None:
        """Let the server send as much again as has been taken off its hands."""
        if self._failure is not None or not isinstance(event, h2.events.DataReceived):
            return
        with self._ended_by_errors():
            self._h2.acknowledge_received_data(
                event.flow_controlled_length or 0, event.stream_id or 0
            )
            self._send()

    def _send(self) -> None:
        data = self._h2.data_to_send()
        if data and self._failure is None:
            self._socket.settimeout(self._read_seconds)
            self._socket.sendall(data)

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, h2.exceptions.H2Error) as error:
            self._fail(str(error) or type(error).__name__)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
            with suppress(OSError):
                # Wakes the thread that waits for bytes.
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._fail("the connection was closed")

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        return origin == self._origin

    def is_available(self) -> bool:
        most_streams = self._h2.remote_settings.max_concurrent_streams
        is_good = self._failure is None and not self._is_doubtful
        return is_good and len(self._streams) < most_streams

    def has_expired(self) -> bool:
        return self.is_idle() and time.monotonic() > self._idle_since + _KEEP_SECONDS

    def is_idle(self) -> bool:
        return self._is_used and self._failure is None and not self._streams

    def is_closed(self) -> bool:
        return self._failure is not None


_ANSWER_EVENTS = (
    h2.events.ResponseReceived,
    h2.events.DataReceived,
    h2.events.StreamEnded,
    h2.events.StreamReset,
)


def _named(event: h2.events.StreamReset | h2.events.ConnectionTerminated) -> str:
    """Why the server did it; codes that nobody has named are numbers."""
    return str(getattr(event.error_code, "name", event.error_code))


def _open_h2() -> h2.connection.H2Connection:
    # Servers send headers that the standard does not allow; their pages are none the worse.
    config = h2.config.H2Configuration(validate_inbound_headers=False)
    connection = h2.connection.H2Connection(config)
    codes = h2.settings.SettingCodes
    connection.local_settings = h2.settings.Settings(
        initial_values={
            codes.ENABLE_PUSH: 0,
            codes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            codes.MAX_HEADER_LIST_SIZE: connection.DEFAULT_MAX_HEADER_LIST_SIZE,
        }
    )
    # Some servers take offence at settings that are younger than they are.
    del connection.local_settings[codes.ENABLE_CONNECT_PROTOCOL]
    connection.initiate_connection()
    connection.increment_flow_control_window(_CONNECTION_WINDOW)
    return connection


def _request_headers(request: httpcore.Request) -> list[tuple[bytes, bytes]]:
    headers = {name.lower(): value for name, value in request.headers}
    return [
        (b":method", request.method),
        (b":authority", headers.pop(b"host")),
        (b":scheme", request.url.scheme),
        (b":path", request.url.target),
        *headers.items(),
    ]


def _head(event: h2.events.Event) -> tuple[int, list[tuple[bytes, bytes]]]:
    if isinstance(event, h2.events.ResponseReceived):
        headers = [(bytes(name), bytes(value)) for name, value in event.headers or ()]
        status = dict(headers).get(b":status", b"")
        if status.isdigit():
            return int(status), [header for header in headers if not header[0].startswith(b":")]
    raise httpcore.RemoteProtocolError("the server sent no status")
