"""Ruled tables of a page, as lines with ` | ` between the cells."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.text.pdf.lines import Char, Line, find_lines, join_lines, sort_lines

if TYPE_CHECKING:
    from pdfplumber.page import Page

Box = tuple[float, float, float, float]

# pdfplumber takes lines within three points as one; a side is missing when a column could be there.
_NEAR = 3.0
_FAR = 8.0

_NUMBER = re.compile(r"[^\w]*\d[\d\W]*")


class Table:
    """One grid of cells and the characters that stand in them."""

    def __init__(self, found: Any) -> None:
        self.box: Box = found.bbox
        self._rows: list[list[Box | None]] = [list(row.cells) for row in found.rows]
        self._chars: dict[Box, list[Char]] = {box: [] for box in found.cells}
        self._xs = sorted({x for x0, _, x1, _ in self._chars for x in (x0, x1)})
        self._ys = sorted({y for _, y0, _, y1 in self._chars for y in (y0, y1)})
        self._cells = {place: box for box in self._chars for place in self._places(box)}

    def take(self, char: Char) -> bool:
        """Keep the character if its middle is inside a cell."""
        box = self._cells.get(
            (
                bisect_right(self._xs, (char["x0"] + char["x1"]) / 2),
                bisect_right(self._ys, (char["top"] + char["bottom"]) / 2),
            )
        )
        if box is None:
            return False
        self._chars[box].append(char)
        return True

    @cached_property
    def text(self) -> str:
        return "\n".join(line for row in self._filled_rows for line in row.lines())

    @property
    def is_worth_it(self) -> bool:
        """Frames, charts and forms are ruled too; a table has words side by side, row by row."""
        filled = [row.filled for row in self._filled_rows if row.filled]
        beside = sum(count > 1 for count in filled)
        return beside > 1 and beside * 3 >= len(filled)

    @cached_property
    def _filled_rows(self) -> list["Row"]:
        return [
            Row([None if box is None else self._lines(box) for box in row]) for row in self._rows
        ]

    def _lines(self, box: Box) -> list[Line]:
        return sort_lines(find_lines(self._chars[box]))

    def _places(self, box: Box) -> Iterator[tuple[int, int]]:
        """Where `bisect_right` puts what is inside the box, which may span rows and columns."""
        x0, y0, x1, y1 = box
        columns = range(bisect_right(self._xs, x0), bisect_right(self._xs, x1))
        rows = range(bisect_right(self._ys, y0), bisect_right(self._ys, y1))
        return product(columns, rows)


Owned = tuple[Char, Table | None]


@dataclass(frozen=True, slots=True)
class Row:
    """The lines of each cell; None where a cell of another row or column reaches in."""

    cells: list[list[Line] | None]

    @property
    def filled(self) -> int:
        return sum(bool(cell) for cell in self.cells)

    def lines(self) -> list[str]:
        """One line, or as many as the row has numbers one below the other without a rule."""
        present = [cell for cell in self.cells if cell is not None]
        if not any(present):
            return []
        if len(present) == 1:
            return join_lines([line.text for line in present[0]]).split("\n")
        if tops := self._hidden_rows():
            return [_joined([_between(cell, *span) for cell in self.cells]) for span in tops]
        return [_joined(self.cells)]

    def _hidden_rows(self) -> list[tuple[float, float]]:
        """Where the rows begin and end if rules were left out between rows of numbers."""
        filled = [cell for cell in self.cells if cell]
        numeric = [cell for cell in filled if len(cell) > 1 and _is_numeric(cell)]
        longest = max(numeric, key=len, default=[])
        if len(longest) < 3 or len(numeric) < 2 or len(numeric) * 2 < len(filled):
            return []
        starts = [line.middle - (line.bottom - line.top) for line in longest[1:]]
        return list(zip([-inf, *starts], [*starts, inf], strict=True))


def find_tables(page: "Page") -> list[Owned]:
    """The page's characters as written, each with the table it stands in, if any."""
    chars = page.chars
    owners: list[Table | None] = [None] * len(chars)
    # Smallest first: a cell of a table may hold another table.
    for table in sorted(map(Table, _find_closed(page)), key=_area):
        inside = [n for n, char in enumerate(chars) if owners[n] is None and table.take(char)]
        if table.is_worth_it:
            for n in inside:
                owners[n] = table
    return list(zip(chars, owners, strict=True))


def _find_closed(page: "Page") -> list[Any]:
    """What pdfplumber finds, also where a table is ruled inside only and its outer sides lack."""
    found = page.find_tables()
    sides = [side for table in found for side in _missing_sides(table.bbox, page.edges)]
    if not sides:
        return found
    return page.find_tables(
        {
            "explicit_vertical_lines": [side for side in sides if side["x0"] == side["x1"]],
            "explicit_horizontal_lines": [side for side in sides if side["top"] == side["bottom"]],
        }
    )


def _missing_sides(box: Box, edges: Sequence[Char]) -> list[Char]:
    """The sides of the area that the rulings reach, where they run out of the table's box."""
    x0, top, x1, bottom = box
    across = [
        edge
        for edge in edges
        if edge["x0"] < x1 + _NEAR
        and edge["x1"] > x0 - _NEAR
        and edge["top"] < bottom + _NEAR
        and edge["bottom"] > top - _NEAR
    ]
    left, right = min(edge["x0"] for edge in across), max(edge["x1"] for edge in across)
    upper, lower = min(edge["top"] for edge in across), max(edge["bottom"] for edge in across)
    sides = (
        (x0 - left, (left, upper, left, lower)),
        (right - x1, (right, upper, right, lower)),
        (top - upper, (left, upper, right, upper)),
        (lower - bottom, (left, lower, right, lower)),
    )
    return [_line(*side) for gap, side in sides if gap > _FAR]


def _line(x0: float, top: float, x1: float, bottom: float) -> Char:
    size = {"width": x1 - x0, "height": bottom - top}
    return {"object_type": "line", "x0": x0, "top": top, "x1": x1, "bottom": bottom, **size}


def _area(table: Table) -> float:
    x0, top, x1, bottom = table.box
    return (x1 - x0) * (bottom - top)


def _is_numeric(cell: Sequence[Line]) -> bool:
    return all(_NUMBER.fullmatch(line.text) for line in cell)


def _between(cell: Sequence[Line] | None, top: float, bottom: float) -> list[Line]:
    return [line for line in cell or () if top <= line.middle < bottom]


def _joined(cells: Sequence[Sequence[Line] | None]) -> str:
    texts = (join_lines([line.text for line in cell or ()]) for cell in cells)
    return " | ".join(" ".join(text.split()) for text in texts)
