"""Lines and ruled tables of a page, from the characters that pdfplumber finds."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby, product
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdfplumber.page import Page


Char = dict[str, Any]

# A gap of a sixth of the letters' size separates two words; pdfplumber's fixed 3 points would join
# words in small print.
_WORD_GAP = 0.16

# U+FFFE is how pdfium marks a hyphen at a line's end.
HYPHEN_MARK = "\ufffe"
_BROKEN_WORD = re.compile(rf"(?<=[^\W\d_])(?:[-\u00ad]\n|{HYPHEN_MARK})(?=([^\W_]))")


@dataclass(frozen=True, slots=True)
class PdfLine:
    left: float
    top: float
    right: float
    bottom: float
    text: str

    @classmethod
    def of(cls, word: Char) -> "PdfLine":
        return cls(word["x0"], word["top"], word["x1"], word["bottom"], word["text"])

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    def is_level_with(self, other: "PdfLine") -> bool:
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return shared > self._lower_height(other) / 2

    def goes_on_with(self, other: "PdfLine") -> bool:
        """Whether the other begins at this line's end, not below it and not before it."""
        overlap = self.right - other.left
        return self.is_level_with(other) and overlap <= self._lower_height(other) / 2

    def joined(self, other: "PdfLine") -> "PdfLine":
        return PdfLine(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
            f"{self.text} {other.text}",
        )

    def _lower_height(self, other: "PdfLine") -> float:
        return min(self.bottom - self.top, other.bottom - other.top)


def find_lines(chars: Sequence[Char]) -> list[PdfLine]:
    """Lines in the order the characters were written in."""
    lines: list[PdfLine] = []
    for word in map(PdfLine.of, _words(chars)):
        if lines and lines[-1].goes_on_with(word):
            lines[-1] = lines[-1].joined(word)
        else:
            lines.append(word)
    return lines


def sort_lines(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """From top to bottom; lines at the same height are joined from left to right."""
    rows: list[list[PdfLine]] = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and rows[-1][0].is_level_with(line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [reduce(PdfLine.joined, sorted(row, key=lambda line: line.left)) for row in rows]


def join_lines(lines: Sequence[str]) -> str:
    """The lines as one text, with words that were hyphenated at a line's end joined."""
    return join_words("\n".join(lines))


def join_words(text: str) -> str:
    """The text with words that were hyphenated at a line's end joined."""
    return _BROKEN_WORD.sub(_join, text)


def _join(broken: re.Match[str]) -> str:
    """The hyphen of `Smith-Jones` and `COVID-19` is part of the word and stays."""
    keeps = broken[1].isupper() or broken[1].isdigit()
    return "-" if keeps and not broken[0].startswith("\u00ad") else ""


def _words(chars: Sequence[Char]) -> Iterator[Char]:
    from pdfplumber.utils.text import extract_words

    for upright, group in groupby(chars, key=itemgetter("upright")):
        yield from extract_words(
            list(group),
            x_tolerance_ratio=_WORD_GAP,
            # pdfplumber keeps the order of writing only along level lines. Rotated text nearly
            # always reads upwards: a table's narrow headings, a chart's axis.
            use_text_flow=upright,
            line_dir_rotated="ltr",
            char_dir_rotated="btt",
        )


Box = tuple[float, float, float, float]
Row = list[list[PdfLine] | None]
"""The lines of each cell; None where a cell of another row or column spans."""

# pdfplumber merges lines within three points; a side is missing where a column would fit.
_NEAR = 3.0
_FAR = 8.0

_NUMBER = re.compile(r"[^\w]*\d[\d\W]*")


class Table:
    """One grid of cells and the characters in them."""

    def __init__(self, found: Any) -> None:
        self.box: Box = found.bbox
        self._rows: list[list[Box | None]] = [list(row.cells) for row in found.rows]
        self._chars: dict[Box, list[Char]] = {box: [] for box in found.cells}
        self._xs = sorted({x for x0, _, x1, _ in self._chars for x in (x0, x1)})
        self._ys = sorted({y for _, y0, _, y1 in self._chars for y in (y0, y1)})
        self._cells = {place: box for box in self._chars for place in self._places(box)}

    def take(self, char: Char) -> bool:
        """Add the character if its middle is inside a cell; returns whether it was."""
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

    @property
    def area(self) -> float:
        x0, top, x1, bottom = self.box
        return (x1 - x0) * (bottom - top)

    @cached_property
    def text(self) -> str:
        return "\n".join(line for row in self._filled_rows for line in _row_lines(row))

    @property
    def has_rows(self) -> bool:
        """Whether rows have words side by side; frames, charts and forms are ruled, too."""
        counts = [sum(map(bool, row)) for row in self._filled_rows]
        beside = sum(count > 1 for count in counts)
        return beside > 1 and beside * 3 >= sum(map(bool, counts))

    @cached_property
    def _filled_rows(self) -> list[Row]:
        lines = {box: sort_lines(find_lines(chars)) for box, chars in self._chars.items()}
        return [[None if box is None else lines[box] for box in row] for row in self._rows]

    def _places(self, box: Box) -> Iterator[tuple[int, int]]:
        """The results of `bisect_right` for points in the box, which may span rows and columns."""
        x0, y0, x1, y1 = box
        columns = range(bisect_right(self._xs, x0), bisect_right(self._xs, x1))
        rows = range(bisect_right(self._ys, y0), bisect_right(self._ys, y1))
        return product(columns, rows)


Owned = tuple[Char, Table | None]


def _row_lines(row: Row) -> list[str]:
    """One line, or one for each of several numbers that are one below the other."""
    present = [cell for cell in row if cell is not None]
    if not any(present):
        return []
    if len(present) == 1:
        return join_lines([line.text for line in present[0]]).split("\n")
    return [
        _joined([[one for one in cell or () if top <= one.middle < end] for cell in row])
        for top, end in _hidden_rows(row)
    ] or [_joined(row)]


def _hidden_rows(row: Row) -> list[tuple[float, float]]:
    """Top and bottom of rows of numbers that have no line drawn between them."""
    filled = [cell for cell in row if cell]
    numeric = [
        cell
        for cell in filled
        if len(cell) > 1 and all(_NUMBER.fullmatch(line.text) for line in cell)
    ]
    longest = max(numeric, key=len, default=[])
    if len(longest) < 3 or len(numeric) < 2 or len(numeric) * 2 < len(filled):
        return []
    starts = [line.middle - (line.bottom - line.top) for line in longest[1:]]
    return list(zip([-inf, *starts], [*starts, inf], strict=True))


def find_tables(page: "Page") -> list[Owned]:
    """The page's characters in the order of writing, each with its table, if any."""
    chars = page.chars
    owners: list[Table | None] = [None] * len(chars)
    # Smallest first: a cell of a table may hold another table.
    for table in sorted(map(Table, _find_closed(page)), key=lambda table: table.area):
        inside = [n for n, char in enumerate(chars) if owners[n] is None and table.take(char)]
        if table.has_rows:
            for n in inside:
                owners[n] = table
    return list(zip(chars, owners, strict=True))


def _find_closed(page: "Page") -> list[Any]:
    """The tables that pdfplumber finds, also those whose outer sides are not drawn."""
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
    """The sides of the area that the lines reach, where they go beyond the table's box."""
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


def _joined(cells: Sequence[Sequence[PdfLine] | None]) -> str:
    texts = (join_lines([line.text for line in cell or ()]) for cell in cells)
    return " | ".join(" ".join(text.split()) for text in texts)
