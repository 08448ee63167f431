"""A loopback web server that answers as it was told, and remembers what it was asked."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer. `length` overrides the true Content-Length; `stall` sends no more than that."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    stall: bool = False


@dataclass(frozen=True)
class Asked:
    path: str
    headers: Mapping[str, str]


class ScriptedServer(ThreadingHTTPServer):
    """Each path has a queue of replies; the last one is given for ever. Unknown paths are 404."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.released = threading.Event()
        self._replies: dict[str, list[Reply]] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, path: str, *replies: Reply) -> str:
        self._replies[path] = list(replies)
        return self.url + path

    def page(self, path: str, body: str, media_type: str = "text/html") -> str:
        return self.reply(path, Reply(body=body.encode(), headers={"Content-Type": media_type}))

    def requests_for(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == path]

    def next_reply(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            replies = self._replies.get(asked.path, [Reply(404)])
            return replies.pop(0) if len(replies) > 1 else replies[0]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is what several tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.next_reply(Asked(self.path, headers))
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        length = len(reply.body) if reply.length is None else reply.length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(reply.body)
        if reply.stall:
            self.server.released.wait(30)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port
