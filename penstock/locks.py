"""A lock between processes, let go by the kernel when its holder ends."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.1


@contextmanager
def hold_lock(
    path: Path, timeout_seconds: float, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock of this file; `waiting` is called while somebody else has it.

    Raises TimeoutError when it is not free in time.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(handle, path, time.monotonic() + timeout_seconds, waiting)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, deadline: float, waiting: Callable[[], None] | None) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{path} is still locked by another process") from None
        if waiting is not None:
            waiting()
        time.sleep(_POLL_SECONDS)
