"""The résumé profile by rules: titles, skills, years of experience."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

from penstock.llm.prompts import PreparedRequest
from penstock.rules.answer import FoundValue, RulesAnswer, make_answer
from penstock.rules.layout import ParsedText, Section, TextLine
from penstock.rules.skills import (
    find_certifications,
    find_industries,
    find_skills,
    find_titles,
    is_title,
    tidy_title,
)

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


class Span(NamedTuple):
    """Months from `start` up to but without `end`, counted from year 0."""

    start: int
    end: int
    text: str


def find_spans(text: str, today: date) -> Iterator[Span]:
    """The plausible spans in a piece of text; "Present" ends at `today`."""
    if not _ANY_YEAR.search(text):
        return
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
        if start < end and start <= now:
            yield Span(start, end, match[0])


def months_covered(spans: Iterable[Span]) -> int:
    """Months inside at least one span: what overlaps counts once."""
    total, reached = 0, 0
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


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


_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    "|sixteen|seventeen|eighteen|nineteen|twenty"
)
_WORDS = _NUMBER_WORDS.split("|")
_NUMBER = rf"\d{{1,2}}(?:\.\d)?|{_NUMBER_WORDS}"
_STATED = re.compile(
    rf"(?<![\w$€£.,/-])(?P<low>{_NUMBER})\s*\+?\s*(?:(?:-|–|to)\s*(?P<high>{_NUMBER}))?"
    r"\s*(?:\+|plus)?\s*(?:\([^)]{1,8}\)\s*)?(?:years?|yrs?)\b['’.]?\s*"
    r"(?P<rest>[^\n.;]{0,80})",
    re.IGNORECASE,
)
_LABELLED = re.compile(
    rf"experience\s*(?:\((?:in )?years\))?\s*(?::|of|-|is)\s*(?:over |more than |about )?"
    rf"(?P<low>{_NUMBER})\s*\+?\s*(?:(?:-|–|to)\s*(?P<high>{_NUMBER}))?\s*\+?\s*(?:years?|yrs?)",
    re.IGNORECASE,
)
_ABOUT_WORK = re.compile(
    r"(?:of\s+)?(?:[\w/&,’'-]+\s+){0,6}?(?:experience|expertise|background)\b"
    r"|(?:of\s+)?(?:in|as|working|building|leading|managing|designing|developing|delivering"
    r"|running|teaching|nursing|across|within|on the job|practice|practising|practicing)\b",
    re.IGNORECASE,
)
_STUDY = re.compile(
    r"\b(?:university|college|school|institute|bachelor|master of|b\.?sc|m\.?sc|ph\.?d|mba|diploma"
    r"|degree|gpa|b\.?a\.|b\.?s\.|m\.?s\.|b\.?tech|universität|academy)(?!\w)",
    re.IGNORECASE,
)
_TRUSTED_GAP_YEARS = 3


DatedLines = list[tuple[int, list[Span]]]
"""The places of lines about work, with the dates in them."""


def dated_work(parsed: ParsedText, today: date) -> DatedLines:
    """The dated lines about work: those under such a heading, else all but studies."""
    lines = list(enumerate(parsed.lines))
    away = {Section.EDUCATION, Section.CERTIFICATIONS, Section.OTHER}
    return _with_spans(
        ((n, line) for n, line in lines if line.part is Section.EXPERIENCE), today
    ) or _with_spans(
        ((n, line) for n, line in lines if line.part not in away and not _near_study(parsed, n)),
        today,
    )


def _with_spans(lines: Iterable[tuple[int, TextLine]], today: date) -> DatedLines:
    return [(n, spans) for n, line in lines if (spans := list(find_spans(line.text, today)))]


def count_years(parsed: ParsedText, dated: DatedLines) -> FoundValue:
    """The stated years unless the dates clearly show more."""
    stated = [years for line in parsed.lines for years in _stated_years(line)]
    worked = round(months_covered(span for _, spans in dated for span in spans) / 12)
    if not stated and not dated:
        return FoundValue(None, 0.0)
    if not stated:
        return FoundValue(worked, 0.9 if Section.EXPERIENCE in parsed.parts else 0.55)
    high, value = max(stated, key=lambda years: years[0])
    if worked > high + _TRUSTED_GAP_YEARS:
        return FoundValue(worked, 0.6)
    agrees = not dated or high <= worked + 2 * _TRUSTED_GAP_YEARS
    return FoundValue(value, 1.0 if agrees else 0.7)


def _near_study(parsed: ParsedText, index: int) -> bool:
    near = parsed.lines[max(0, index - 1) : index + 2]
    return any(_STUDY.search(line.text) for line in near)


def _stated_years(line: TextLine) -> Iterator[tuple[float, int | float | str]]:
    if line.part in (Section.EDUCATION, Section.OTHER, Section.COMPANY):
        return
    lowered = line.text.lower()
    if "year" not in lowered and "yr" not in lowered:
        return
    for match in _STATED.finditer(line.text):
        if _ABOUT_WORK.match(match["rest"]):
            yield _read_years(match["low"], match["high"])
    for match in _LABELLED.finditer(line.text):
        yield _read_years(match["low"], match["high"])


def _read_years(low: str, high: str | None) -> tuple[float, int | float | str]:
    first = _number(low)
    if high is None:
        return first, int(first) if first.is_integer() else first
    return _number(high), f"{first:g}-{_number(high):g}"


def _number(word: str) -> float:
    lowered = word.lower()
    return float(_WORDS.index(lowered) + 1) if lowered in _WORDS else float(word)


_HEADLINE_LINES = 6
_RESUME_PARTS = frozenset(
    {Section.SUMMARY, Section.SKILLS, Section.EXPERIENCE, Section.EDUCATION, Section.CERTIFICATIONS}
)
_SELF_DESCRIPTION = re.compile(
    r"\b(?:(?:am|was|as|been|serving as|promoted to|position of)\s+)(?:an?\s+|the\s+)?"
    r"((?:[\w/&+#-]+\s+){0,4}?[\w-]+)"
    r"(?=\s+(?:at|for|in|with|who|from|since|on|where|and|by)\b|[.,;\n]|\Z)",
    re.IGNORECASE,
)


def answer_resume(request: PreparedRequest, parsed: ParsedText, today: date) -> RulesAnswer:
    """The résumé fields a text supports."""
    dated = dated_work(parsed, today)
    skills, listed = find_skills(parsed)
    titles, title_support = _recent_titles(parsed, dated)
    years = count_years(parsed, dated)
    enough = min(1.0, len(skills) / 6)
    fields = {
        "primary_skills": skills,
        "recent_job_titles": titles,
        "years_experience_total": years.value,
        "certifications": find_certifications(parsed) or None,
        "industries": find_industries(parsed) or None,
    }
    supports = {
        "skills": (0.35, enough if listed >= 3 else 0.7 * enough),
        "titles": (0.30, title_support),
        "years": (0.20, years.support),
        "structure": (0.15, min(1.0, len(parsed.parts & _RESUME_PARTS) / 3)),
    }
    return make_answer(request, parsed.text, fields, supports)


def _recent_titles(parsed: ParsedText, dated: DatedLines) -> tuple[list[str], float]:
    """Titles, newest first, from the most reliable place that has any."""
    if found := _dated_titles(parsed, dated):
        return found, 0.6 + 0.4 * min(1.0, len(found) / len(dated))
    undated = [line for line in parsed.within(Section.EXPERIENCE) if not line.bullet]
    if found := _titles_of(undated):
        return found, 0.6
    if found := _titles_of(parsed.within(Section.HEAD)[:_HEADLINE_LINES]):
        return found[:1], 0.5
    return list(_described_titles(parsed.text)), 0.35


def _dated_titles(parsed: ParsedText, dated: DatedLines) -> list[str]:
    used: set[int] = set()
    found: list[tuple[tuple[int, int], str]] = []
    for place, spans in dated:
        for index in _places_for_title(parsed.lines, place, used):
            text = parsed.lines[index].text
            for span in spans:
                text = text.replace(span.text, " | ")
            if title := next(find_titles(text), None):
                used.add(index)
                found.append((max((span.end, span.start) for span in spans), title))
                break
    # The sort is stable: jobs that end together stay in the order of the text.
    return [title for _, title in sorted(found, key=lambda job: job[0], reverse=True)]


def _places_for_title(lines: Sequence[TextLine], index: int, used: set[int]) -> Iterator[int]:
    """The dated line itself, then its neighbours that can belong to it."""
    yield index
    for place in (index - 1, index + 1, index - 2, index + 2):
        if 0 <= place < len(lines) and place not in used:
            near = lines[place]
            if near.part is lines[index].part and not near.bullet and not near.heading:
                yield place


def _titles_of(lines: Iterable[TextLine]) -> list[str]:
    return [title for line in lines for title in find_titles(line.text)]


def _described_titles(text: str) -> Iterator[str]:
    for match in _SELF_DESCRIPTION.finditer(text):
        title = match[1].strip()
        capitalised = title[:1].upper() + title[1:]
        if is_title(capitalised):
            yield tidy_title(capitalised)
