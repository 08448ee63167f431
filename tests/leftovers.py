"""What one run of the tests may leave behind: nothing.

All processes that the tests start carry the run's folder in their environment, and all temporary
files are below it. At the end of a run both are looked for and removed; `python -m tests.leftovers
FOLDER` does the same when the run itself was killed and its end of the pipe is closed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path

import psutil

VARIABLE = "TEST_RUN_FOLDER"
_SETTLE_SECONDS = 5.0
# What ends by itself may take its time on a busy machine: it must not fail a run that went well.
PATIENCE_SECONDS = 60.0
_GRACE_SECONDS = 10.0


def begin() -> Path:
    """A folder for this run, which this process and all it starts use for temporary files."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o711)  # Postgres runs as another account when the tests run as root
    os.environ[VARIABLE] = os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    return folder


def watch(folder: Path) -> "subprocess.Popen[bytes]":
    """A process that cleans up when this one is killed; closing its input ends it."""
    unmarked = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.leftovers", str(folder)],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
        env=unmarked,
        start_new_session=True,
    )


def end(folder: Path, settle_seconds: float = _SETTLE_SECONDS) -> list[str]:
    """End what still runs after a moment, remove the folder, and name the processes found."""
    _wait_until(lambda: not _processes_of(folder), settle_seconds)
    left = {process.pid: _describe(process) for process in _processes_of(folder)}
    _signal_all(folder, psutil.Process.terminate)
    if not _wait_until(lambda: not _processes_of(folder), _GRACE_SECONDS):
        _signal_all(folder, psutil.Process.kill)
        _wait_until(lambda: not _processes_of(folder), _GRACE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    return list(left.values())


def end_helpers() -> None:
    """End the processes with which this one has started others, and which would end with it."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    util._run_finalizers()  # type: ignore[attr-defined]


def _processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marked = process.environ().get(VARIABLE) == str(folder)
            if marked and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _signal_all(folder: Path, send: Callable[[psutil.Process], None]) -> None:
    for process in _processes_of(folder):
        with suppress(psutil.NoSuchProcess):
            send(process)


def _describe(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    return f"{process.pid}: ended by itself"


def _wait_until(happened: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


if __name__ == "__main__":
    sys.stdin.buffer.read()
    if Path(sys.argv[1]).exists():
        end(Path(sys.argv[1]))
