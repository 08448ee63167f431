"""An HTTP server for tests, on h11, whose answers can be late, slow, cut off or missing."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self, cast

import h11

from penstock.errors import UsageError
from penstock.testing.script import Behaviour, Ending

# Hundreds of clients may connect in the same instant.
_TICKS_TO_CONNECT = 5
_BACKLOG = 1024
_MAX_HEAD_BYTES = 65_536
_SLOW_PIECES = 20
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {498: "Capacity Exceeded"}


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A response, and the behaviour that says how it is sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    behaviour: Behaviour


class HttpServer:
    """A server on a loopback port, with an event loop in a thread. A subclass answers the
    requests."""

    def __init__(self) -> None:
        self._is_running = False
        self._port = 0
        self._lock = threading.Lock()
        self._waiting = 0
        self._peak = 0
        self._transports: set[asyncio.Transport] = set()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread: threading.Thread

    def start(self) -> Self:
        """Listen on a free port; `with` does this. After a close, on the same one again."""
        if self._is_running:
            raise UsageError("this Groq server is running already: start it once")
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._listen(started)),
            name="penstock-groq-server",
            daemon=True,
        )
        self._thread.start()
        self._port = started.result()
        self._is_running = True
        return self

    def close(self) -> None:
        """End every connection at once, also those that wait for an answer."""
        if self._is_running:
            self._is_running = False
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """For the Groq client, and for `EXTRACTION_BASE_URL`."""
        if not self._is_running:
            raise UsageError("this Groq server is not running: use `with`, or call start()")
        return f"http://127.0.0.1:{self._port}"

    @property
    def peak_concurrency(self) -> int:
        """The most requests that waited for their answers at one time."""
        with self._lock:
            return self._peak

    def _reset_peak(self) -> None:
        with self._lock:
            self._peak = self._waiting

    def _count_waiting(self, change: int) -> None:
        with self._lock:
            self._waiting += change
            self._peak = max(self._peak, self._waiting)

    def _respond(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> ServerResponse:
        """The response. This is called on the server's thread and must not block; the names of
        the headers are lower case."""
        raise NotImplementedError

    async def _listen(self, started: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await self._loop.create_server(
                lambda: _Connection(self), "127.0.0.1", self._port, backlog=_BACKLOG
            )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        # A connection that was accepted a moment ago gets its transport first: ended before that,
        # it would leave its socket open.
        for _ in range(_TICKS_TO_CONNECT):
            await asyncio.sleep(0)
        for transport in list(self._transports):
            transport.abort()
        await server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client's connection: its requests are answered one after the other."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._head: h11.Request
        self._body = bytearray()
        self._sending: asyncio.Task[None] | None = None
        self._waiting = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server._transports.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server._transports.discard(self._transport)
        if self._sending is not None:
            self._sending.cancel()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._read_events()

    def _read_events(self) -> None:
        try:
            while self._sending is None and not self._transport.is_closing():
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        self._write(h11.InformationalResponse(status_code=100, headers=[]))
                    return
                self._read_event(event)
        except h11.RemoteProtocolError as error:
            self._refuse(str(error))

    def _read_event(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._head, self._body = event, bytearray()
        elif isinstance(event, h11.Data):
            self._body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self._waiting = True
            self._server._count_waiting(1)
            path = self._head.target.decode("latin-1").partition("?")[0]
            headers = {name.decode(): value.decode("latin-1") for name, value in self._head.headers}
            method = self._head.method.decode()
            response = self._server._respond(method, path, headers, bytes(self._body))
            self._sending = asyncio.get_running_loop().create_task(self._send(response))
            self._sending.add_done_callback(self._sent)

    async def _send(self, response: ServerResponse) -> None:
        behaviour = response.behaviour
        await asyncio.sleep(behaviour.latency_seconds)
        if behaviour.ending is Ending.NEVER:
            await asyncio.Event().wait()
        if behaviour.ending is Ending.UNSENT:
            self._transport.close()
            return
        *early, last = _pieces(response)
        head = self._http.send(_head_of(response)) or b""
        for piece in early:
            self._write(h11.Data(piece), after=head)
            head = b""
            await asyncio.sleep(behaviour.body_seconds / len(early))
        # Before the last bytes go: a client that has its answer does not count as waiting.
        self._stop_waiting()
        self._write(h11.Data(last), after=head)
        if behaviour.ending is Ending.WHOLE:
            self._write(h11.EndOfMessage())
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self._transport.close()

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending = None
        self._stop_waiting()
        if not task.cancelled() and task.exception() is not None:
            self._transport.abort()
            task.result()
        self._read_events()

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._server._count_waiting(-1)

    def _write(self, event: h11.Event, after: bytes = b"") -> None:
        self._transport.write(after + (self._http.send(event) or b""))

    def _refuse(self, reason: str) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("content-type", "text/plain"), ("content-length", str(len(reason)))]
            self._write(h11.Response(status_code=400, headers=headers))
            self._write(h11.Data(reason.encode("ascii", "replace")))
        self._transport.close()


def _head_of(response: ServerResponse) -> h11.Response:
    headers = (*response.headers, ("content-length", str(len(response.body))))
    return h11.Response(
        status_code=response.status,
        headers=[(name.encode(), value.encode("latin-1", "replace")) for name, value in headers],
        reason=_REASONS.get(response.status, "Unknown").encode(),
    )


def _pieces(response: ServerResponse) -> list[bytes]:
    """What is sent of the body, in the pieces that it is sent in."""
    midway = response.behaviour.ending is Ending.MIDWAY
    body = response.body[: len(response.body) // 2] if midway else response.body
    if not response.behaviour.body_seconds or not body:
        return [body]
    size = -(-len(body) // _SLOW_PIECES)
    return [body[start : start + size] for start in range(0, len(body), size)]
