"""SIGTERM and SIGINT as a request to stop gracefully."""

# Before ours, so that what it does when the main thread ends comes after it.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from penstock.worker.extraction_worker import ExtractionWorker

log = logging.getLogger(__name__)
# Shells and `timeout` send one signal to the program and again to its group.
ECHO_SECONDS = 1.0


def register_signal_handlers(worker: ExtractionWorker, timeout: float = 60.0) -> None:
    """Stop the worker on SIGTERM or SIGINT; call it from the main thread, before `start`.

    The first signal lets the jobs under way finish, for at most `timeout` seconds; a second one
    does what it did before. As long as the worker runs, it keeps the program alive.
    """
    before: dict[int, Any] = {}
    asked_at: float | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        nonlocal asked_at
        if worker.is_running():
            asked_at = time.monotonic()
            log.warning("%s: finishing the jobs under way", signal.Signals(number).name)
            # Not here: whatever this signal interrupted may hold a lock that stopping needs.
            threading.Thread(target=worker.stop, args=(timeout,), name="penstock-stop").start()
        elif asked_at is None or time.monotonic() - asked_at > ECHO_SECONDS:
            for known, handler in before.items():
                signal.signal(known, handler)
            os.kill(os.getpid(), number)

    worker.keeps_program_alive = True
    # Pools of threads take no more work once the main thread has ended, and jobs need them. There
    # is no public way to have it wait: `atexit` is called later.
    threading._register_atexit(worker.wait)  # type: ignore[attr-defined]
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
