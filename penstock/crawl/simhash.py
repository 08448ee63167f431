"""A 64-bit fingerprint of a text that barely moves when the text barely changes."""

import zlib
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
# A long text is worked on in pieces, so that memory stays flat. A word cut in two where pieces
# meet moves three shingles among some hundred thousand.
_PIECE_CHARACTERS = 1 << 20
_PIECE_SHINGLES = 1 << 14


def visible_text(html: bytes) -> str:
    """What a reader sees of a page, without its scripts, styles and navigation.

    Nothing of a page made to keep the parser busy: such a page is compared by its bytes alone.
    """
    if _is_unreasonable(html):
        return ""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    tree.strip_tags(_INVISIBLE, recursive=True)
    body = tree.body or tree.root
    return " ".join(body.text(separator=" ").split()) if body else ""


def _is_unreasonable(html: bytes) -> bool:
    """Deep nesting and endless tags cost the parser the square of their length."""
    if html.count(b"<") > _MOST_TAGS:
        return True
    long = (piece for piece in html.split(b"<") if len(piece) > _LONGEST_TAG)
    return any(b">" not in piece[:_LONGEST_TAG] for piece in long)


def simhash(text: str) -> int:
    """0 … 2⁶⁴ - 1 over shingles of three lower-cased words; 0 for a text without words.

    The value is stored and compared across versions: it must never change for a text.
    """
    import numpy as np

    shingles = _shingle_hashes(_word_hashes(text))
    ones = np.zeros(BITS, dtype=np.int64)
    for start in range(0, len(shingles), _PIECE_SHINGLES):
        octets = shingles[start : start + _PIECE_SHINGLES].astype("<u8").view(np.uint8)
        ones += np.unpackbits(octets.reshape(-1, 8), axis=1, bitorder="little").sum(
            axis=0, dtype=np.int64
        )
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


def _word_hashes(text: str) -> "Hashes":
    import numpy as np

    pieces = [
        _hash_words(text[start : start + _PIECE_CHARACTERS])
        for start in range(0, len(text), _PIECE_CHARACTERS)
    ]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint64)


def _hash_words(text: str) -> "Hashes":
    import numpy as np

    # Python's own hash() differs from process to process. One encode for all words is quicker
    # than one for each.
    words = " ".join(text.lower().split()).encode("utf-8", "surrogatepass").split()
    return np.fromiter(map(zlib.crc32, words), dtype=np.uint64, count=len(words))


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
