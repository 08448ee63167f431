"""The state file of a supervisor: what it runs, where, and since when."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.local.processes import LOOPBACK, ProcessIdentity, write_secret


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class PartState:
    """One server or worker: its address, and its process unless it ended or is not ours."""

    name: str
    address: str | None
    log_path: str | None
    process: ProcessIdentity | None
    given_by: str | None = None
    """The variable that names it, if it is not ours."""

    @property
    def is_running(self) -> bool | None:
        """None: not ours, so we do not know."""
        if self.given_by:
            return None
        return self.process is not None and self.process.is_alive()


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """The supervisor process, and the parts that it runs."""

    id: str
    supervisor: ProcessIdentity
    started_at: str
    phase: Phase
    step: str = ""
    """What is being done, while it starts."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables by which a process uses these servers."""
    parts: tuple[PartState, ...] = ()
    notes: tuple[str, ...] = ()
    version: str | None = None
    """Of the background Prefect server."""
    auth_digest: str | None = None
    """Of the string that the Prefect server asks for. None: it asks for none, as those of older
    versions do."""

    def is_alive(self) -> bool:
        return self.supervisor.is_alive()


def read_state(path: Path) -> SupervisorState | None:
    """The state in this file; None if there is no file or it cannot be understood."""
    try:
        return _decode(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(path: Path, state: SupervisorState) -> None:
    """Replace the file in one step. Addresses may hold passwords: it is for its owner alone."""
    write_secret(path, json.dumps(asdict(state)))


def _decode(data: dict[str, Any]) -> SupervisorState:
    if "server" in data:
        data = _from_older_version(data)
    known = {
        "supervisor": ProcessIdentity(**data["supervisor"]),
        "phase": Phase(data["phase"]),
        "parts": tuple(_decode_part(part) for part in data["parts"]),
        "notes": tuple(data["notes"]),
    }
    return SupervisorState(**{**data, **known})


def _decode_part(data: dict[str, Any]) -> PartState:
    process = data["process"]
    return PartState(**{**data, "process": ProcessIdentity(**process) if process else None})


def _from_older_version(data: dict[str, Any]) -> dict[str, Any]:
    """The file of a Prefect server used to have a form of its own."""
    address = f"http://{LOOPBACK}:{int(data.pop('port'))}"
    server = PartState("prefect", address, None, None)
    part = {**asdict(server), "process": data.pop("server")}
    return {"id": "", "parts": [part], "notes": [], **data}
