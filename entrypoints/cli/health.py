"""A worker's health over HTTP, on a port of its own."""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from penstock.settings import hide_paths, mask_url

log = logging.getLogger(__name__)
SERVICE = "extraction-worker"
PATHS = ("/health", "/healthz")


class HealthServer:
    """Within a block, answers on a port of its own; 503 with the reason while `find_fault` has one.

    The port may be open to all, so the reason names no paths; `folders` are hidden as a whole,
    since there may be spaces in them. The log has the full reason.
    A port that is taken costs a warning and nothing else: the work is more important.
    """

    def __init__(
        self,
        port: int,
        find_fault: Callable[[], str | None],
        host: str = "",
        folders: Iterable[Path] = (),
    ) -> None:
        self._find_fault = find_fault
        self._folders = tuple(folders)
        self._address = (host, port)
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.server_port

    def __enter__(self) -> Self:
        try:
            self._server = ThreadingHTTPServer(self._address, _handler(self._find_public_fault))
        except OSError as error:
            log.warning(
                "no health endpoint: port %d cannot be used (%s); set EXTRACTION_HEALTHCHECK_PORT "
                "to another one, or to 0 to do without",
                self._address[1],
                error.strerror or error,
            )
            return self
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, name="penstock-health", daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _find_public_fault(self) -> str | None:
        fault = self._find_fault()
        return None if fault is None else hide_paths(mask_url(fault), self._folders)


def _handler(find_fault: Callable[[], str | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # A peer that sends nothing must not keep a thread for ever.
        timeout = 5

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in PATHS:
                self._answer(404, {"status": "unknown path", "service": SERVICE})
                return
            fault = find_fault()
            if fault is None:
                self._answer(200, {"status": "healthy", "service": SERVICE})
            else:
                self._answer(503, {"status": "unhealthy", "service": SERVICE, "reason": fault})

        def _answer(self, status: int, body: dict[str, str]) -> None:
            # Compact, so that a plain text comparison by a monitor holds.
            content = json.dumps(body, separators=(",", ":")).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    return Handler
