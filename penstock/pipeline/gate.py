"""Batches of one process go on side by side; one that is on trial goes on alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class BatchGate:
    """Lets any number of batches through, or one by itself."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._one_alone = False

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Claim and process in this block; it begins when no batch is alone or is about to be."""
        with self._changed:
            self._changed.wait_for(lambda: not self._one_alone)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within such a block: wait for the other batches to end, and keep new ones out."""
        with self._changed:
            # Not waited for by another one that wants to be alone.
            self._inside -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._one_alone)
            self._one_alone = True
            self._changed.wait_for(lambda: self._inside == 0)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._one_alone = False
                self._changed.notify_all()
