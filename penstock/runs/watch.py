"""Notices soon that a run was ended by somebody else, so that nothing more is begun for it."""

import threading
import time

from penstock.runs.lifecycle import guard_reading
from penstock.runs.vocabulary import RunLease
from penstock.store.database import Database
from penstock.store.patience import patient

LOOK_SECONDS = 0.5


class RunWatch:
    """Whether the run is still ours, asked of the database now and then. Safe from threads."""

    def __init__(self, database: Database, lease: RunLease) -> None:
        self._database = database
        self._lease = lease
        self._lock = threading.Lock()
        self._looked_at = 0.0

    def check(self) -> None:
        """Raise RunGone when it is not; to be called before anything that could be left undone."""
        with self._lock:
            if time.monotonic() - self._looked_at < LOOK_SECONDS:
                return
            self._looked_at = time.monotonic()
        try:
            self._look()
        except BaseException:
            # Every other thread is to find out as well.
            self._looked_at = 0.0
            raise

    @patient
    def _look(self) -> None:
        with self._database.read() as tx:
            guard_reading(tx, self._lease)
