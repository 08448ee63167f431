"""The demo's careers site on loopback, at the same address from one demo to the next."""

import logging
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Any, Self

from entrypoints.demo.static_files import StaticFileHandler
from penstock.errors import ServiceError, UsageError

_HOST = "127.0.0.1"
_FIRST_CHOICES = range(20_000, 30_000)
_TRIES = 50
_STOP_POLL_SECONDS = 0.05

_log = logging.getLogger(__name__)


class DemoSite:
    """Serve a folder while the context lasts; the port is remembered, so URLs stay the same."""

    def __init__(self, folder: Path, port_file: Path) -> None:
        self._folder = folder
        self._port_file = port_file
        self._server: _SiteServer | None = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """Address of the site, without a slash at the end."""
        if self._server is None:
            raise UsageError("the demo site has no address yet: enter it with `with` first")
        return _format_url(self._server.port)

    def __enter__(self) -> Self:
        if not self._folder.is_dir():
            raise UsageError(f"there is no folder {self._folder} to serve as the demo site")
        self._port_file.parent.mkdir(parents=True, exist_ok=True)
        self._server = self._bind()
        self._port_file.write_text(f"{self._server.port}\n", encoding="ascii")
        self._thread = Thread(
            target=self._server.serve_forever,
            args=(_STOP_POLL_SECONDS,),
            name="demo-site",
            daemon=True,
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def _bind(self) -> "_SiteServer":
        refusal: OSError | None = None
        for port in self._list_candidates():
            try:
                return _SiteServer(self._folder, port)
            except OSError as error:
                refusal = error
        raise ServiceError(
            f"no port for the demo site: {_TRIES} ports of {_HOST} between "
            f"{_FIRST_CHOICES.start} and {_FIRST_CHOICES.stop - 1} were refused ({refusal}); "
            "stop what occupies them and try again"
        ) from refusal

    def _list_candidates(self) -> Iterator[int]:
        remembered = self._recall_port()
        if remembered is not None:
            yield remembered
        yield from random.sample(_FIRST_CHOICES, _TRIES)

    def _recall_port(self) -> int | None:
        try:
            port = int(self._port_file.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None
        return port if 1024 <= port <= 65_535 else None


class _SiteServer(ThreadingTCPServer):
    # HTTPServer would look up the host's name on start, which can take seconds.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, port: int) -> None:
        handler = partial(StaticFileHandler, folder=folder.resolve(), base_url=_format_url(port))
        super().__init__((_HOST, port), handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.debug("a request from %s failed", client_address, exc_info=True)


def _format_url(port: int) -> str:
    return f"http://{_HOST}:{port}"
