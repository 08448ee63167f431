"""One worker process of a scene: started, halted, killed by its id."""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.scenarios.waiting import wait_for
from tests.preloaded import PRELOADED, Started

_ROOT = Path(__file__).parents[3]


@dataclass
class Hand:
    """A process that works once it is told to begin."""

    environment: Mapping[str, str]
    log_path: Path
    skew_seconds: float = 0.0
    begun: bool = False
    _process: Started = field(init=False)

    def __post_init__(self) -> None:
        # In a session of its own: its children are ended with it, also when it is killed.
        self._process = PRELOADED.start(
            "tests.faults.scenarios.worker_process",
            str(self.skew_seconds),
            "--workers",
            "1",
            environment=self.environment,
            folder=_ROOT,
            log_path=self.log_path,
            own_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self) -> None:
        self._process.stdin.write("begin\n")
        self._process.stdin.close()
        self.begun = True

    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        return self._process.poll() == -signal.SIGKILL

    def is_halted(self) -> bool:
        return self.is_alive() and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """With SIGKILL, and everything it has started, also after it has ended by itself."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """With SIGTERM, as a supervisor does; killed when that takes too long."""
        if self.is_alive() and self.begun:
            os.kill(self.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
        self.kill()
        self._process.close()

    def wait_until_halted(self, seconds: float = 60.0) -> None:
        wait_for(self.is_halted, seconds, f"process {self.pid} to halt")
