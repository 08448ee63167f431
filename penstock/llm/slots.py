"""A number of calls that may be under way at once, given out in the order they are asked for."""

import threading
from collections import deque


class Slots:
    """A semaphore that nobody overtakes at: batches end in the order they began.

    With the standard one, whoever has just given a slot back takes the next before a waiting
    thread is awake, so some questions of every batch wait for the last moment.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
