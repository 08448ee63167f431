"""Peak memory of this process together with its children."""

import threading
from pathlib import Path
from typing import Self

import psutil

SAMPLE_SECONDS = 0.2


class PeakMemory:
    """Samples while the block runs; `peak_mb` tells the highest sum seen.

    Resident memory counts a page once for each process that shares it. With `proportional`, such a
    page is counted once over all of them, where the kernel tells it: the honest sum for children
    that were forked, at the price of a few milliseconds of work for each sample.
    """

    def __init__(self, *, proportional: bool = False) -> None:
        self.peak_mb = 0.0
        self._measure = _proportional_bytes if proportional else _resident_bytes
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample_on(self) -> None:
        over = False
        while not over:
            family = [self._process, *self._process.children(recursive=True)]
            self.peak_mb = max(self.peak_mb, sum(map(self._measure, family)) / 1024**2)
            over = self._over.wait(SAMPLE_SECONDS)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _proportional_bytes(process: psutil.Process) -> int:
    try:
        told = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return _resident_bytes(process)
    return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("Pss:")) * 1024
