"""A source that fails again and again is left alone for the rest of its run."""

import threading

from penstock.crawl.retry import HttpFault
from penstock.errors import DocumentFault, ErrorClass

LIMIT = 5
# These say that one document has gone, and nothing about the others.
_GONE = frozenset({404, 410})


class Circuit:
    """Opens after five failures and stays open. Safe to share by threads."""

    def __init__(self, source: str, limit: int = LIMIT) -> None:
        self._source = source
        self._limit = limit
        self._lock = threading.Lock()
        self._failures = 0
        self._last = ""

    @property
    def is_open(self) -> bool:
        return self._failures >= self._limit

    @property
    def reason(self) -> str:
        return (
            f"the circuit of {self._source} is open: {self._limit} documents failed in this run, "
            f"so the rest was not asked for (the last one: {self._last})"
        )

    def check(self) -> None:
        """Refuse a document while the circuit is open."""
        if self.is_open:
            raise DocumentFault(ErrorClass.UNAVAILABLE, self.reason)

    def note(self, fault: DocumentFault) -> bool:
        """Count a failure; True for the one that opens the circuit."""
        if not _speaks_of_source(fault):
            return False
        with self._lock:
            self._failures += 1
            if self._failures == self._limit:
                self._last = str(fault)
            return self._failures == self._limit


def _speaks_of_source(fault: DocumentFault) -> bool:
    """Whether a failure makes the next document of the source likely to fail as well."""
    if isinstance(fault, HttpFault) and fault.status is not None:
        return fault.status not in _GONE
    return not fault.kind.permanent
