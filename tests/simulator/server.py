"""The loopback web server of a site: threads, a record of who asked what, and an orderly end."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.simulator.visit import Answer, Request, Visit

Serve = Callable[[Visit], None]
Find = Callable[[Request], Answer]


class SiteServer(ThreadingHTTPServer):
    """Asks `find` for the ordinary answer, and lets `serve` send it, or something else."""

    daemon_threads = False

    def __init__(self, find: Find, serve: Serve) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.find = find
        self.serve = serve
        self.stopping = threading.Event()
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._under_way = 0
        self._connections: set[socket.socket] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, name="site"
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Also ends connections that stall, or that a client keeps open for later."""
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def begin(self, path: str, query: str, headers: dict[str, str], connection: int) -> Request:
        with self._lock:
            self._under_way += 1
            request = Request(path, query, headers, self._under_way, connection)
            self.requests.append(request)
            return request

    def end(self, request: Request) -> None:
        with self._lock:
            self._under_way -= 1
            request.is_over = True

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._connections.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: SiteServer
    protocol_version = "HTTP/1.1"
    # Head and body are sent apart; the second would wait until the first is acknowledged.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = self.server.begin(path, query, headers, self.client_address[1])
        visit = Visit(request, self.server.find(request), self.connection, self.server.stopping)
        try:
            self.server.serve(visit)
        except OSError:
            visit.ends_connection = True
        finally:
            self.server.end(request)
        self.close_connection = self.close_connection or visit.ends_connection

    def log_message(self, format: str, *args: Any) -> None:
        pass
