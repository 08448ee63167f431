"""Ends the marked processes of an owner that was killed.

Usage: python -m penstock.local.guard MARK STATE_PATH, with a pipe from the owner as standard
input. As long as the state file names the mark, the next `up` or `down` may see to it instead.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from penstock.local.processes import end_marked, mark_of, marked_environment
from penstock.local.state import read_state

_LOOK_SECONDS = 2.0
_GRACE_SECONDS = 10.0


class Guard:
    """The owner's end of the pipe, which closes with the owner, however that ends."""

    def __init__(self, mark: str, state_path: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.local.guard", mark, str(state_path or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=marked_environment(mark_of(mark, "guard")),
            cwd="/",
            start_new_session=True,
        )

    def stop(self) -> None:
        self._process.kill()
        with self._process:  # closes the pipe and waits
            pass


def main() -> None:
    mark, state_path = sys.argv[1:]
    os.read(sys.stdin.fileno(), 1)
    while state_path and _names(Path(state_path), mark):
        time.sleep(_LOOK_SECONDS)
    end_marked(mark, _GRACE_SECONDS)


def _names(state_path: Path, mark: str) -> bool:
    state = read_state(state_path)
    return state is not None and state.id == mark


if __name__ == "__main__":
    main()
