"""Named points at which a test makes this process fail, so that crashes can be repeated exactly.

`PENSTOCK_FAULTS=extract.answered=kill` kills the process when it reaches that point for the first
time; `text.begun=stop@3` halts it at the third. Off unless it is set, and then a warning says so.
"""

import errno
import logging
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Mapping
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
)
ACTIONS = ("kill", "stop", "full")
_FAULT = re.compile(r"(?P<point>[a-z.]+)=(?P<action>[a-z]+)(@(?P<time>[1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at a point, and the how manieth time it is reached."""

    action: str
    time: int = 1

    def happen(self) -> None:
        if self.action == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


class _Plan:
    """The faults of this process, and how often each point was reached."""

    def __init__(self, faults: Mapping[str, Fault]) -> None:
        self._faults = faults
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def reach(self, point: str) -> None:
        fault = self._faults.get(point)
        if fault is None:
            return
        with self._lock:
            self._reached[point] += 1
            due = self._reached[point] == fault.time
        if due:
            fault.happen()


_plan: _Plan | None = None


def reach(point: str) -> None:
    """Say that the program has come to this point."""
    if _plan is not None:
        _plan.reach(point)


def arm(faults: str | None) -> None:
    """Have these faults happen in this process; None or an empty text: none."""
    global _plan
    _plan = _Plan(parse(faults)) if faults else None
    if faults:
        log.warning("this process will fail on purpose: PENSTOCK_FAULTS=%s", faults)


def parse(faults: str) -> dict[str, Fault]:
    """`point=action` or `point=action@time`, separated by commas."""
    return dict(_parse_one(part.strip()) for part in faults.split(","))


def _parse_one(text: str) -> tuple[str, Fault]:
    found = _FAULT.fullmatch(text)
    if found is None or found["point"] not in POINTS or found["action"] not in ACTIONS:
        raise ConfigurationError(
            f"PENSTOCK_FAULTS: {text!r} is not point=action or point=action@time; points are "
            f"{', '.join(POINTS)}, actions {', '.join(ACTIONS)}"
        )
    return found["point"], Fault(found["action"], int(found["time"] or 1))
