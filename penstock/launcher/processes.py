"""Processes that outlive the command that started them, known by pid and creation time."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

# The kernel derives creation times from the boot time, which shifts a little with the clock.
_CLOCK_TOLERANCE_SECONDS = 1.5
_KILL_SECONDS = 5.0
# A log may be huge.
_LOG_END_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid that cannot be mistaken for a later process with the same number."""

    pid: int
    create_time: float

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity":
        import psutil

        return cls(pid, psutil.Process(pid).create_time())

    def is_alive(self) -> bool:
        return self.find() is not None

    def find(self) -> "psutil.Process | None":
        """The living process, or nothing when it ended or its pid is somebody else's now."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) < _CLOCK_TOLERANCE_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def run_detached(
    command: Sequence[str], log_path: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a command that goes to the background by itself, tied to nothing of the caller.

    Its output is appended to the log; the root folder is its working folder, so that neither a
    settings file of the caller's folder is read nor that folder kept busy.
    """
    with log_path.open("ab") as log:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
            check=False,
        )


def go_to_background() -> Callable[[], None]:
    """Continue in a child process; calling the answer there lets the foreground process end.

    With the foreground process gone nobody has to wait for the child, and a child that dies
    before that call shows as exit code 1.
    """
    done, tell_done = os.pipe()
    if os.fork():
        os.close(tell_done)
        os._exit(0 if os.read(done, 1) else 1)
    os.close(done)

    def let_go() -> None:
        os.write(tell_done, b"1")
        os.close(tell_done)

    return let_go


def stop_tree(identity: ProcessIdentity, timeout_seconds: float) -> bool:
    """Ask a process to end, then end it and what it started by force. False: it was not there."""
    import psutil

    root = identity.find()
    if root is None:
        return False
    try:
        tree = [root, *root.children(recursive=True)]
        root.terminate()
    except psutil.NoSuchProcess:
        return True
    wait_until(lambda: not identity.is_alive(), timeout_seconds)
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    # Not psutil's own wait: that one waits for dead processes that init has not collected yet.
    wait_until(lambda: not identity.is_alive(), _KILL_SECONDS)
    return True


def ask_children_to_end(pid: int, timeout_seconds: float) -> bool:
    """Ask what a process has started, also meanwhile, to end; False when some did not."""
    import psutil

    asked: set[psutil.Process] = set()

    def are_gone() -> bool:
        with suppress(psutil.NoSuchProcess):
            children = set(psutil.Process(pid).children())
            for child in children - asked:
                with suppress(psutil.NoSuchProcess):
                    child.terminate()
            asked.update(children)
            return not children
        return True

    return wait_until(are_gone, timeout_seconds)


def stop_alone(identity: ProcessIdentity, timeout_seconds: float) -> bool:
    """The same for a process whose children are seen to by others."""
    import psutil

    process = identity.find()
    if process is None:
        return False
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        if not wait_until(lambda: not identity.is_alive(), timeout_seconds):
            process.kill()
            wait_until(lambda: not identity.is_alive(), _KILL_SECONDS)
    return True


def wait_until(
    condition: Callable[[], bool], timeout_seconds: float, interval_seconds: float = 0.05
) -> bool:
    """Poll until the condition holds; False when the time is up first."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_seconds)
    return True


def last_lines(path: Path, count: int = 20) -> str:
    """The end of a log file, for an error message."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_END_BYTES))
            text = log.read(_LOG_END_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return "(no log was written)"
    return "\n".join(text.strip().splitlines()[-count:]) or "(the log is empty)"
