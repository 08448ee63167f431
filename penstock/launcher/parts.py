"""The parts of an installation: each a server or worker that is started, looked at and ended."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from penstock.errors import ServiceError
from penstock.launcher.marks import end_marked, mark_of, marked_environment
from penstock.launcher.postgres import PostgresServer
from penstock.launcher.prefect_server import PrefectServer
from penstock.launcher.processes import (
    ProcessIdentity,
    ask_children_to_end,
    last_lines,
    wait_until,
)

_START_SECONDS = 60.0


class Part(Protocol):
    """What an installation knows of each of its parts."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str | None: ...

    @property
    def log_path(self) -> Path: ...

    def start(self) -> None:
        """Start it, or again, and wait until it can be used; ServiceError says why it cannot."""

    def process(self) -> ProcessIdentity | None:
        """The living process, if there is one."""

    def stop(self) -> None:
        """End it and all it has started; nothing happens when it is not running."""


class ProcessPart:
    """A command in a session of its own, where the terminal's Ctrl-C does not reach it.

    `children_first` is for one that would not wait for its children when it is told to end.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        logs: Path,
        installation_id: str,
        *,
        address: str | None = None,
        is_ready: Callable[[], bool] = lambda: True,
        grace_seconds: float = 10.0,
        children_first: bool = False,
    ) -> None:
        self.name = name
        self.address = address
        self.log_path = logs / f"{name}.log"
        self._command = command
        self._mark = mark_of(installation_id, name)
        self._is_ready = is_ready
        self._grace_seconds = grace_seconds
        self._children_first = children_first
        self._started: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # What an earlier one has started may still hold its port.
        end_marked(self._mark, self._grace_seconds)
        with self.log_path.open("ab") as log:
            started = self._started = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=marked_environment(self._mark),
                start_new_session=True,
            )
        wait_until(lambda: started.poll() is not None or self._is_ready(), _START_SECONDS)
        if started.poll() is not None or not self._is_ready():
            self.stop()
            raise ServiceError(
                f"{self.name} did not start. "
                f"Its log, {self.log_path}, ends with:\n{last_lines(self.log_path)}"
            )

    def process(self) -> ProcessIdentity | None:
        if self._started is None or self._started.poll() is not None:
            return None
        return ProcessIdentity.of(self._started.pid)

    def stop(self) -> None:
        """In good order, then by force, with all it has started."""
        started, self._started = self._started, None
        if started is not None and started.poll() is None:
            if self._children_first:
                ask_children_to_end(started.pid, self._grace_seconds)
            started.terminate()
            wait_until(lambda: started.poll() is not None, self._grace_seconds)
        end_marked(self._mark, self._grace_seconds)
        if started is not None:
            started.wait()


class PostgresPart:
    """The Postgres of one folder; always on the port of its first start."""

    name = "postgres"

    def __init__(self, folder: Path, password_file: Path) -> None:
        self._folder = folder
        self._password_file = password_file
        self.server = PostgresServer(folder, password_file=password_file)
        self.log_path = self.server.log_path
        self.address: str | None = None

    def start(self) -> None:
        self.server.start()
        self.server = PostgresServer(
            self._folder, self.server.port, password_file=self._password_file
        )
        self.address = self.server.dsn()

    def process(self) -> ProcessIdentity | None:
        return self.server.process()

    def stop(self) -> None:
        self.server.stop()


class PrefectPart:
    """The Prefect server of a home."""

    name = "prefect"

    def __init__(self, server: PrefectServer) -> None:
        self._server = server
        self.log_path = server.log_path
        self.address: str | None = None
        self._process: ProcessIdentity | None = None

    def start(self) -> None:
        import psutil

        found = self._server.ensure()
        self.address = found.ui_url
        try:
            self._process = ProcessIdentity.of(found.pid)
        except psutil.NoSuchProcess:
            raise ServiceError(
                "the Prefect server ended right after its start. "
                f"Its log, {self.log_path}, ends with:\n{last_lines(self.log_path)}"
            ) from None

    def process(self) -> ProcessIdentity | None:
        return self._process if self._process and self._process.is_alive() else None

    def stop(self) -> None:
        self._server.stop()
