"""Reads a PDF's pages with pdfium, and decides which of them need a reading by layout.

Drawn objects are handled by their address: pypdfium2's own bindings make a typed pointer of each,
which doubles the cost of a call, and the search for ruled tables runs on every page.
"""

import ctypes
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from ctypes import addressof, byref, c_float, c_ushort, cast, sizeof
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]

PAGE_WEIGHT = 20_000
"""Characters, objects and drawn segments; a page with more is a drawing, not a table."""

_SAMPLED_OBJECTS = 512
_FORM_DEPTH = 3
# FPDF_PAGEOBJ_PATH and FPDF_PAGEOBJ_FORM in fpdf_edit.h.
_PATH = 2
_FORM = 5


class Calls(NamedTuple):
    """pdfium's functions, with addresses as arguments and results."""

    count_objects: Callable[[int], int]
    get_object: Callable[[int, int], int]
    count_form_objects: Callable[[int], int]
    get_form_object: Callable[[int, int], int]
    get_type: Callable[[int], int]
    count_segments: Callable[[int], int]
    get_bounds: Callable[[int, int, int, int, int], int]


@cache
def bind_calls() -> Calls:
    from pypdfium2 import raw

    address, number = ctypes.c_void_p, ctypes.c_int
    count = ctypes.PYFUNCTYPE(number, address)
    get = ctypes.PYFUNCTYPE(address, address, number)
    bounds = ctypes.PYFUNCTYPE(number, *repeat(address, 5))
    return Calls(
        count(address_of(raw.FPDFPage_CountObjects)),
        get(address_of(raw.FPDFPage_GetObject)),
        count(address_of(raw.FPDFFormObj_CountObjects)),
        get(address_of(raw.FPDFFormObj_GetObject)),
        count(address_of(raw.FPDFPageObj_GetType)),
        count(address_of(raw.FPDFPath_CountSegments)),
        bounds(address_of(raw.FPDFPageObj_GetBounds)),
    )


def address_of(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def find_paths(page: Any) -> list[int]:
    """The page's paths and those of its forms; empty when a sample of many objects has none."""
    calls, address = bind_calls(), address_of(page)
    count = calls.count_objects(address)
    step = 1 + count // _SAMPLED_OBJECTS
    if step > 1 and not _find_drawn(address, range(0, count, step)):
        return []
    found = (_paths_of(*drawn) for drawn in _find_drawn(address, range(count)))
    return list(islice((path for paths in found for path in paths), PAGE_WEIGHT))


def weigh_drawing(page: Any) -> int:
    """The number of objects and segments, also inside forms; counted up to the limit."""
    calls, address = bind_calls(), address_of(page)
    weight = count = calls.count_objects(address)
    if count > PAGE_WEIGHT:
        return count
    for kind, drawn in _find_drawn(address, range(count)):
        for path in _paths_of(kind, drawn):
            weight += 1 + calls.count_segments(path)
            if weight > PAGE_WEIGHT:
                return weight
    return weight


def _find_drawn(page: int, indices: range) -> list[tuple[int, int]]:
    """The page's objects that are paths or forms, with their types."""
    calls = bind_calls()
    items = list(map(calls.get_object, repeat(page), indices))
    kinds = map(calls.get_type, items)
    return [pair for pair in zip(kinds, items, strict=True) if pair[0] in (_PATH, _FORM)]


def _paths_of(kind: int, item: int, depth: int = _FORM_DEPTH) -> Iterator[int]:
    """The path itself, or all paths of a form."""
    if kind == _PATH:
        yield item
    elif kind == _FORM and depth:
        calls = bind_calls()
        for index in range(calls.count_form_objects(item)):
            inside = calls.get_form_object(item, index)
            yield from _paths_of(calls.get_type(inside), inside, depth - 1)


CROSSINGS = 4000

_FEWEST_SEGMENTS = 10
_MOST_RULINGS = 8000
_FEW_OBJECTS = 8
_THIN = 3.0
_SHORTEST = 6.0
_SNAP = 3.0
_BOX_SEGMENTS = 6

Extents = dict[int, tuple[float, float]]


def holds_grid(page: Any, textpage: Any) -> bool:
    """Whether there are at least two rows and two columns of ruled cells, and not too many."""
    from pypdfium2 import raw

    count = raw.FPDFPage_CountObjects(page)
    if count > PAGE_WEIGHT:
        return False
    # Counting the pieces of text is much cheaper than reading the type of each object.
    if count > _FEW_OBJECTS and count <= raw.FPDFText_CountRects(textpage, 0, -1):
        return False
    paths = find_paths(page)
    segments = list(map(bind_calls().count_segments, paths))
    if not _FEWEST_SEGMENTS <= sum(segments) <= PAGE_WEIGHT:
        return False
    rulings = Rulings()
    for path, length in zip(paths, segments, strict=True):
        rulings.add(path, length)
    return rulings.count <= _MOST_RULINGS and rulings.form_grid()


class Rulings:
    """Straight lines of a page; those on the same line are merged."""

    def __init__(self) -> None:
        self.count = 0
        self._horizontal: Extents = {}
        self._vertical: Extents = {}
        self._bounds = (c_float * 4)()
        start = addressof(self._bounds)
        self._pointers = tuple(range(start, start + sizeof(self._bounds), sizeof(c_float)))
        self._get_bounds = bind_calls().get_bounds

    def add(self, path: int, segments: int) -> None:
        """Add the sides of a box or a thin bar, or every straight segment of a longer path."""
        if segments > _BOX_SEGMENTS:
            self._add_segments(path, segments)
        elif self._get_bounds(path, *self._pointers):
            self._add_box(*self._bounds)

    def form_grid(self) -> bool:
        """Whether three or more lines have two or more columns between them, and not too many."""
        if len(self._horizontal) * len(self._vertical) > CROSSINGS * 10:
            return False
        ruled = crossings = 0
        for y, (start, end) in self._horizontal.items():
            level = y * _SNAP
            xs = [
                x * _SNAP
                for x, (bottom, top) in self._vertical.items()
                if start - _SNAP <= x * _SNAP <= end + _SNAP
                and bottom - _SNAP <= level <= top + _SNAP
            ]
            if xs:
                # The outer columns may have no outer side.
                open_sides = (min(xs) - start > _SHORTEST) + (end - max(xs) > _SHORTEST)
                ruled += len(xs) - 1 + open_sides > 1
                crossings += len(xs)
        return ruled >= 3 and crossings <= CROSSINGS

    def _add_box(self, left: float, bottom: float, right: float, top: float) -> None:
        if top - bottom <= _THIN:
            self._add_line(self._horizontal, (bottom + top) / 2, left, right)
        elif right - left <= _THIN:
            self._add_line(self._vertical, (left + right) / 2, bottom, top)
        else:
            for y in (bottom, top):
                self._add_line(self._horizontal, y, left, right)
            for x in (left, right):
                self._add_line(self._vertical, x, bottom, top)

    def _add_line(self, lines: Extents, at: float, start: float, end: float) -> None:
        self.count += 1
        if end - start < _SHORTEST:
            return
        key = round(at / _SNAP)
        known = lines.get(key, (start, end))
        lines[key] = (min(start, known[0]), max(end, known[1]))

    def _add_segments(self, path: int, segments: int) -> None:
        from pypdfium2 import raw

        item = cast(path, raw.FPDF_PAGEOBJECT)
        matrix = raw.FS_MATRIX()
        raw.FPDFPageObj_GetMatrix(item, byref(matrix))
        x, y = c_float(), c_float()
        before: tuple[float, float] | None = None
        for index in range(segments):
            segment = raw.FPDFPath_GetPathSegment(item, index)
            raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
            point = (
                matrix.a * x.value + matrix.c * y.value + matrix.e,
                matrix.b * x.value + matrix.d * y.value + matrix.f,
            )
            straight = raw.FPDFPathSegment_GetType(segment) == raw.FPDF_SEGMENT_LINETO
            if before is not None and straight:
                (x0, x1), (y0, y1) = sorted((before[0], point[0])), sorted((before[1], point[1]))
                if min(x1 - x0, y1 - y0) <= _THIN:
                    self._add_box(x0, y0, x1, y1)
            before = point


_SAMPLES = 8
_LEAST_RISES = 2
_FEWEST_LINES = 6
_MOST_LINES = 2000


class _Start(NamedTuple):
    """Where a line begins on the page as it is shown: from the left, and down from the top."""

    along: float
    down: float
    height: float


def is_order_broken(page: Any, textpage: Any, text: str) -> bool:
    """Whether many lines are above the line before them, other than at the start of a column."""
    from pypdfium2 import raw

    if text.count("\n") < _FEWEST_LINES:
        return False
    rotation = raw.FPDFPage_GetRotation(page)
    if rotation == 0 and _count_sampled_rises(textpage, text) < _LEAST_RISES:
        return False
    offsets = [0]
    while len(offsets) < _MOST_LINES and (end := text.find("\n", offsets[-1])) >= 0:
        offsets.append(end + 1)
    box = raw.FS_RECTF()
    pointer = byref(box)
    # The text and pdfium's list of characters differ by a few at most: near enough.
    starts = [
        _turned(box, rotation)
        for offset in offsets
        if offset < len(text) and raw.FPDFText_GetLooseCharBox(textpage, offset, pointer)
    ]
    backwards = 0
    for before, after in pairwise(starts):
        rises = before.down - after.down > before.height / 2
        # A new column begins to the right of the one before it, by more than an indent.
        begins_column = after.along - before.along > 6 * before.height
        backwards += rises and not begins_column
    return backwards * 10 >= len(starts) * 3


def _count_sampled_rises(textpage: Any, text: str) -> int:
    """How often a line is above the one before, in a sample: this runs on every page."""
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    pointer = byref(box)
    get_box = raw.FPDFText_GetLooseCharBox
    offsets = [text.find("\n", at) + 1 for at in range(0, len(text), len(text) // _SAMPLES)]
    tops = [box.top for offset in offsets if offset and get_box(textpage, offset, pointer)]
    return sum(after > before for before, after in pairwise(tops))


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


_INSPECTED_CHARS = 1000
_SHORT_CHARS = 200
_TURN_SAMPLES = 24
_DOUBLE = re.compile(r"([^\W\d_])\1")
_DOUBLES = re.compile(r"([^\W_])\1+")
_DOUBLE_SHARE = 0.06
_OVER_SHARE = 0.7
_SPACE = 0x20

# What pdfium returns for glyphs without a known character. Not U+FFFE, which marks a hyphen at the
# end of a line.
_UNMAPPED = re.compile("[\x00-\x08\x0e-\x1f\ufffd\ue000-\uf8ff]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


@dataclass(frozen=True, slots=True)
class FastPage:
    """The text of one page, and the reasons to read it by its layout."""

    text: str
    grid: bool = False
    """It has a ruled table."""
    disordered: bool = False
    poor: bool = False
    """Fewer characters than pieces of text, or many unknown characters."""
    turned: int | None = None
    """The rotation that it was read under, in quarter turns, where that is not its own."""
    weight: int = 0
    """The cost of reading its layout: characters and drawn segments."""

    @property
    def wants_layout(self) -> bool:
        return self.grid or self.disordered or self.poor


def read_pages(document: "PdfDocument") -> Iterator[FastPage | None]:
    """The pages, each closed before the next is loaded; None for one that pdfium cannot load.

    With pypdfium2's raw calls, since its page objects cost more than the search for tables.
    """
    from pypdfium2 import raw

    for index in range(len(document)):
        page = raw.FPDF_LoadPage(document.raw, index)
        textpage = page and raw.FPDFText_LoadPage(page)
        try:
            turned = _find_turn(page, textpage) if textpage else None
            if turned is not None:
                raw.FPDFText_ClosePage(textpage)
                raw.FPDFPage_SetRotation(page, turned)
                textpage = raw.FPDFText_LoadPage(page)
            read = _inspect(page, textpage, turned) if textpage else None
        finally:
            if textpage:
                raw.FPDFText_ClosePage(textpage)
            if page:
                raw.FPDF_ClosePage(page)
        yield read


def _read_text(textpage: Any) -> str:
    from pypdfium2 import raw

    first, last = 0, raw.FPDFText_CountChars(textpage) - 1
    # pdfium returns nothing, or too much, for a range that ends in a character it left out.
    while first <= last and raw.FPDFText_GetTextIndexFromCharIndex(textpage, first) < 0:
        first += 1
    while first < last and raw.FPDFText_GetTextIndexFromCharIndex(textpage, last) < 0:
        last -= 1
    count = last - first + 1
    if count <= 0:
        return ""
    # ctypes keeps a type for every length of array, so only a few lengths are used.
    buffer = (c_ushort * (2048 * (1 + count // 1024)))()
    written = raw.FPDFText_GetText(textpage, first, count, buffer)
    return bytes(buffer)[: 2 * max(0, written - 1)].decode("utf-16-le", errors="ignore")


def _drop_overprints(textpage: Any, text: str) -> str:
    """The text without letters printed twice for bold, further apart than pdfium takes as one."""
    inspected = text[:_INSPECTED_CHARS]
    # Some three in a hundred letters of a language are double.
    if len(_DOUBLE.findall(inspected)) < _DOUBLE_SHARE * len(inspected):
        return text
    return _DOUBLES.sub(lambda run: run[0][0] * _count_apart(textpage, *run.span()), text)


def _count_apart(textpage: Any, start: int, end: int) -> int:
    """How many of these equal letters do not lie over the one before."""
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    count, last = 0, (-math.inf, -math.inf)
    for place in range(start, end):
        index = raw.FPDFText_GetCharIndexFromTextIndex(textpage, place)
        if not raw.FPDFText_GetLooseCharBox(textpage, index, byref(box)):
            return end - start
        # A letter is higher than wide, whichever way it is turned.
        width = min(box.right - box.left, box.top - box.bottom)
        if math.dist((box.left, box.bottom), last) > _OVER_SHARE * width:
            count, last = count + 1, (box.left, box.bottom)
    return count


def _find_turn(page: Any, textpage: Any) -> int | None:
    """The rotation, in quarter turns, under which the text is upright; None if it is already."""
    from pypdfium2 import raw

    count = raw.FPDFText_CountChars(textpage)
    sample = range(0, count, 1 + count // _TURN_SAMPLES)
    # Spaces that pdfium adds have no angle of their own.
    shown = [n for n in sample if raw.FPDFText_GetUnicode(textpage, n) > _SPACE]
    turns = Counter(
        round(-raw.FPDFText_GetCharAngle(textpage, n) / (math.pi / 2)) % 4 for n in shown
    )
    turn, times = max(turns.items(), key=lambda item: item[1], default=(0, 0))
    upright = 4 * times < 3 * len(shown) or turn == raw.FPDFPage_GetRotation(page)
    return None if upright or not shown else turn


def _inspect(page: Any, textpage: Any, turned: int | None) -> FastPage:
    text = _drop_overprints(textpage, _read_text(textpage))
    grid = holds_grid(page, textpage)
    disordered = is_order_broken(page, textpage, text)
    inspected = text[:_INSPECTED_CHARS]
    poor = len(_UNMAPPED.findall(inspected)) * 10 > len(inspected) or (
        len(text) < _SHORT_CHARS and _count_texts(page) > len(text)
    )
    if not (grid or disordered or poor) or _reads_right_to_left(text):
        return FastPage(text)
    weight = len(text) + weigh_drawing(page)
    if weight > PAGE_WEIGHT:
        return FastPage(text)
    return FastPage(text, grid, disordered, poor, turned, weight)


def _count_texts(page: Any) -> int:
    from pypdfium2 import raw

    count = min(raw.FPDFPage_CountObjects(page), PAGE_WEIGHT)
    objects = (raw.FPDFPage_GetObject(page, index) for index in range(count))
    return sum(raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_TEXT for item in objects)


def _reads_right_to_left(text: str) -> bool:
    """pdfium puts right-to-left text into reading order, pdfplumber does not."""
    inspected = text[:_INSPECTED_CHARS]
    return len(_RIGHT_TO_LEFT.findall(inspected)) * 10 > len(inspected)
