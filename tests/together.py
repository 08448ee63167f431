"""Runs a function in several threads that begin in the same instant."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def run_together(threads: int, work: Callable[[int], Result]) -> list[Result]:
    """The results of `work(0)`, `work(1)`, … ; the first error is raised."""
    barrier = threading.Barrier(threads)

    def begin(number: int) -> Result:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))
