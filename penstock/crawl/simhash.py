"""SimHash fingerprints of texts, and duplicates within one run."""

import threading
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]


BITS = 64
_SHINGLE_WORDS = 3
_MOST_TAGS = 30_000
_LONGEST_TAG = 65_536
_INVISIBLE = ["script", "style", "nav", "header", "footer", "noscript", "template"]
# A long text is hashed in pieces to bound the memory. A word that is cut in two between them
# changes three shingles among some hundred thousand.
_PIECE_CHARACTERS = 1 << 20


def visible_text(html: bytes) -> str:
    """The visible text of a page, without its scripts, styles and navigation; its blanks as they
    come.

    Empty for a page that would take the parser too long: it is compared by its bytes alone.
    """
    if _is_too_slow(html):
        return ""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    tree.strip_tags(_INVISIBLE, recursive=True)
    body = tree.body or tree.root
    return body.text(separator=" ") if body else ""


def _is_too_slow(html: bytes) -> bool:
    """Deep nesting and very long tags take the parser quadratic time."""
    if html.count(b"<") > _MOST_TAGS:
        return True
    start = html.find(b"<") + 1
    while len(html) - start > _LONGEST_TAG:
        # The last tag that begins within reach of this one: those between them are shorter.
        last = html.rfind(b"<", start, start + _LONGEST_TAG + 1)
        if last < 0:
            if html.find(b">", start, start + _LONGEST_TAG) < 0:
                return True
            last = html.find(b"<", start + _LONGEST_TAG)
            if last < 0:
                return False
        start = last + 1
    return False


def simhash(text: str) -> int:
    """0 … 2⁶⁴ - 1 over shingles of three lower-cased words; 0 for a text without words.

    The value is stored and compared across versions: it must never change for a text.
    """
    import numpy as np

    shingles = _shingle_hashes(_word_hashes(text))
    # How often each value occurs at each of the eight octets, and then the bits of the values: a
    # fraction of the work of unpacking every shingle into its bits.
    octets = shingles.astype("<u8").view(np.uint8).reshape(-1, 8)
    counts = np.array([np.bincount(octets[:, place], minlength=256) for place in range(8)])
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    ones = np.einsum("pv,vb->pb", counts, bits.astype(np.int64)).reshape(BITS)
    majority = np.packbits(2 * ones > len(shingles), bitorder="little")
    return int.from_bytes(majority.tobytes(), "little")


def distance(a: int, b: int) -> int:
    """How many of the 64 bits differ."""
    return (a ^ b).bit_count()


def to_signed(value: int) -> int:
    """The same 64 bits as a BIGINT column holds them."""
    return value - (1 << BITS) if value >= 1 << (BITS - 1) else value


def from_signed(value: int) -> int:
    """The simhash that a BIGINT column holds."""
    return value % (1 << BITS)


_BLANK_SEPARATORS = bytes.maketrans(b"\x1c\x1d\x1e\x1f", b"    ")


def _word_hashes(text: str) -> "Hashes":
    import numpy as np

    pieces = [np.zeros(0, dtype=np.uint64)]
    for start in range(0, len(text), _PIECE_CHARACTERS):
        lowered = text[start : start + _PIECE_CHARACTERS].lower()
        if not lowered.isascii():
            lowered = " ".join(lowered.split())
        # One encode for all words is quicker than one for each. Of ASCII, text and bytes are split
        # at the same blanks but for the four separators.
        words = lowered.encode("utf-8", "surrogatepass").translate(_BLANK_SEPARATORS).split()
        # Python's own hash() differs from process to process.
        pieces.append(np.fromiter(map(zlib.crc32, words), dtype=np.uint64, count=len(words)))
    return np.concatenate(pieces)


def _shingle_hashes(words: "Hashes") -> "Hashes":
    import numpy as np

    if 0 < len(words) < _SHINGLE_WORDS:
        words = np.pad(words, (0, _SHINGLE_WORDS - len(words)))
    if not len(words):
        return words
    mixed = _mix(words[:-2])
    mixed = _mix(mixed + words[1:-1])
    return _mix(mixed + words[2:])


def _mix(values: "Hashes") -> "Hashes":
    """Spread every input bit over all 64 (odd multipliers and shifts, wrapping at 2⁶⁴)."""
    import numpy as np

    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD1342543DE82EF95)
    values ^= values >> np.uint64(32)
    values *= np.uint64(0xD1342543DE82EF95)
    values ^= values >> np.uint64(29)
    return values


MAX_DISTANCE = 3
# Two fingerprints that differ in at most three bits agree in at least one of four bands.
_BANDS = MAX_DISTANCE + 1
_BAND_BITS = 64 // _BANDS


@dataclass(frozen=True, slots=True)
class DuplicateOf:
    """The earlier document, and how many bits of the two fingerprints differ."""

    external_id: str
    distance: int


class Duplicates:
    """The documents of one run, the latest `limit` of them. Safe to share by threads."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._documents: dict[str, tuple[str, int]] = {}
        self._by_hash: dict[str, str] = {}
        self._by_band: dict[int, list[str]] = {}

    def check(self, external_id: str, content_hash: str, simhash: int | None) -> DuplicateOf | None:
        """The earlier document of which this is a duplicate; if there is none, it is added."""
        with self._lock:
            # A document that is tried again is not its own duplicate.
            self._remove(external_id)
            found = self._find(content_hash, simhash or 0)
            if found is None:
                self._add(external_id, content_hash, simhash or 0)
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

    def _add(self, external_id: str, content_hash: str, simhash: int) -> None:
        if len(self._documents) >= self._limit:
            self._remove(next(iter(self._documents)))
        self._documents[external_id] = (content_hash, simhash)
        self._by_hash[content_hash] = external_id
        for band in _bands(simhash):
            self._by_band.setdefault(band, []).append(external_id)

    def _remove(self, external_id: str) -> None:
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
