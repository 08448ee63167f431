"""Threads that begin in the same instant, and waiting for what other threads do."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def run_together(threads: int, work: Callable[[int], Result]) -> list[Result]:
    """The results of `work(0)`, `work(1)`, … ; the first error is raised."""
    barrier = threading.Barrier(threads, timeout=60)

    def begin(number: int) -> Result:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def wait_until(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    """Look again and again until it has happened; an error when it does not."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"nothing happened in {seconds} seconds"
        time.sleep(0.01)


def quickest(action: Callable[[], bool]) -> float:
    """The best of five: other programs on the machine can only slow it down."""

    def once() -> float:
        began = time.monotonic()
        assert action()
        return time.monotonic() - began

    return min(once() for _ in range(5))
