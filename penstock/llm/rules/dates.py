"""Spans of months that a text states, and how long they are together."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH_WORD = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_YEAR = r"(?:19[5-9]\d|20\d\d)"
_POINT = rf"(?:{MONTH_WORD}\.?,?\s+{_YEAR}|\d{{1,2}}[/.]{_YEAR}|{_YEAR}-\d\d(?!\d)|{_YEAR})"
_NOW = r"(?:present|till date|current(?:ly)?|now|today|ongoing|to date|date|heute)"
_SPAN = re.compile(
    rf"(?<![\w/])(?P<start>{_POINT})\s*(?:-+|–|—|to|until|till(?! date)|through|bis)\s*"
    rf"(?P<end>{_POINT}|{_NOW})(?!\w)"
    rf"|(?<!\w)(?:since|seit)\s+(?P<since>{_POINT})(?!\w)",
    re.IGNORECASE,
)
_ANY_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Span:
    """Months from `start` up to but without `end`, counted from year 0."""

    start: int
    end: int
    current: bool
    text: str

    @property
    def newness(self) -> tuple[int, int]:
        return (self.end, self.start)


def find_spans(text: str, today: date) -> list[Span]:
    """The plausible spans in a piece of text; "Present" ends at `today`."""
    if not _ANY_YEAR.search(text):
        return []
    return list(_read_spans(text, _month_number(today)))


def months_covered(spans: Iterable[Span]) -> int:
    """Months inside at least one span: what overlaps counts once."""
    total, reached = 0, 0
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


def _read_spans(text: str, now: int) -> Iterator[Span]:
    for match in _SPAN.finditer(text):
        start = _read_point(match["start"] or match["since"])
        end = _read_point(match["end"] or "now")
        span = _span(start, end, now, match[0])
        if span.start < span.end and span.start <= now:
            yield span


def _span(start: tuple[int, int | None], end: tuple[int, int | None], now: int, text: str) -> Span:
    first = start[0] * 12 + (start[1] or 0)
    if not end[0]:
        return Span(first, now, True, text)
    # A month at the end is worked; a bare year counts to its start, but never to nothing.
    last = end[0] * 12 + (end[1] + 1 if end[1] is not None else 0)
    if end[1] is None and end[0] == start[0]:
        last += 12
    return Span(first, min(last, now + 12), False, text)


def _read_point(point: str) -> tuple[int, int | None]:
    """Year and month from 0; year 0 stands for now."""
    year = _ANY_YEAR.search(point)
    if year is None:
        return 0, None
    if (word := point[:3].lower()) in MONTHS:
        return int(year[0]), MONTHS.index(word)
    number = re.search(r"(?<!\d)\d{1,2}(?!\d)", point)
    month = int(number[0]) if number else 0
    return int(year[0]), month - 1 if 1 <= month <= 12 else None


def _month_number(day: date) -> int:
    return day.year * 12 + day.month - 1
