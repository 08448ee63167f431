"""Waiting for something that other processes do."""

import time
from collections.abc import Callable


class TooLong(AssertionError):
    """What was waited for did not happen in time."""


def wait_for(happened: Callable[[], bool], seconds: float, what: str) -> float:
    """Look again and again; how many seconds it took."""
    began = time.monotonic()
    while not happened():
        if time.monotonic() - began > seconds:
            raise TooLong(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)
    return time.monotonic() - began
