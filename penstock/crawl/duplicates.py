"""Documents that came by before in the same run, byte for byte or nearly."""

import threading
from dataclasses import dataclass

from penstock.crawl.simhash import distance

MAX_DISTANCE = 3
# Two fingerprints that differ in at most three bits agree in at least one of four bands.
_BANDS = MAX_DISTANCE + 1
_BAND_BITS = 64 // _BANDS


@dataclass(frozen=True, slots=True)
class DuplicateOf:
    """The document that was there first, and how many bits lie between the two."""

    external_id: str
    distance: int


class Duplicates:
    """Remembers the documents of one run, the oldest forgotten first. Safe to share by threads."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._documents: dict[str, tuple[str, int]] = {}
        self._by_hash: dict[str, str] = {}
        self._by_band: dict[int, list[str]] = {}

    def check(self, external_id: str, content_hash: str, simhash: int | None) -> DuplicateOf | None:
        """The earlier document this one repeats; a document that repeats none is remembered."""
        with self._lock:
            # A document that is tried again is not its own duplicate.
            self._forget(external_id)
            found = self._find(content_hash, simhash or 0)
            if found is None:
                self._remember(external_id, content_hash, simhash or 0)
            return found

    def _find(self, content_hash: str, simhash: int) -> DuplicateOf | None:
        same = self._by_hash.get(content_hash)
        if same is not None:
            return DuplicateOf(same, 0)
        near = [
            DuplicateOf(other, distance(simhash, self._documents[other][1]))
            for band in _bands(simhash)
            for other in self._by_band.get(band, ())
        ]
        nearest = min(near, key=lambda found: found.distance, default=None)
        return nearest if nearest and nearest.distance <= MAX_DISTANCE else None

    def _remember(self, external_id: str, content_hash: str, simhash: int) -> None:
        if len(self._documents) >= self._limit:
            self._forget(next(iter(self._documents)))
        self._documents[external_id] = (content_hash, simhash)
        self._by_hash[content_hash] = external_id
        for band in _bands(simhash):
            self._by_band.setdefault(band, []).append(external_id)

    def _forget(self, external_id: str) -> None:
        document = self._documents.pop(external_id, None)
        if document is None:
            return
        content_hash, simhash = document
        del self._by_hash[content_hash]
        for band in _bands(simhash):
            self._by_band[band].remove(external_id)
            if not self._by_band[band]:
                del self._by_band[band]


def _bands(simhash: int) -> list[int]:
    """One key per band; none for 0, which stands for "no words" and resembles nothing."""
    if simhash == 0:
        return []
    mask = (1 << _BAND_BITS) - 1
    return [
        (band << _BAND_BITS) | ((simhash >> (band * _BAND_BITS)) & mask) for band in range(_BANDS)
    ]
