"""What `penstock up` tells about itself in its state file: for its own board and for others."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.launcher.processes import ProcessIdentity
from penstock.launcher.state import Phase


@dataclass(frozen=True, slots=True)
class PartState:
    """One part: where it is, and its process unless it ended or is somebody else's."""

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
class InstallationState:
    """All of them, and the process that looks after them."""

    id: str
    supervisor: ProcessIdentity
    started_at: str
    phase: Phase
    step: str
    """What is being done, while it starts."""
    environment: Mapping[str, str]
    """What a process has in its environment to use this installation."""
    parts: tuple[PartState, ...]
    notes: tuple[str, ...]

    def is_alive(self) -> bool:
        return self.supervisor.is_alive()


def read_installation(path: Path) -> InstallationState | None:
    """The state in this file; nothing when there is none or it cannot be understood."""
    try:
        return _decode(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_installation(path: Path, state: InstallationState) -> None:
    """Replace the file in one step. Addresses may hold passwords: it is for its owner alone."""
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(asdict(state)), encoding="utf-8")
    fresh.replace(path)


def _decode(data: dict[str, Any]) -> InstallationState:
    known = {
        "supervisor": ProcessIdentity(**data["supervisor"]),
        "phase": Phase(data["phase"]),
        "parts": tuple(_decode_part(part) for part in data["parts"]),
        "notes": tuple(data["notes"]),
    }
    return InstallationState(**{**data, **known})


def _decode_part(data: dict[str, Any]) -> PartState:
    process = data["process"]
    return PartState(**{**data, "process": ProcessIdentity(**process) if process else None})
