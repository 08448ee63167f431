"""Where the installation of a home keeps its things, and how others find or end it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ServiceError
from penstock.launcher.installation_state import InstallationState, read_installation
from penstock.launcher.marks import end_marked, mark_of
from penstock.launcher.postgres import PostgresServer
from penstock.launcher.prefect_server import PrefectServer
from penstock.launcher.processes import stop_alone, stop_tree
from penstock.locks import hold_lock

# Longer than it takes in good order: workers have some time to give back what they do.
_STOP_SECONDS = 90.0
_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class InstallationHome:
    """The folder of an installation, which lives or not."""

    folder: Path

    @property
    def state_path(self) -> Path:
        return self.folder / "up.json"

    @property
    def lock_path(self) -> Path:
        """Held by whoever starts, looks after or ends the installation."""
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
    def valkey(self) -> Path:
        return self.folder / "valkey"

    def read(self) -> InstallationState | None:
        """What it told last, although it may be dead by now."""
        return read_installation(self.state_path)

    def find(self) -> InstallationState | None:
        """The installation, if somebody looks after it."""
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
        """Be the only one who starts, looks after or ends it; ServiceError when another is."""
        try:
            with hold_lock(self.lock_path, timeout_seconds=0):
                yield
        except TimeoutError:
            raise ServiceError(
                f"another command is starting or stopping the servers of {self.folder}: "
                "try again when it is done"
            ) from None

    def end_leftovers(self) -> bool:
        """End what somebody left who was killed. False: there was nothing."""
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

    def _end_processes(self, state: InstallationState | None) -> bool:
        """The last one first, each with all it has started."""
        if state is None:
            return False
        own = [part.name for part in reversed(state.parts) if not part.given_by]
        ended = [end_marked(mark_of(state.id, name), _GRACE_SECONDS) for name in own]
        return any([*ended, end_marked(state.id, _GRACE_SECONDS)])

    def _end_postgres(self) -> bool:
        server = PostgresServer(self.postgres)
        if server.process() is None:
            return False
        server.stop()
        return True


def _end_recorded(state: InstallationState) -> bool:
    """A process that lost its mark, as some do who give themselves a title, is known by its pid."""
    own = [part.process for part in reversed(state.parts) if part.process is not None]
    ended = [stop_tree(process, _GRACE_SECONDS) for process in own]
    return any(ended)
