"""The background process that runs the Prefect server of a home.

It ends the server when asked to, when it was not used for a while, and when its state file is gone;
it ends itself when the server does.
"""

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.local.processes import LOOPBACK, ProcessIdentity, go_to_background
from penstock.local.supervisor import ProcessPart, Supervisor, stopped_by_signals

_STARTING_LOOK_SECONDS = 0.2
_READY_LOOK_SECONDS = 2.0

log = logging.getLogger("penstock.supervisor")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to run, and for how long without any use."""

    command: tuple[str, ...]
    state_path: str
    port: int
    version: str
    auth_digest: str
    idle_seconds: float | None

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "Assignment":
        data = json.loads(text)
        return cls(**{**data, "command": tuple(data["command"])})


def main() -> None:
    assignment = Assignment.from_argument(sys.argv[1])
    let_go = go_to_background()
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(name)s: %(message)s")
    supervisor = Supervisor(Path(assignment.state_path), log.info)
    supervisor.describe_server(assignment.version, assignment.auth_digest)
    with stopped_by_signals(supervisor.stop):
        supervisor.announce()
        let_go()
        run_server(assignment, supervisor)


def run_server(assignment: Assignment, supervisor: Supervisor) -> None:
    """Start the server and watch it until there is a reason to stop."""
    server = ProcessPart(
        "server",
        assignment.command,
        Path(assignment.state_path).parent,
        supervisor.id,
        address=f"http://{LOOPBACK}:{assignment.port}",
        lifeline=True,
    )
    supervisor.start(server)
    state_path, limit = Path(assignment.state_path), assignment.idle_seconds
    last_use, is_ready = time.time(), False
    while supervisor.owns_state():
        process = server.process()
        if process is None:
            log.info("stopping: the server ended by itself with exit code %s", server.exit_code)
            return
        connections = _connection_statuses(process, assignment.port)
        if not is_ready and "LISTEN" in connections:
            supervisor.become_ready()
            is_ready = True
            log.info("listening on port %d", assignment.port)
        if "ESTABLISHED" in connections:
            last_use = time.time()
        if is_ready and limit and time.time() - max(last_use, _last_found(state_path)) > limit:
            log.info("stopping: not used for %g s", limit)
            return
        ready_seconds = min(_READY_LOOK_SECONDS, (limit or 60) / 4)
        time.sleep(ready_seconds if is_ready else _STARTING_LOOK_SECONDS)
    log.info("stopping: the state file is gone")


def _last_found(state_path: Path) -> float:
    """A command that found the server touches the state file before it connects."""
    try:
        return state_path.stat().st_mtime
    except OSError:
        return 0.0


def _connection_statuses(server: ProcessIdentity, port: int) -> set[str]:
    import psutil

    try:
        root = psutil.Process(server.pid)
        return {
            connection.status
            for process in (root, *root.children(recursive=True))
            for connection in process.net_connections("tcp")
            if connection.laddr and connection.laddr.port == port
        }
    except psutil.NoSuchProcess:
        return set()


if __name__ == "__main__":
    main()
