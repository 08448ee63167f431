"""SimHash fingerprints of texts, and duplicates within one run."""

import threading
import zlib
from array import array
from collections.abc import Iterator
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
_MOST_COMPARED = 32
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class DuplicateOf:
    """The earlier document, and how many bits of the two fingerprints differ."""

    external_id: str
    distance: int


class Duplicates:
    """The documents of one run, the latest `limit` of them. Safe to share by threads.

    Pages of one site can share a band by what they have in common, so that all of them would be
    compared with each other: of each band, only the latest few are.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._count = 0
        """Documents so far; each has the place of its number among `limit`."""
        self._ids: list[str | None] = []
        self._hashes: list[bytes] = []
        self._fingerprints = array("Q")
        self._by_hash: dict[bytes, int] = {}
        self._latest = array("q", [-1]) * (_BANDS << _BAND_BITS)
        """The number of the latest document with this value of a band."""
        self._before = array("q")
        """Of each document and band, the number of the one before it with the same value."""

    def check(self, external_id: str, content_hash: str, simhash: int | None) -> DuplicateOf | None:
        """The earlier document of which this is a duplicate; if there is none, it is added."""
        digest = content_hash.encode()[:_HASH_BYTES]
        with self._lock:
            found = self._find(digest, simhash or 0)
            while found is not None and self._ids[found[1]] == external_id:
                # It is tried again, and not its own duplicate.
                self._forget(found[1])
                found = self._find(digest, simhash or 0)
            if found is None:
                self._add(external_id, digest, simhash or 0)
                return None
            return DuplicateOf(str(self._ids[found[1]]), found[0])

    def _find(self, digest: bytes, simhash: int) -> tuple[int, int] | None:
        """Distance and place of the nearest."""
        same = self._by_hash.get(digest)
        if same is not None:
            return 0, same % self._limit
        near = min(self._candidates(simhash), default=None)
        return near if near is not None and near[0] <= MAX_DISTANCE else None

    def _candidates(self, simhash: int) -> Iterator[tuple[int, int]]:
        """Distance and place of the documents that share a band."""
        oldest = self._count - self._limit
        for band, key in enumerate(_bands(simhash)):
            number = self._latest[key]
            for _ in range(_MOST_COMPARED):
                if number < 0 or number < oldest:
                    break
                place = number % self._limit
                if self._ids[place] is not None:
                    yield distance(simhash, self._fingerprints[place]), place
                number = self._before[place * _BANDS + band]

    def _add(self, external_id: str, digest: bytes, simhash: int) -> None:
        number, place = self._count, self._count % self._limit
        if number < self._limit:
            self._ids.append(external_id)
            self._hashes.append(digest)
            self._fingerprints.append(simhash)
            self._before.extend([-1] * _BANDS)
        else:
            self._forget(place)
            self._ids[place], self._hashes[place] = external_id, digest
            self._fingerprints[place] = simhash
        self._by_hash[digest] = number
        for band, key in enumerate(_bands(simhash)):
            self._before[place * _BANDS + band] = self._latest[key]
            self._latest[key] = number
        self._count += 1

    def _forget(self, place: int) -> None:
        if self._ids[place] is not None:
            del self._by_hash[self._hashes[place]]
            self._ids[place] = None


def _bands(simhash: int) -> list[int]:
    """One key per band; none for 0, which stands for "no words" and resembles nothing."""
    if simhash == 0:
        return []
    mask = (1 << _BAND_BITS) - 1
    return [
        (band << _BAND_BITS) | ((simhash >> (band * _BAND_BITS)) & mask) for band in range(_BANDS)
    ]
