"""Named points at which a test makes this process fail, so that crashes can be repeated exactly.

`PENSTOCK_FAULTS=extract.answered=kill` kills the process when it reaches that point for the first
time; `text.begun=stop@3` halts it at the third. Off unless set, and then a warning says so.
"""

import errno
import logging
import os
import re
import signal
import threading
from collections import Counter
from dataclasses import dataclass

from penstock.errors import ConfigurationError

log = logging.getLogger(__name__)

POINTS = (
    "claim.uncommitted",
    "claim.committed",
    "text.begun",
    "text.computed",
    "extract.begun",
    "extract.answered",
    "embed.begun",
    "embed.computed",
    "run.unfinalized",
    "raw.storing",
    "backfill.uncommitted",
    "canary.answered",
)
ACTIONS = ("kill", "stop", "full")
_FAULT = re.compile(r"(?P<point>[a-z.]+)=(?P<action>[a-z]+)(@(?P<time>[1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class FailureMode:
    """What happens at a point, and which time it is reached that counts."""

    action: str
    time: int = 1

    def happen(self) -> None:
        if self.action == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


_faults: dict[str, FailureMode] = {}
_armed: str | None = None
_reached: Counter[str] = Counter()
_lock = threading.Lock()


def hit(point: str) -> None:
    """The program has come to this point: fail, if a fault is armed for it."""
    fault = _faults.get(point)
    if fault is None:
        return
    with _lock:
        _reached[point] += 1
        due = _reached[point] == fault.time
    if due:
        fault.happen()


def arm(faults: str | None) -> None:
    """Have these faults happen in this process; None or an empty text: none."""
    global _armed
    parsed = parse(faults) if faults else {}
    with _lock:
        _armed = faults or None
        _reached.clear()
        _faults.clear()
        _faults.update(parsed)
    if faults:
        log.warning("this process will fail on purpose: PENSTOCK_FAULTS=%s", faults)


def armed() -> str | None:
    """The faults of this process, as they were given."""
    return _armed


def follow(faults: str | None) -> None:
    """Arm the faults of the parent process, unless they are armed."""
    if faults != _armed:
        arm(faults)


def parse(faults: str) -> dict[str, FailureMode]:
    """`point=action` or `point=action@time`, separated by commas."""
    return dict(_parse_one(part.strip()) for part in faults.split(","))


def _parse_one(text: str) -> tuple[str, FailureMode]:
    found = _FAULT.fullmatch(text)
    if found is None or found["point"] not in POINTS or found["action"] not in ACTIONS:
        raise ConfigurationError(
            f"PENSTOCK_FAULTS: {text!r} is not point=action or point=action@time; points are "
            f"{', '.join(POINTS)}, actions {', '.join(ACTIONS)}"
        )
    return found["point"], FailureMode(found["action"], int(found["time"] or 1))
