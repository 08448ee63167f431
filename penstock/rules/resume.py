"""The résumé profile by rules: titles, skills, years of experience."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from penstock.llm.prompts import PreparedRequest
from penstock.rules.answer import FoundValue, RulesAnswer, make_answer
from penstock.rules.dates import Span, find_spans, months_covered
from penstock.rules.layout import ParsedText, Section, TextLine
from penstock.rules.skills import (
    find_certifications,
    find_industries,
    find_skills,
    find_titles,
    is_title,
    names_a_role,
    split_titles,
    tidy_title,
)
from penstock.rules.vocabulary import alternation, read_table

_WORDS = {word: int(n) for n, words in read_table("numbers").items() for word in words}
_NUMBER = rf"\d{{1,2}}(?:\.\d)?|{alternation(_WORDS)}"
_UNIT = re.compile(
    r"(?:years?|yrs?|ans|años|anos|anni|jahren?|jaar)\b['’.]?\s*"
    r"(?:(?:and |& )?\d{1,2} months?\b\s*)?"
)
_AMOUNT = re.compile(
    rf"(?<![\w$€£.,/-])(?P<low>{_NUMBER})\s*\+?\s*(?:(?:-|–|to)\s*(?P<high>{_NUMBER}))?"
    r"\s*(?:\+|plus)?\s*(?:\([^)]{1,8}\)\s*)?\Z"
)
_LABELLED = re.compile(
    r"experience\s*(?:\((?:in )?years\))?\s*(?::|of|-|is)\s*(?:over |more than |about )?\Z",
    re.IGNORECASE,
)
_AMOUNT_CHARS = 30
_ABOUT_CHARS = 80
_ABOUT_WORK = re.compile(
    r"(?:of\s+)?(?:[\w/&,’'-]+\s+){0,6}?(?:experience|expertise|background|exp\b|expérience"
    r"|experiencia|experiência|esperienza|(?:\w+)?erfahrung|(?:werk)?ervaring)\b"
    r"|(?:of\s+)?(?:in|as|working|building|leading|managing|designing|developing|delivering"
    r"|across|within|on the job|practice|\w+ing)\b",
    re.IGNORECASE,
)
_STUDY = re.compile(
    r"\b(?:university|college|school|institute|bachelor|master of|b\.?sc|m\.?sc|ph\.?d|mba|diploma"
    r"|degree|gpa|b\.?a\.|b\.?s\.|m\.?s\.|b\.?tech|universität|academy)(?!\w)",
    re.IGNORECASE,
)
_OVERALL = re.compile(r"\b(?:total|over ?all|altogether|in all)\b", re.IGNORECASE)
_ABOUT_ONE_SKILL = re.compile(
    r"\A(?!.*\b(?:experience|profile|summary|total)\b)[^:]{2,40}:\s*\Z", re.I
)


DatedLines = list[tuple[int, list[Span]]]
"""The places of lines about work, with the dates in them."""


def dated_work(parsed: ParsedText, today: date) -> DatedLines:
    """The dated lines about work: those under such a heading, else all but studies."""
    lines = parsed.dated
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
    """The total that the text states, else the years that its dates cover."""
    worked = round(months_covered(span for _, spans in dated for span in spans) / 12)
    stated = max(_stated_years(parsed), key=lambda years: years[:3], default=None)
    if stated and (any(stated[:2]) or not dated):
        near = not dated or abs(stated[2] - worked) <= 3
        return FoundValue(stated[3], 1.0 if near else 0.7)
    support = 0.9 if Section.EXPERIENCE in parsed.parts else 0.55
    return FoundValue(worked, support) if dated else FoundValue(None, 0.0)


def _near_study(parsed: ParsedText, index: int) -> bool:
    near = parsed.lines[max(0, index - 1) : index + 2]
    return any(_STUDY.search(line.text) for line in near)


def _stated_years(parsed: ParsedText) -> Iterator[tuple[bool, bool, float, int | float | str]]:
    """Stated years, and what makes them the total: a word, and no job or skill around them."""
    text = parsed.lowered
    for unit in _UNIT.finditer(text):
        begin = unit.start()
        inside = text[begin - 1 : begin].isalpha()
        found = None if inside else _AMOUNT.search(text, max(0, begin - _AMOUNT_CHARS), begin)
        if found is None:
            continue
        line = parsed.lines[max(0, bisect_right(parsed.starts, found.start()) - 1)]
        before = text[line.start : found.start()]
        if line.part is Section.EDUCATION or _ABOUT_ONE_SKILL.match(before):
            continue
        about = _ABOUT_WORK.match(text, unit.end(), unit.end() + _ABOUT_CHARS)
        if about or _LABELLED.search(before):
            overall = _OVERALL.search(before[-40:]) is not None
            years = _read_years(found["low"], found["high"])
            yield overall, line.part not in (Section.EXPERIENCE, Section.SKILLS), *years


def _read_years(low: str, high: str | None) -> tuple[float, int | float | str]:
    first = _number(low)
    if high is None:
        return first, int(first) if first.is_integer() else first
    return _number(high), f"{first:g}-{_number(high):g}"


def _number(word: str) -> float:
    return float(_WORDS.get(word.lower()) or word)


_HEADLINE_LINES = 6
_MAX_HEADER_CHARS = 100
_DASHED_TITLE = re.compile(r"[^,|:]{4,40} - [^,|:]{2,40}")
_RESUME_PARTS = frozenset(
    {Section.SUMMARY, Section.SKILLS, Section.EXPERIENCE, Section.EDUCATION, Section.CERTIFICATIONS}
)
_SELF_DESCRIPTION = re.compile(
    r"\b(?:(?:am|is|was|as|been|made|currently|now|promoted to|position of)\s+)+(?:an?\s+|the\s+)?"
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
    described = [] if Section.EXPERIENCE in parsed.parts else list(_described_titles(parsed.text))
    if found := _dated_titles(parsed, dated):
        return found + described, 0.6 + 0.4 * min(1.0, len(found) / len(dated))
    undated = [line for line in parsed.within(Section.EXPERIENCE) if not line.bullet]
    if found := _titles_of(undated):
        return found, 0.6
    if found := _titles_of(parsed.within(Section.HEAD)[:_HEADLINE_LINES]):
        return found[:1], 0.5
    return described, 0.35


class _Piece(NamedTuple):
    """A piece of a line near a job's dates: its place seen from the dates, whether it reads as a
    title, and whether a label such as "Role:" stands before it."""

    text: str
    place: tuple[int, int]
    titled: bool
    labelled: bool


def _dated_titles(parsed: ParsedText, dated: DatedLines) -> list[str]:
    """A title for each dated line, from the place where most of them have theirs."""
    entries = [(spans, list(_pieces_near(parsed, place, spans, dated))) for place, spans in dated]
    places = Counter(piece.place for _, pieces in entries for piece in pieces if piece.titled)
    found: list[tuple[bool, tuple[int, int], str]] = []
    for spans, pieces in entries:
        usual = sorted(pieces, key=lambda piece: -places[piece.place])
        likely = [piece for piece in usual if piece.titled] or [
            piece for piece in usual[:1] if places[piece.place] and _reads_as_name(piece.text)
        ]
        if likely:
            latest = max((span.end, span.start) for span in spans)
            found.append((likely[0].labelled, latest, likely[0].text))
    # What a project calls a role counts only where no job has a title.
    plain = [job for job in found if not job[0]] or found
    # The sort is stable: jobs that end together stay in the order of the text.
    return [title for *_, title in sorted(plain, key=lambda job: job[1], reverse=True)]


def _pieces_near(
    parsed: ParsedText, index: int, spans: list[Span], dated: DatedLines
) -> Iterator[_Piece]:
    """The pieces of the dated line itself, then of its neighbours that can belong to it."""
    text = parsed.lines[index].text
    for span in spans:
        text = text.replace(span.text, " | ")
    own = list(_pieces(text, 0))
    if not any(piece.titled for piece in own) and (leading := _leading_title(text)):
        own = [_Piece(leading, (0, 0), True, False)]
    yield from own
    if any(piece.titled for piece in own):
        return
    taken = {place for place, _ in dated}
    for step, most in ((-1, 3), (1, 2)):
        for distance in range(1, most + 1):
            place = index + step * distance
            if not 0 <= place < len(parsed.lines) or place in taken:
                break
            near = parsed.lines[place]
            if near.part is not parsed.lines[index].part or near.bullet or near.heading:
                break
            if len(near.text) > _MAX_HEADER_CHARS:
                break
            yield from _pieces(near.text, step * distance)


def _pieces(text: str, offset: int) -> Iterator[_Piece]:
    label, colon, rest = text.partition(":")
    labelled = bool(colon) and len(label) <= 20 and not is_title(tidy_title(label))
    named = rest if labelled else text
    # A line that names no job may still stand where others have their titles; and above a line for
    # the company, "Team Lead - Windows" is all title.
    whole = offset == -2 and _DASHED_TITLE.fullmatch(named) is not None
    alone = whole or (offset != 0 and not names_a_role(named))
    split = [named] if alone else split_titles(named)
    for number, piece in enumerate(map(tidy_title, split)):
        titled = is_title(piece) or (whole and is_title(tidy_title(piece.partition(" - ")[0])))
        yield _Piece(piece, (offset, number), titled, labelled)


def _leading_title(text: str) -> str | None:
    """The title in "Store Manager Alpha Retail - Pune", which nothing parts from the company."""
    words = re.split(r"\s+[-–|]\s+", text)[0].split()
    if not names_a_role(text) or any(word[0].islower() and len(word) > 3 for word in words):
        return None
    titles = (" ".join(words[:end]) for end in range(min(6, len(words) - 1), 0, -1))
    return next(filter(is_title, titles), None)


def _reads_as_name(text: str) -> bool:
    """Whether words where other jobs have their title can be one that the table lacks."""
    words = text.split()
    return (
        0 < len(words) <= 6
        and text[0].isupper()
        and not re.search(
            r"\d|[.!?]\Z|\b(?:Inc|Ltd|LLC|GmbH|Limited|Pvt|Corp|Company|University|Responsibilities|Project)\b",
            text,
        )
    )


def _titles_of(lines: Iterable[TextLine]) -> list[str]:
    return [title for line in lines for title in find_titles(line.text)]


def _described_titles(text: str) -> Iterator[str]:
    for match in _SELF_DESCRIPTION.finditer(text):
        title = match[1].strip()
        capitalised = title[:1].upper() + title[1:]
        if is_title(capitalised):
            yield tidy_title(capitalised)
