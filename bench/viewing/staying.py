"""Whether a tab that stays open over a busy log stays as small as it was."""

import threading
import time
from dataclasses import dataclass

from playwright.sync_api import Browser, CDPSession

from bench.viewing.scene import Scene

LINES_PER_SECOND = 200
_BATCHES_PER_SECOND = 4


@dataclass(frozen=True, slots=True)
class Stayed:
    """The tab's memory in use, in MB, from the first minute on, and what it had shown."""

    heap_mb: list[float]
    lines: int
    drawn: int

    @property
    def growth_mb(self) -> float:
        return self.heap_mb[-1] - self.heap_mb[0]


def stay(scene: Scene, browser: Browser, minutes: float, first: int) -> Stayed:
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(f"{scene.address}/ui/runs/{scene.run_id}")
    page.locator(".line[data-seq]").first.wait_for()
    writer = _Writer(scene, first)
    writer.start()
    try:
        heap = []
        # The first measure comes after a while: what is made once is not growth.
        for _ in range(max(2, round(minutes * 2)) + 1):
            page.wait_for_timeout(30_000 if minutes >= 1 else minutes * 30_000)
            heap.append(_heap_mb(session))
    finally:
        writer.stop()
    page.locator(".line", has_text=f"line {writer.written - 1} that was written").wait_for()
    drawn = page.locator(".line").count()
    page.close()
    return Stayed(heap, writer.written - first, drawn)


def _heap_mb(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")) / 1e6


class _Writer(threading.Thread):
    """Writes so many lines a second until it is told to stop."""

    def __init__(self, scene: Scene, first: int) -> None:
        super().__init__(daemon=True)
        self._scene = scene
        self.written = first
        self._stopped = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            count = LINES_PER_SECOND // _BATCHES_PER_SECOND
            self._scene.write_lines(self.written, count)
            self.written += count
            due += 1 / _BATCHES_PER_SECOND
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._stopped.set()
        self.join()
