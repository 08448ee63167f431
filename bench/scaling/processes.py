"""Processor time of a server or a worker, with all that it has started."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Family:
    """A process and its descendants, those that have ended too."""

    pid: int

    def cpu_seconds(self) -> float:
        """A parent that waits for a child that has ended gets its time, so none is missing."""
        try:
            eldest = psutil.Process(self.pid)
            return sum(map(_cpu_seconds, [eldest, *eldest.children(recursive=True)]))
        except psutil.NoSuchProcess:
            return 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The processor time that all families had used at one moment."""

    families: Mapping[str, float]
    busy: float
    total: float
    """Of the machine: seconds that its processors worked, and that they could have worked."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used between two readings."""

    families: Mapping[str, float]
    machine_share: float
    """Of all processors, by whomever."""
    own_share: float
    """The same by these families: other programs may run on this machine."""


def read_cpu(families: Mapping[str, Family]) -> Reading:
    machine = psutil.cpu_times()
    total = sum(machine) - machine.guest - machine.guest_nice  # both stand in `user` as well
    busy = total - machine.idle - machine.iowait
    used = {name: one.cpu_seconds() for name, one in families.items()}
    return Reading({**used, "this bench": time.process_time()}, busy, total)


def spent_between(before: Reading, after: Reading) -> Spent:
    families = {name: after.families[name] - before.families[name] for name in after.families}
    total = after.total - before.total
    return Spent(families, (after.busy - before.busy) / total, sum(families.values()) / total)


def find_child(marker: str) -> int:
    """Of this process, the one whose command names this."""
    for child in psutil.Process(os.getpid()).children():
        if any(marker in word for word in child.cmdline()):
            return child.pid
    raise LookupError(f"no process of {marker} was started")


def postmaster_of(data_folder: Path) -> int:
    return int((data_folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])


def _cpu_seconds(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system
    return 0.0
