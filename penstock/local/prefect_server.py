"""The local Prefect server: one for each home folder, started once and shared by all commands."""

import hashlib
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import ServiceError
from penstock.home import make_private_folder
from penstock.local.background import Assignment
from penstock.local.processes import (
    LOOPBACK,
    Deadline,
    ProcessIdentity,
    Report,
    answers_ok,
    ensure_secret,
    free_port,
    is_taken,
    last_lines,
    read_secret,
    run_detached,
    stop_tree,
)
from penstock.local.state import Phase, SupervisorState, read_state

_HEALTH_TIMEOUT_SECONDS = 2.0
# Longer than a supervisor takes to end its server by force.
_STUCK_SECONDS = 20.0
_PORT_TRIES = 3
_USER = "penstock"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server is, and the string that it asks for."""

    api_url: str
    ui_url: str
    pid: int
    port: int
    auth_string: str = field(repr=False)


class PrefectServer:
    """Starts, finds and stops the Prefect server whose state is in `home/prefect`.

    It asks for the string in `home/prefect.auth`, which the first start makes.
    """

    def __init__(
        self,
        home: Path,
        *,
        idle_seconds: float | None = 900,
        database_url: str | None = None,
        port: int | None = None,
    ) -> None:
        self._folder = home.resolve() / "prefect"
        self.auth_path = home.resolve() / "prefect.auth"
        self._idle_seconds = idle_seconds
        self._database_url = database_url
        self._wanted_port = port
        self._held_port: int | None = None
        self._state_path = self._folder / "server.json"
        self.log_path = self._folder / "server.log"

    def ensure(self, report: Report | None = None, timeout_seconds: float = 180) -> ServerAddress:
        """The address of the healthy server, which is started if there is none."""
        if address := self.find():
            return address
        deadline = Deadline(timeout_seconds, report)
        make_private_folder(self._folder)
        try:
            return self._ensure_alone(deadline)
        except TimeoutError as error:
            raise self._failure(f"was not ready within {timeout_seconds:g} s ({error})") from error

    def find(self) -> ServerAddress | None:
        """The address of the server if it runs and is healthy; quick, and starts nothing."""
        state = read_state(self._state_path)
        if state is None or state.phase is not Phase.READY:
            return None
        auth_string, process = read_secret(self.auth_path), _process(state)
        if auth_string is None or process is None:
            return None
        if not self._is_ours(state) or not _lives(state):
            return None
        # The background process must not take the moment before the first connection for idleness.
        with suppress(OSError):
            os.utime(self._state_path)
        port = urlsplit(state.parts[0].address).port
        if port is None or not answers_ok(port, "/api/health", _HEALTH_TIMEOUT_SECONDS):
            return None
        return ServerAddress(api_url(port), ui_url(port), process.pid, port, auth_string)

    def stop(self, timeout_seconds: float = 20) -> bool:
        """End the server; False when none was running."""
        state = read_state(self._state_path)
        if state is None:
            return False
        return self._clear(state, timeout_seconds)

    def client_environment(self, address: ServerAddress) -> dict[str, str]:
        """The variables a process sets before it imports prefect."""
        return client_environment(self._folder, address.port, address.auth_string)

    def command(self, port: int) -> list[str]:
        """The command line of the server itself."""
        start = ["prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
        return [sys.executable, "-m", "penstock.local.child", *start]

    def version(self) -> str:
        """The installed version; a server of another one is replaced."""
        from importlib.metadata import version

        return version("prefect")

    def _ensure_alone(self, deadline: Deadline) -> ServerAddress:
        """Of several commands one starts the server; the others wait here and then find it."""
        from filelock import FileLock  # it imports asyncio

        lock = self._folder / "server.lock"
        phrase = "waiting for another command to start the Prefect server"

        def keep_waiting() -> bool:
            deadline.say(phrase)
            return False

        # A negative timeout would wait for ever.
        timeout = max(0.0, deadline.seconds_left)
        with FileLock(lock, mode=0o600).acquire(timeout, cancel_check=keep_waiting):
            return self._adopt(deadline) or self._start(deadline)

    def _adopt(self, deadline: Deadline) -> ServerAddress | None:
        """A server that another command left on its way; one that is of no use is ended."""
        give_up = time.monotonic() + _STUCK_SECONDS
        while state := read_state(self._state_path):
            if address := self.find():
                return address
            stuck = state.phase is not Phase.STARTING and time.monotonic() > give_up
            if stuck or not _lives(state) or not self._is_ours(state):
                self._clear(state, _STUCK_SECONDS)
                break
            deadline.pause("waiting for the Prefect server to answer")
        return None

    def _start(self, deadline: Deadline) -> ServerAddress:
        for attempt in range(_PORT_TRIES):
            wanted = self._held_port or (None if attempt else self._wanted_port)
            port = wanted or free_port()
            phrase = self._phrase()
            self._spawn(port)
            if address := self._await_ready(phrase, deadline):
                # Clients know a requested port by now.
                self._held_port = port if self._wanted_port else None
                return address
            # Another program may have taken it in the moment since it was found free.
            if self._held_port or not is_taken(port):
                break
        raise self._failure("ended while it was starting")

    def _phrase(self) -> str:
        if self._database_url or sqlite_file(self._folder).exists():
            return "starting the Prefect server"
        return "starting the Prefect server (the first start creates its database)"

    def _spawn(self, port: int) -> None:
        with suppress(FileNotFoundError):
            self.log_path.replace(self.log_path.with_suffix(".previous.log"))
        auth_string = ensure_secret(self.auth_path, _USER)
        assignment = Assignment(
            command=tuple(self.command(port)),
            state_path=str(self._state_path),
            port=port,
            version=self.version(),
            auth_digest=_digest(auth_string),
            idle_seconds=self._idle_seconds,
        )
        supervisor = [sys.executable, "-m", "penstock.local.background"]
        environment = server_environment(self._folder, port, self._database_url, auth_string)
        ended = run_detached([*supervisor, assignment.to_argument()], self.log_path, environment)
        if ended.returncode != 0:
            raise self._failure("could not be started")

    def _await_ready(self, phrase: str, deadline: Deadline) -> ServerAddress | None:
        try:
            while (state := read_state(self._state_path)) and _lives(state):
                if address := self.find():
                    return address
                deadline.pause(phrase)
        except TimeoutError:
            self.stop()
            raise
        return None

    def _is_ours(self, state: SupervisorState) -> bool:
        """Of this version, and asking for the string that we know, unlike older versions."""
        known = read_secret(self.auth_path)
        asks = known is not None and state.auth_digest == _digest(known)
        return asks and state.version == self.version()

    def _clear(self, state: SupervisorState, timeout_seconds: float) -> bool:
        """End what is left of this server, identified by pid and start time."""
        supervised = stop_tree(state.supervisor, timeout_seconds)
        process = _process(state)
        orphaned = process is not None and stop_tree(process, timeout_seconds)
        left = read_state(self._state_path)
        if left is not None and left.supervisor == state.supervisor:
            self._state_path.unlink(missing_ok=True)
        return supervised or orphaned

    def _failure(self, what: str) -> ServiceError:
        return ServiceError(
            f"the Prefect server of {self._folder} {what}. "
            f"Its log, {self.log_path}, ends with:\n{last_lines(self.log_path)}"
        )


def _digest(auth_string: str) -> str:
    """It may be known to others, as the state file and command lines are."""
    return hashlib.sha256(auth_string.encode()).hexdigest()


def _process(state: SupervisorState) -> ProcessIdentity | None:
    return state.parts[0].process if state.parts else None


def _lives(state: SupervisorState) -> bool:
    process = _process(state)
    return state.is_alive() and (process is None or process.is_alive())


# The second is what Prefect's client library looks at.
# By default every state of every task run is a transaction of its own, which takes as long as
# parsing a page.
_BATCHED_EVENTS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "25",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "25",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
}
_TELEMETRY_OFF = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
# The answers to missing and to wrong credentials.
REFUSED_STATUSES = frozenset({401, 403})
_THIS_MACHINE = {LOOPBACK, "localhost", "::1"}
_PORTS = {"http": 80, "https": 443}


def api_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}/api"


def ui_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def is_same_api(one: str, other: str) -> bool:
    """Whether both are the address of one server on this machine, however they are written."""
    try:
        return _parts(one) == _parts(other)
    except ValueError:
        return False


def describe_refusal(home: Path | str = "HOME") -> str:
    """What to do when a Prefect server refuses our credentials."""
    return (
        "Prefect refused the credentials: set PREFECT_API_AUTH_STRING "
        f"(that of `penstock up` is in {home}/prefect.auth)"
    )


def server_environment(
    folder: Path, port: int, database_url: str | None, auth_string: str
) -> dict[str, str]:
    """The caller's environment with Prefect's settings replaced by those of this server.

    Starting flow runs means running programs as this user, so it answers only with the string, and
    only its own page.
    """
    return {
        **_without_prefect_settings(),
        **_TELEMETRY_OFF,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_DATABASE_CONNECTION_URL": database_url or sqlite_url(folder),
        "PREFECT_SERVER_API_AUTH_STRING": auth_string,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{ui_url(port)},http://localhost:{port}",
        "PREFECT_SERVER_UI_API_URL": api_url(port),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        # In memory, slots that are taken when it is restarted would stay taken for ever.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
            "prefect.server.concurrency.lease_storage.filesystem"
        ),
        **_BATCHED_EVENTS,
        "PREFECT_LOGGING_COLORS": "false",
        "PREFECT_CLI_COLORS": "false",
        "PREFECT_CLI_PROMPT": "false",
        "PYTHONUNBUFFERED": "1",
    }


def client_environment(folder: Path, port: int, auth_string: str) -> dict[str, str]:
    """What a process sets before it imports prefect, so that it talks to this server alone."""
    return {
        **_TELEMETRY_OFF,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": api_url(port),
        "PREFECT_API_AUTH_STRING": auth_string,
    }


def sqlite_url(folder: Path) -> str:
    return f"sqlite+aiosqlite:///{sqlite_file(folder)}"


def sqlite_file(folder: Path) -> Path:
    return folder / "prefect.db"


def _without_prefect_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def _parts(address: str) -> tuple[str, str | None, int | None, str]:
    parts = urlsplit(address)
    host = LOOPBACK if parts.hostname in _THIS_MACHINE else parts.hostname
    return parts.scheme, host, parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/")
