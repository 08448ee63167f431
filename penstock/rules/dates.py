"""Dates and spans of time in a text, and the day on which a text was written."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from penstock.rules.answer import text_fact
from penstock.rules.layout import ParsedText, Section
from penstock.rules.vocabulary import alternation, read_table

_MONTHS = {name: int(n) for n, names in read_table("months").items() for name in names}
MONTH_WORD = alternation(_MONTHS)
_YEAR = r"(?:19[5-9]\d|20\d\d)"
_POINT = (
    rf"(?:{MONTH_WORD}\.?[\s,'’-]*(?:de\s+)?(?:{_YEAR}|(?<=['’])\d\d)"
    rf"|\d{{1,2}}[/.](?:\d{{1,2}}[/.])?{_YEAR}|{_YEAR}[-/]\d\d(?!\d)|{_YEAR})"
)
_NOW = (
    r"(?:till date|till now|present|current(?:ly)?|now|today|ongoing|to date|date|heute"
    r"|aujourd['’]hui|ce jour|(?:la )?actualidad|actuel(?:lement)?|actual|atual|heden|oggi|attuale)"
)
_SPAN = re.compile(
    rf"(?<![\w/])(?P<start>{_POINT})\s*(?:-+|–|—|to|until|till?(?! date)|through|bis|à|a|al|tot)\s*"
    rf"(?P<end>{_POINT}|{_NOW})(?!\w)"
    rf"|(?<!\w)(?:since|seit|depuis|desde|sinds)\s+(?P<since>{_POINT})(?!\w)",
    re.IGNORECASE,
)
_ANY_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_LASTING = re.compile(
    r"\s*[(·]\s*(\d{1,2}) (?:years?|yrs?|jahre?|ans?|años?|anos?|jaar)\b(?: (\d{1,2}))?", re.I
)
_FACTS = ("modified", "created", "date")


class Span(NamedTuple):
    """Months from `start` up to but without `end`, counted from year 0."""

    start: int
    end: int
    text: str


def month_number(word: str) -> int:
    """1 to 12."""
    return _MONTHS[word.lower()]


def find_spans(text: str, today: date) -> Iterator[Span]:
    """The plausible spans in a piece of text; "Present" ends at `today`."""
    now = today.year * 12 + today.month - 1
    for match in _SPAN.finditer(text):
        year, month = _read_point(match["start"] or match["since"])
        start, end = year * 12 + (month or 0), now
        last_year, last_month = _read_point(match["end"] or "now")
        if last_year:
            # A month at the end is worked; a bare year counts to its start, but never to nothing.
            bare = 12 if last_year == year else 0
            end = last_year * 12 + (bare if last_month is None else last_month + 1)
            end = min(end, now + 12)
        elif lasting := _LASTING.match(text, match.end()):
            end = start + 12 * int(lasting[1]) + int(lasting[2] or 0)
        if start < end and start <= now:
            yield Span(start, end, match[0])


def months_covered(spans: Iterable[Span]) -> int:
    """Months inside at least one span: what overlaps counts once."""
    total, reached = 0, 0
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


def written_on(parsed: ParsedText, metadata: Mapping[str, Any]) -> date:
    """The day that "Present" means: the file's date, or the newest year in the text if that is
    later, at most today.

    A text with no date but the start of what goes on was written today, as far as it says.
    """
    today = datetime.now(UTC).date()
    if not parsed.resume:
        return today
    stated = (text_fact(metadata, name) or "" for name in _FACTS)
    fact = next((day for day in map(_read_day, stated) if day), None)
    # A certificate's date may be the day it expires.
    lines = [line.text for _, line in parsed.dated if line.part is not Section.CERTIFICATIONS]
    years = [int(year) for text in lines for year in _ANY_YEAR.findall(text)]
    known = [year for year in years if year <= today.year]
    if fact and fact.year >= max(known, default=0):
        return min(fact, today)
    return min(date(max(known), 12, 1), today) if len(known) > 1 else today


def _read_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def _read_point(point: str) -> tuple[int, int | None]:
    """Year and month from 0; year 0 stands for now."""
    digits = [int(number) for number in re.findall(r"\d+", point)]
    if not digits:
        return 0, None
    word = re.match(r"[^\W\d_]+", point)
    year = next((number for number in digits if number > 1900), 2000 + digits[-1])
    if word:
        return year, month_number(word[0]) - 1
    # 03/2015, 12/03/2015 and 2015-03: the month stands beside the year.
    beside = (
        digits[1] if digits[0] == year and len(digits) > 1 else digits[-2] if len(digits) > 1 else 0
    )
    return year, beside - 1 if 1 <= beside <= 12 else None
