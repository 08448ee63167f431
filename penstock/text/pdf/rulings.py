"""A cheap look at what is drawn on a PDF page: is it ruled like a table?"""

from collections.abc import Iterator
from ctypes import addressof, byref, c_float, cast, sizeof
from typing import Any

from penstock.text.pdf.objects import PAGE_WEIGHT, bind_calls, find_paths

CROSSINGS = 4000

_FEWEST_SEGMENTS = 10
_MOST_RULINGS = 8000
_GLANCED_OBJECTS = 8
_THIN = 3.0
_SHORTEST = 6.0
_SNAP = 3.0
_BOX_SEGMENTS = 6

Extents = dict[int, tuple[float, float]]


def holds_grid(page: Any, textpage: Any) -> bool:
    """At least two rows and two columns of ruled cells, and not so many that it is no table."""
    from pypdfium2 import raw  # type: ignore[import-untyped]

    count = raw.FPDFPage_CountObjects(page)
    if count > PAGE_WEIGHT:
        return False
    # Counting the pieces of text is much cheaper than asking each object what it is.
    if count > _GLANCED_OBJECTS and count <= raw.FPDFText_CountRects(textpage, 0, -1):
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
    """Straight lines of a page, those along the same line taken as one."""

    def __init__(self) -> None:
        self.count = 0
        self._horizontal: Extents = {}
        self._vertical: Extents = {}
        self._bounds = (c_float * 4)()
        start = addressof(self._bounds)
        self._pointers = tuple(range(start, start + sizeof(self._bounds), sizeof(c_float)))
        self._get_bounds = bind_calls().get_bounds

    def add(self, path: int, segments: int) -> None:
        """The sides of a box or a thin bar, or every straight piece of a longer path."""
        if segments > _BOX_SEGMENTS:
            self._add_segments(path, segments)
        elif self._get_bounds(path, *self._pointers):
            self._add_box(*self._bounds)

    def form_grid(self) -> bool:
        """Three lines or more with two columns or more between them, and not a whole mesh."""
        if len(self._horizontal) * len(self._vertical) > CROSSINGS * 10:
            return False
        crossings = [self._crossings(y, ends) for y, ends in self._horizontal.items()]
        ends = self._horizontal.values()
        ruled = sum(_count_columns(xs, *pair) > 1 for xs, pair in zip(crossings, ends, strict=True))
        return ruled >= 3 and sum(map(len, crossings)) <= CROSSINGS

    def _crossings(self, y: int, ends: tuple[float, float]) -> list[float]:
        """Where lines cross the one at this height."""
        level = y * _SNAP
        return [
            x * _SNAP
            for x, (bottom, top) in self._vertical.items()
            if ends[0] - _SNAP <= x * _SNAP <= ends[1] + _SNAP
            and bottom - _SNAP <= level <= top + _SNAP
        ]

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

        before: tuple[float, float] | None = None
        for kind, point in _points(path, segments):
            if before is not None and kind == raw.FPDF_SEGMENT_LINETO:
                (x0, x1), (y0, y1) = sorted((before[0], point[0])), sorted((before[1], point[1]))
                if min(x1 - x0, y1 - y0) <= _THIN:
                    self._add_box(x0, y0, x1, y1)
            before = point


def _count_columns(xs: list[float], start: float, end: float) -> int:
    """Columns under a line that is crossed at these places; the outer ones may lack their side."""
    if not xs:
        return 0
    open_sides = (min(xs) - start > _SHORTEST) + (end - max(xs) > _SHORTEST)
    return len(xs) - 1 + open_sides


def _points(address: int, segments: int) -> Iterator[tuple[int, tuple[float, float]]]:
    """A path's points on the page, each with how the path gets there."""
    from pypdfium2 import raw

    path = cast(address, raw.FPDF_PAGEOBJECT)
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(path, byref(matrix))
    x, y = c_float(), c_float()
    for index in range(segments):
        segment = raw.FPDFPath_GetPathSegment(path, index)
        raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
        yield (
            raw.FPDFPathSegment_GetType(segment),
            (
                matrix.a * x.value + matrix.c * y.value + matrix.e,
                matrix.b * x.value + matrix.d * y.value + matrix.f,
            ),
        )
