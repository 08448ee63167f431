"""The background process that owns one server: starts it, tells where it is, and ends it.

It ends the server when asked to, when nobody has used it for a while, and when its state file
is gone; it ends itself when the server does.
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.launcher.processes import ProcessIdentity, go_to_background, stop_tree
from penstock.launcher.state import Phase, ServerState, read_state, write_state

_STARTING_SAMPLE_SECONDS = 0.2
_READY_SAMPLE_SECONDS = 2.0
_GRACE_SECONDS = 10.0

log = logging.getLogger("penstock.supervisor")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to run, and for how long without any use."""

    command: tuple[str, ...]
    state_path: str
    port: int
    version: str
    idle_seconds: float | None

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "Assignment":
        data = json.loads(text)
        return cls(**{**data, "command": tuple(data["command"])})


class Supervisor:
    """Watches one server process from its start to its end."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._state_path = Path(assignment.state_path)
        self._state = ServerState(
            supervisor=ProcessIdentity.of(os.getpid()),
            server=None,
            port=assignment.port,
            version=assignment.version,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            phase=Phase.STARTING,
        )
        self._last_use = time.time()
        self._asked_to_stop = False
        self._wake_up, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._note_signal)

    def announce(self) -> None:
        write_state(self._state_path, self._state)

    def run(self) -> None:
        # The pipe stays open as long as this process lives; the server ends when it closes.
        with subprocess.Popen(self._assignment.command, stdin=subprocess.PIPE) as server:
            try:
                self._enter(Phase.STARTING, ProcessIdentity.of(server.pid))
                log.info("stopping: %s", self._watch(server))
                self._enter(Phase.STOPPING, self._state.server)
            finally:
                self._end()

    def _note_signal(self, number: int, _frame: object) -> None:
        self._asked_to_stop = self._asked_to_stop or number != signal.SIGCHLD

    def _watch(self, server: "subprocess.Popen[bytes]") -> str:
        while True:
            if reason := self._reason_to_stop(server):
                return reason
            self._look_at_connections()
            self._sleep()

    def _reason_to_stop(self, server: "subprocess.Popen[bytes]") -> str | None:
        if self._asked_to_stop:
            return "asked to"
        if server.poll() is not None:
            return f"the server ended by itself with exit code {server.returncode}"
        if not self._owns_state():
            return "the state file is gone"
        if self._is_idle():
            return f"not used for {self._assignment.idle_seconds:g} s"
        return None

    def _owns_state(self) -> bool:
        state = read_state(self._state_path)
        return state is not None and state.supervisor == self._state.supervisor

    def _is_idle(self) -> bool:
        limit = self._assignment.idle_seconds
        if limit is None or self._state.phase is not Phase.READY:
            return False
        return time.time() - max(self._last_use, self._last_found()) > limit

    def _last_found(self) -> float:
        """A command that found the server touches the state file before it connects."""
        try:
            return self._state_path.stat().st_mtime
        except OSError:
            return 0.0

    def _look_at_connections(self) -> None:
        statuses = self._connection_statuses()
        if self._state.phase is Phase.STARTING and "LISTEN" in statuses:
            self._enter(Phase.READY, self._state.server)
            log.info("listening on port %d", self._assignment.port)
        if "ESTABLISHED" in statuses:
            self._last_use = time.time()

    def _connection_statuses(self) -> set[str]:
        import psutil

        assert self._state.server is not None
        try:
            root = psutil.Process(self._state.server.pid)
            return {
                connection.status
                for process in (root, *root.children(recursive=True))
                for connection in process.net_connections("tcp")
                if connection.laddr and connection.laddr.port == self._assignment.port
            }
        except psutil.NoSuchProcess:
            return set()

    def _sleep(self) -> None:
        """Until the next sample is due or a signal came in."""
        seconds = _STARTING_SAMPLE_SECONDS
        if self._state.phase is Phase.READY:
            idle = self._assignment.idle_seconds or _READY_SAMPLE_SECONDS * 4
            seconds = min(_READY_SAMPLE_SECONDS, idle / 4)
        if select.select([self._wake_up], [], [], seconds)[0]:
            os.read(self._wake_up, 64)

    def _enter(self, phase: Phase, server: ProcessIdentity | None) -> None:
        self._state = self._state.in_phase(phase, server)
        if self._owns_state():
            write_state(self._state_path, self._state)

    def _end(self) -> None:
        if self._state.server is not None:
            stop_tree(self._state.server, _GRACE_SECONDS)
        if self._owns_state():
            self._state_path.unlink(missing_ok=True)


def main() -> None:
    assignment = Assignment.from_argument(sys.argv[1])
    let_go = go_to_background()
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(name)s: %(message)s")
    supervisor = Supervisor(assignment)
    supervisor.announce()
    let_go()
    supervisor.run()


if __name__ == "__main__":
    main()
