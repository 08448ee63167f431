"""A loopback web server that speaks HTTP/2 over TLS, and misbehaves as it was told."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from tests.simulator.certificate import server_context

_FRAME_BYTES = 16_000


@dataclass(frozen=True)
class Answer:
    """One answer. `ending` is how it ends: whole, reset, goaway, stall, endless or short."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    ending: str = "whole"


@dataclass
class Asked:
    """A request, the number of its connection, and what became of the answer."""

    path: str
    headers: dict[str, str]
    connection: int
    sent_bytes: int = 0
    was_reset: bool = False


@dataclass
class Http2Server:
    """Each path has a queue of answers; the last one is given for ever. Unknown paths are 404."""

    certificate: Path
    max_streams: int = 100
    gather: int = 1
    """Answers are held back until so many requests wait on one connection."""
    asked: list[Asked] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    """The host that each connection named in its TLS greeting."""
    connections: int = 0

    def __post_init__(self) -> None:
        self._answers: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._tls = server_context(self.certificate, "h2")
        self._tls.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def answer(self, path: str, *answers: Answer) -> str:
        self._answers[path] = list(answers)
        return f"https://site.test:{self.port}{path}"

    def requests_for(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == path]

    def next_answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            answers = self._answers.get(asked.path, [Answer(status=404)])
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def accept(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            # Small frames are not held back until the client has acknowledged the last one.
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._open.add(plain)
            thread = threading.Thread(target=self._serve, args=(plain, self.connections))
            self._threads.append(thread)
            thread.start()

    def hang_up(self) -> None:
        """End all connections, as an impatient server does with idle ones."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        # A close alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def join(self) -> None:
        self.hang_up()
        for thread in self._threads:
            thread.join()

    def _serve(self, plain: socket.socket, number: int) -> None:
        try:
            with self._tls.wrap_socket(plain, server_side=True) as secure:
                self._open.add(secure)
                with suppress(OSError, h2.exceptions.ProtocolError):
                    _Conversation(self, secure, number).run()
                self._open.discard(secure)
        except OSError:
            plain.close()
        self._open.discard(plain)


class _Conversation:
    """One connection, served by one thread."""

    def __init__(self, server: Http2Server, secure: ssl.SSLSocket, number: int) -> None:
        self._server = server
        self._socket = secure
        self._number = number
        self._waiting: list[tuple[int, Answer, Asked]] = []
        self._bodies: dict[int, tuple[bytes, Answer, Asked]] = {}
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self._h2 = h2.connection.H2Connection(config)
        limit = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS
        self._h2.local_settings = h2.settings.Settings(
            client=False, initial_values={limit: server.max_streams}
        )

    def run(self) -> None:
        self._h2.initiate_connection()
        self._socket.sendall(self._h2.data_to_send())
        while data := self._socket.recv(1 << 16):
            for event in self._h2.receive_data(data):
                self._note(event)
            while self._pump():
                self._socket.sendall(self._h2.data_to_send())
            self._socket.sendall(self._h2.data_to_send())

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers or ()}
            asked = Asked(headers[":path"], headers, self._number)
            self._waiting.append((event.stream_id or 0, self._server.next_answer(asked), asked))
            if len(self._waiting) >= self._server.gather:
                self._answer_all()
        elif isinstance(event, h2.events.StreamReset):
            cancelled = self._bodies.pop(event.stream_id or 0, None)
            if cancelled is not None:
                cancelled[-1].was_reset = True

    def _answer_all(self) -> None:
        for stream, answer, asked in self._waiting:
            if answer.ending == "goaway":
                self._h2.close_connection(last_stream_id=0)
            elif answer.ending == "reset":
                self._h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
            else:
                self._begin(stream, answer, asked)
        self._waiting.clear()

    def _begin(self, stream: int, answer: Answer, asked: Asked) -> None:
        self._bodies[stream] = (answer.body, answer, asked)
        if answer.ending == "stall":
            return
        length = len(answer.body) + (10 if answer.ending == "short" else 0)
        declared = () if answer.ending == "endless" else (("content-length", str(length)),)
        head = ((":status", str(answer.status)), *declared, *answer.headers)
        self._h2.send_headers(stream, list(head))

    def _pump(self) -> bool:
        """Send of every body what the client has room for; True while it has room for more."""
        has_room = [self._send_some(stream) for stream in list(self._bodies)]
        return any(has_room)

    def _send_some(self, stream: int) -> bool:
        body, answer, asked = self._bodies[stream]
        if answer.ending == "stall":
            return False
        body = bytes(_FRAME_BYTES) if answer.ending == "endless" else body
        room = min(self._h2.local_flow_control_window(stream), _FRAME_BYTES, len(body))
        if body and not room:
            return False
        ends = room == len(body) and answer.ending != "endless"
        self._h2.send_data(stream, body[:room], end_stream=ends)
        asked.sent_bytes += room
        self._bodies[stream] = (body[room:], answer, asked)
        if ends:
            del self._bodies[stream]
        return not ends


@contextmanager
def running_http2_server(certificate: Path) -> Iterator[Http2Server]:
    server = Http2Server(certificate)
    thread = threading.Thread(target=server.accept)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server.join()
