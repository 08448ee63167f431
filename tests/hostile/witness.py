"""Watches the memory of this process and of its children while something runs."""

import threading
from typing import Self

import psutil

SAMPLE_SECONDS = 0.05


class Witness:
    """Tells the largest resident child seen, and by how much this process grew in the end."""

    def __init__(self) -> None:
        self.largest_child_bytes = 0
        self.grown_bytes = 0
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = self._process.memory_info().rss
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.grown_bytes = self._process.memory_info().rss - self._before

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            sizes = map(_resident_bytes, self._process.children(recursive=True))
            self.largest_child_bytes = max(self.largest_child_bytes, *sizes, 0)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
