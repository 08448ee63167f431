"""HTTP/2 connections that many threads can share."""

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httpcore

from penstock.crawl.answertime import answer_ends, patience

KEEP_SECONDS = 5.0
_READ_BYTES = 1 << 16
# So much of one body may come before somebody asks for it; all bodies together may have more.
_STREAM_WINDOW = 1 << 20
_CONNECTION_WINDOW = 1 << 24
_UNHEARD_READS = 16


@dataclass(eq=False, slots=True)
class _Stream:
    """One answer on its way, among others on the same connection."""

    connection: "Http2Connection"
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


class Http2Connection(httpcore.ConnectionInterface):
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
        until = time.monotonic() + patience(stream.ends, self._read_seconds)
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
            ends = answer_ends(self._read_seconds)
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
        return self.is_idle() and time.monotonic() > self._idle_since + KEEP_SECONDS

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
