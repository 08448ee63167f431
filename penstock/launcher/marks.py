"""Finds processes by a mark in their environment, which all that they start inherit.

Parents and sessions change when somebody dies in between; the environment a process was started
with does not.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.launcher.processes import wait_until

if TYPE_CHECKING:
    import psutil

_VARIABLE = "UNDER_PENSTOCK_UP"
_LOOK_SECONDS = 0.2
_KILL_SECONDS = 5.0


def mark_of(installation_id: str, part: str) -> str:
    """What the processes of one part carry."""
    return f"{installation_id}:{part};"


def marked_environment(mark: str) -> dict[str, str]:
    """This process's environment, for a child that carries the mark."""
    return {**os.environ, _VARIABLE: mark}


def find_marked(mark: str) -> "list[psutil.Process]":
    """Living processes, other than this one, whose mark begins like this."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            carries = process.environ().get(_VARIABLE, "").startswith(mark)
            other = process.pid != os.getpid()
            if carries and other and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_marked(mark: str, grace_seconds: float) -> bool:
    """Ask all of them to end, then end them by force. False: there were none."""
    import psutil

    found = find_marked(mark)
    _each(found, psutil.Process.terminate)
    if found and not wait_until(lambda: not find_marked(mark), grace_seconds, _LOOK_SECONDS):
        _each(find_marked(mark), psutil.Process.kill)
        wait_until(lambda: not find_marked(mark), _KILL_SECONDS, _LOOK_SECONDS)
    return bool(found)


def _each(processes: "list[psutil.Process]", action: "Callable[[psutil.Process], None]") -> None:
    import psutil

    for process in processes:
        with suppress(psutil.NoSuchProcess):
            action(process)
