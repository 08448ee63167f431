"""Peak resident memory of this process together with its children."""

import threading
from typing import Self

import psutil

SAMPLE_SECONDS = 0.2


class PeakMemory:
    """Samples while the block runs; `peak_mb` tells the highest sum seen."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
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
        while not self._over.wait(SAMPLE_SECONDS):
            family = [self._process, *self._process.children(recursive=True)]
            self.peak_mb = max(self.peak_mb, sum(map(_resident_bytes, family)) / 1024**2)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
