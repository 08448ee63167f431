"""What a running server tells about itself in its state file."""

import json
import os
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.launcher.processes import ProcessIdentity


class Phase(StrEnum):
    """Where a server is in its life."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The processes of one server, its port and what it was started with."""

    supervisor: ProcessIdentity
    server: ProcessIdentity | None
    port: int
    version: str
    started_at: str
    phase: Phase

    def is_alive(self) -> bool:
        return self.supervisor.is_alive() and (self.server is None or self.server.is_alive())

    def in_phase(self, phase: Phase, server: ProcessIdentity | None) -> "ServerState":
        return replace(self, phase=phase, server=server)


def read_state(path: Path) -> ServerState | None:
    """The state in this file; nothing when there is none or it cannot be understood."""
    try:
        return _decode(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(path: Path, state: ServerState) -> None:
    """Replace the file in one step: a reader sees the old or the new state, never a half."""
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(asdict(state)), encoding="utf-8")
    fresh.replace(path)


def _decode(data: dict[str, Any]) -> ServerState:
    server = data["server"]
    return ServerState(
        supervisor=ProcessIdentity(**data["supervisor"]),
        server=ProcessIdentity(**server) if server else None,
        port=int(data["port"]),
        version=str(data["version"]),
        started_at=str(data["started_at"]),
        phase=Phase(data["phase"]),
    )
