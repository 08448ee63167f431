"""Whether a page's lines were written in another order than they are read in."""

from ctypes import byref
from itertools import pairwise
from typing import Any, NamedTuple

_SAMPLES = 8
_SUSPICIOUS_RISES = 2
_FEWEST_LINES = 6
_MOST_LINES = 2000


class _Start(NamedTuple):
    """Where a line begins, as the reader sees the page: rightwards, and down from the top."""

    along: float
    down: float
    height: float


def is_order_broken(page: Any, textpage: Any, text: str) -> bool:
    """Many lines stand above the line before them, and not because a new column began."""
    from pypdfium2 import raw  # type: ignore[import-untyped]

    if text.count("\n") < _FEWEST_LINES:
        return False
    rotation = raw.FPDFPage_GetRotation(page)
    if rotation == 0 and _count_sampled_rises(textpage, text) < _SUSPICIOUS_RISES:
        return False
    starts = _line_starts(textpage, _all_offsets(text), rotation)
    backwards = sum(_rises(*pair) and not _begins_column(*pair) for pair in pairwise(starts))
    return backwards * 10 >= len(starts) * 3


def _count_sampled_rises(textpage: Any, text: str) -> int:
    """How often it goes up between a few lines spread over the text; every page pays for this."""
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    pointer = byref(box)
    get_box = raw.FPDFText_GetLooseCharBox
    offsets = [text.find("\n", at) + 1 for at in range(0, len(text), len(text) // _SAMPLES)]
    tops = [box.top for offset in offsets if offset and get_box(textpage, offset, pointer)]
    return sum(after > before for before, after in pairwise(tops))


def _all_offsets(text: str) -> list[int]:
    offsets = [0]
    while len(offsets) < _MOST_LINES and (end := text.find("\n", offsets[-1])) >= 0:
        offsets.append(end + 1)
    return [offset for offset in offsets if offset < len(text)]


def _line_starts(textpage: Any, offsets: list[int], rotation: int) -> list[_Start]:
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    pointer = byref(box)
    # The text and pdfium's list of characters differ by a few at most: near enough.
    return [
        _turned(box, rotation)
        for offset in offsets
        if raw.FPDFText_GetLooseCharBox(textpage, offset, pointer)
    ]


def _turned(box: Any, rotation: int) -> _Start:
    """Undo the page's quarter turns (clockwise), so that lines follow each other downwards."""
    match rotation:
        case 1:
            return _Start(box.bottom, box.left, box.right - box.left)
        case 2:
            return _Start(-box.right, box.bottom, box.top - box.bottom)
        case 3:
            return _Start(-box.top, -box.right, box.right - box.left)
        case _:
            return _Start(box.left, -box.top, box.top - box.bottom)


def _rises(before: _Start, after: _Start) -> bool:
    return before.down - after.down > before.height / 2


def _begins_column(before: _Start, after: _Start) -> bool:
    """A column stands to the right of the one before it, by more than an indent."""
    return after.along - before.along > 6 * before.height
