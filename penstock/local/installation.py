"""The installation of `penstock up`: its folder, and its Postgres and Prefect server as parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ServiceError
from penstock.local.postgres import PostgresServer
from penstock.local.prefect_server import PrefectServer
from penstock.local.processes import (
    ProcessIdentity,
    end_marked,
    last_lines,
    mark_of,
    stop_alone,
    stop_tree,
)
from penstock.local.state import SupervisorState, read_state
from penstock.local.supervisor import GRACE_SECONDS

# Longer than it takes in good order: workers have some time to give back what they do.
_STOP_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class InstallationHome:
    """The folder of an installation, running or not."""

    folder: Path

    @property
    def state_path(self) -> Path:
        return self.folder / "up.json"

    @property
    def lock_path(self) -> Path:
        """Held by the process that starts, runs or ends the installation."""
        return self.folder / "up.lock"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    @property
    def postgres_password(self) -> Path:
        return self.folder / "postgres.password"

    @property
    def prefect_auth(self) -> Path:
        """What its Prefect server asks for."""
        return PrefectServer(self.folder).auth_path

    @property
    def ports(self) -> Path:
        """Where each part listened last."""
        return self.folder / "ports.json"

    @property
    def valkey_password(self) -> Path:
        return self.folder / "valkey.password"

    @property
    def valkey(self) -> Path:
        return self.folder / "valkey"

    def read(self) -> SupervisorState | None:
        """The last recorded state; its processes may have ended."""
        return read_state(self.state_path)

    def find(self) -> SupervisorState | None:
        """The state, if its supervisor is alive."""
        state = self.read()
        return state if state is not None and state.is_alive() else None

    def stop(self) -> bool:
        """Have it end in good order, then end what is left. False: nothing was running."""
        if not self.folder.is_dir():
            return False
        state = self.find()
        if state is not None:
            stop_alone(state.supervisor, _STOP_SECONDS)
        with self.hold():
            return self.end_leftovers() or state is not None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock it against other commands; ServiceError when another one holds it."""
        from filelock import FileLock  # it imports asyncio

        try:
            with FileLock(self.lock_path, timeout=0, mode=0o600):
                yield
        except TimeoutError:
            raise ServiceError(
                f"another command is starting or stopping the servers of {self.folder}: "
                "try again when it is done"
            ) from None

    def end_leftovers(self) -> bool:
        """End what a killed supervisor left behind. False: there was nothing."""
        state = self.read()
        ended = self._end_processes(state)
        # Its own state is another one, since it also runs without the rest.
        ended |= PrefectServer(self.folder).stop()
        if self.postgres.is_dir():
            ended |= self._end_postgres()
        if state is not None:
            ended |= _end_recorded(state)
        self.state_path.unlink(missing_ok=True)
        return ended

    def _end_processes(self, state: SupervisorState | None) -> bool:
        """The last one first, each with all it has started."""
        if state is None:
            return False
        own = [part.name for part in reversed(state.parts) if not part.given_by]
        ended = [end_marked(mark_of(state.id, name), GRACE_SECONDS) for name in own]
        return any([*ended, end_marked(state.id, GRACE_SECONDS)])

    def _end_postgres(self) -> bool:
        server = PostgresServer(self.postgres)
        if server.process() is None:
            return False
        server.stop()
        return True


def _end_recorded(state: SupervisorState) -> bool:
    """A process that lost its mark, as some do who give themselves a title, is known by its pid."""
    own = [part.process for part in reversed(state.parts) if part.process is not None]
    ended = [stop_tree(process, GRACE_SECONDS) for process in own]
    return any(ended)


class PostgresPart:
    """The Postgres of one folder, on one port."""

    name = "postgres"

    def __init__(self, folder: Path, password_file: Path, port: int) -> None:
        self.server = PostgresServer(folder, port, password_file=password_file)
        self.log_path = self.server.log_path
        self.address: str | None = None

    def start(self) -> None:
        self.address = self.server.start()

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
        self.environment: dict[str, str] = {}
        """What a process has in its environment to use it."""
        self._process: ProcessIdentity | None = None

    def start(self) -> None:
        import psutil

        found = self._server.ensure()
        self.environment = self._server.client_environment(found)
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
