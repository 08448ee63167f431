"""Lines of text from the characters pdfplumber finds on a page."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

Char = dict[str, Any]

# A gap of a sixth of the letters' size parts two words; pdfplumber's fixed 3 points would glue
# small print together.
_WORD_GAP = 0.16

# U+FFFE is how pdfium marks a hyphen at a line's end.
HYPHEN_MARK = "\ufffe"
_BROKEN_WORD = re.compile(rf"(?<=[^\W\d_])(?:[-\u00ad]\n|{HYPHEN_MARK})(?=([^\W_]))")


@dataclass(frozen=True, slots=True)
class Line:
    left: float
    top: float
    right: float
    bottom: float
    text: str

    @classmethod
    def of(cls, word: Char) -> "Line":
        return cls(word["x0"], word["top"], word["x1"], word["bottom"], word["text"])

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    def is_level_with(self, other: "Line") -> bool:
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return shared > self._lower_height(other) / 2

    def goes_on_with(self, other: "Line") -> bool:
        """The other stands beside this line's end, not below it and not before it."""
        overlap = self.right - other.left
        return self.is_level_with(other) and overlap <= self._lower_height(other) / 2

    def joined(self, other: "Line") -> "Line":
        return Line(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
            f"{self.text} {other.text}",
        )

    def _lower_height(self, other: "Line") -> float:
        return min(self.bottom - self.top, other.bottom - other.top)


def find_lines(chars: Sequence[Char]) -> list[Line]:
    """Lines in the order the characters were written in."""
    lines: list[Line] = []
    for word in map(Line.of, _words(chars)):
        if lines and lines[-1].goes_on_with(word):
            lines[-1] = lines[-1].joined(word)
        else:
            lines.append(word)
    return lines


def sort_lines(lines: Sequence[Line]) -> list[Line]:
    """From top to bottom, what stands side by side made one line from left to right."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and rows[-1][0].is_level_with(line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [reduce(Line.joined, sorted(row, key=lambda line: line.left)) for row in rows]


def join_lines(lines: Sequence[str]) -> str:
    """The lines as one text, words broken at a line's end made whole."""
    return join_words("\n".join(lines))


def join_words(text: str) -> str:
    """The text with words broken at a line's end made whole."""
    return _BROKEN_WORD.sub(_join, text)


def _join(broken: re.Match[str]) -> str:
    """`Smith-Jones` and `COVID-19` had their hyphens before they were broken there."""
    own = broken[1].isupper() or broken[1].isdigit()
    return "-" if own and not broken[0].startswith("\u00ad") else ""


def _words(chars: Sequence[Char]) -> Iterator[Char]:
    from pdfplumber.utils.text import extract_words

    for upright, group in groupby(chars, key=itemgetter("upright")):
        yield from extract_words(
            list(group),
            x_tolerance_ratio=_WORD_GAP,
            # pdfplumber follows the writing only along level lines. Text on its side nearly
            # always reads upwards: a table's narrow headings, a chart's axis.
            use_text_flow=upright,
            line_dir_rotated="ltr",
            char_dir_rotated="btt",
        )
