"""Who wrote a document, and when."""

import re
from collections.abc import Iterator
from datetime import date

from penstock.llm.extractor import Question
from penstock.llm.rules.dates import MONTH_WORD, MONTHS
from penstock.llm.rules.employer import Found
from penstock.llm.rules.facts import text_fact
from penstock.llm.rules.layout import Reading

_BYLINE_LINES = 12
# A date further along in a line is one that the text tells about, not its own.
_BYLINE_CHARS = 120
_DATE = re.compile(
    r"(?<!\d)(?P<iso>(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)(?!\d)"
    rf"|\b(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\.?\s+(?:of\s+)?(?P<month>{MONTH_WORD})\.?,?\s+(?P<year>(?:19|20)\d\d)"
    rf"|\b(?P<month2>{MONTH_WORD})\.?\s+(?P<day2>[0-3]?\d)(?:st|nd|rd|th)?,?\s+(?P<year2>(?:19|20)\d\d)"
    rf"|\b(?P<month3>{MONTH_WORD})\.?,?\s+(?P<year3>(?:19|20)\d\d)",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<![\d.,/-])(?:19|20)\d\d(?![\d.,]\d|\d|-\d)")
_CAPITALISED = r"[A-ZÀ-Þ][\w’'-]+"
_PERSON = (
    rf"(?:Dr\.?\s+|Prof\.?\s+)?{_CAPITALISED}"
    rf"(?:\s+(?:[A-ZÀ-Þ]\.|{_CAPITALISED}|van|von|de|der|la)){{1,3}}"
)
_PEOPLE = re.compile(rf"{_PERSON}(?:\s*(?:,|and|&|;|\s-\s)+\s*{_PERSON})*[,\d*†\s]*")
_BY = re.compile(rf"\b(?:[Bb]y|BY|[Ww]ritten by|[Aa]uthors?:?)\s+(?P<names>{_PEOPLE.pattern})")
_NAME_BREAK = re.compile(r"\s*(?:,|;|&|\band\b)\s*")
_DATE_LABELS = ("date", "published", "published on", "publication date", "last updated", "updated")
_NO_PERSON = re.compile(
    r"\b(?:University|Institute|Department|Inc|Report|Abstract|Introduction|Journal|Guide|Review|"
    r"Company|School|Center|Centre|Annual|Policy|Summary|Minutes|Meeting|Manual|Notes|The|Of|For|"
    r"In|How|Why|What|And|Team|Office|Committee|Council|January|February|March|April|June|July|"
    r"August|September|October|November|December|Version|Press|Release|New|Research|Study)\b"
)


def find_authors(question: Question, reading: Reading, labels: dict[str, str]) -> list[str]:
    """Names from the source, a label, a "by" or a line of names near the top."""
    stated = text_fact(question.metadata, "author") or text_fact(question.metadata, "authors")
    for name in ("author", "authors", "written by", "by"):
        stated = stated or labels.get(name)
    if stated:
        return _names(stated)
    head = reading.lines[:_BYLINE_LINES]
    for line in head:
        if match := _BY.search(line.text):
            return _names(match["names"])
    for line in head[1:5]:
        if _PEOPLE.fullmatch(line.text) and not _NO_PERSON.search(line.text):
            return _names(line.text)
    return []


def find_date(question: Question, reading: Reading, labels: dict[str, str], today: date) -> Found:
    """The date of publication as YYYY, YYYY-MM or YYYY-MM-DD."""
    stated = text_fact(question.metadata, "date")
    for name in _DATE_LABELS:
        stated = stated or labels.get(name)
    if stated and (exact := _read_date(stated)):
        return Found(exact, 1.0)
    head = "\n".join(line.text[:_BYLINE_CHARS] for line in reading.lines[:_BYLINE_LINES])
    if exact := _read_date(head):
        return Found(exact, 0.8)
    years = [year for year in _YEAR.findall(head) if int(year) <= today.year]
    return Found(years[0], 0.5) if years else Found(None, 0.2)


def _names(text: str) -> list[str]:
    pieces = (piece.strip(" .*†0123456789") for piece in _NAME_BREAK.split(text))
    return [" ".join(piece.split()) for piece in pieces if len(piece) > 2]


def _read_date(text: str) -> str | None:
    return next(_dates(text), None)


def _dates(text: str) -> Iterator[str]:
    for match in _DATE.finditer(text):
        if match["iso"]:
            yield match["iso"]
            continue
        month = match["month"] or match["month2"] or match["month3"]
        year = match["year"] or match["year2"] or match["year3"]
        day = match["day"] or match["day2"]
        number = MONTHS.index(month[:3].lower()) + 1
        in_month = day is not None and 1 <= int(day) <= 31
        yield f"{year}-{number:02}" + (f"-{int(day):02}" if in_month else "")
