"""The local Prefect server: one for each home folder, started once and shared by all commands."""

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ServiceError
from penstock.launcher import prefect_environment
from penstock.launcher.patience import Patience, Report
from penstock.launcher.ports import LOOPBACK, answers_ok, free_port, is_taken
from penstock.launcher.processes import last_lines, run_detached, stop_tree
from penstock.launcher.state import Phase, ServerState, read_state
from penstock.launcher.supervisor import Assignment
from penstock.locks import hold_lock

_HEALTH_TIMEOUT_SECONDS = 2.0
# Longer than a supervisor takes to end its server by force.
_STUCK_SECONDS = 20.0
_PORT_TRIES = 3


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server is."""

    api_url: str
    ui_url: str
    pid: int
    port: int


class PrefectServer:
    """Starts, finds and stops the Prefect server whose state is in `home/prefect`."""

    def __init__(
        self,
        home: Path,
        *,
        idle_seconds: float | None = 900,
        database_url: str | None = None,
        port: int | None = None,
    ) -> None:
        self._folder = home.resolve() / "prefect"
        self._idle_seconds = idle_seconds
        self._database_url = database_url
        self._wanted_port = port
        self._state_path = self._folder / "server.json"
        self.log_path = self._folder / "server.log"

    def ensure(self, report: Report | None = None, timeout_seconds: float = 180) -> ServerAddress:
        """The address of the healthy server, which is started if there is none."""
        if address := self.find():
            return address
        patience = Patience(timeout_seconds, report)
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            return self._ensure_alone(patience)
        except TimeoutError as error:
            raise self._failure(f"was not ready within {timeout_seconds:g} s ({error})") from error

    def find(self) -> ServerAddress | None:
        """The address of the server if it runs and is healthy; quick, and starts nothing."""
        state = read_state(self._state_path)
        if state is None or state.server is None or not self._is_usable(state):
            return None
        self._mark_used()
        if not _is_healthy(state):
            return None
        port = state.port
        api_url, ui_url = prefect_environment.api_url(port), prefect_environment.ui_url(port)
        return ServerAddress(api_url, ui_url, state.server.pid, port)

    def stop(self, timeout_seconds: float = 20) -> bool:
        """End the server; False when none was running."""
        state = read_state(self._state_path)
        if state is None:
            return False
        return self._clear(state, timeout_seconds)

    def client_environment(self, address: ServerAddress) -> dict[str, str]:
        """The variables a process sets before it imports prefect."""
        return prefect_environment.client_environment(self._folder, address.port)

    def command(self, port: int) -> list[str]:
        """The command line of the server itself."""
        start = ["prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
        return [sys.executable, "-m", "penstock.launcher.child", *start]

    def version(self) -> str:
        """The installed version; a server of another one is replaced."""
        from importlib.metadata import version

        return version("prefect")

    def _ensure_alone(self, patience: Patience) -> ServerAddress:
        """Of several commands one starts the server; the others wait here and then find it."""
        lock = self._folder / "server.lock"
        phrase = "waiting for another command to start the Prefect server"
        with hold_lock(lock, patience.seconds_left, lambda: patience.say(phrase)):
            return self._adopt(patience) or self._start(patience)

    def _adopt(self, patience: Patience) -> ServerAddress | None:
        """A server that another command left on its way; one that is of no use is ended."""
        give_up = time.monotonic() + _STUCK_SECONDS
        while state := read_state(self._state_path):
            if address := self.find():
                return address
            stuck = state.phase is not Phase.STARTING and time.monotonic() > give_up
            if stuck or not state.is_alive() or state.version != self.version():
                self._clear(state, _STUCK_SECONDS)
                break
            patience.pause("waiting for the Prefect server to answer")
        return None

    def _start(self, patience: Patience) -> ServerAddress:
        for _ in range(_PORT_TRIES):
            port = self._wanted_port or free_port()
            phrase = self._phrase()
            self._spawn(port)
            if address := self._await_ready(phrase, patience):
                return address
            if self._wanted_port or not is_taken(port):
                break
        raise self._failure("ended while it was starting")

    def _phrase(self) -> str:
        if self._database_url or prefect_environment.sqlite_file(self._folder).exists():
            return "starting the Prefect server"
        return "starting the Prefect server (the first start creates its database)"

    def _spawn(self, port: int) -> None:
        with suppress(FileNotFoundError):
            self.log_path.replace(self.log_path.with_suffix(".previous.log"))
        assignment = Assignment(
            command=tuple(self.command(port)),
            state_path=str(self._state_path),
            port=port,
            version=self.version(),
            idle_seconds=self._idle_seconds,
        )
        supervisor = [sys.executable, "-m", "penstock.launcher.supervisor"]
        environment = prefect_environment.server_environment(self._folder, port, self._database_url)
        ended = run_detached([*supervisor, assignment.to_argument()], self.log_path, environment)
        if ended.returncode != 0:
            raise self._failure("could not be started")

    def _await_ready(self, phrase: str, patience: Patience) -> ServerAddress | None:
        try:
            while (state := read_state(self._state_path)) and state.is_alive():
                if address := self.find():
                    return address
                patience.pause(phrase)
        except TimeoutError:
            self.stop()
            raise
        return None

    def _is_usable(self, state: ServerState) -> bool:
        ready = state.phase is Phase.READY and state.version == self.version()
        return ready and state.is_alive()

    def _mark_used(self) -> None:
        # The supervisor must not take the moment before the first connection for idleness.
        with suppress(OSError):
            os.utime(self._state_path)

    def _clear(self, state: ServerState, timeout_seconds: float) -> bool:
        """End what is left of this server; its processes are told from others by identity."""
        supervised = stop_tree(state.supervisor, timeout_seconds)
        orphaned = state.server is not None and stop_tree(state.server, timeout_seconds)
        left = read_state(self._state_path)
        if left is not None and left.supervisor == state.supervisor:
            self._state_path.unlink(missing_ok=True)
        return supervised or orphaned

    def _failure(self, what: str) -> ServiceError:
        return ServiceError(
            f"the Prefect server of {self._folder} {what}. "
            f"Its log, {self.log_path}, ends with:\n{last_lines(self.log_path)}"
        )


def _is_healthy(state: ServerState) -> bool:
    return answers_ok(state.port, "/api/health", _HEALTH_TIMEOUT_SECONDS)
