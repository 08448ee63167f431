"""Years of experience: as the text says, else as its dates add up."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from penstock.llm.rules.dates import Span, find_spans, months_covered
from penstock.llm.rules.layout import Line, Part, Reading

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


@dataclass(frozen=True, slots=True)
class Years:
    """Years of work and how well they are supported, 0 to 1."""

    value: int | float | str | None
    support: float


@dataclass(frozen=True, slots=True)
class DatedLine:
    """A line of somebody's working life that has dates."""

    index: int
    spans: tuple[Span, ...]


def dated_work(reading: Reading, today: date) -> list[DatedLine]:
    """The dated lines about work: those under such a heading, else all but studies."""
    wanted = [(i, ln) for i, ln in enumerate(reading.lines) if ln.part is Part.EXPERIENCE]
    dated = list(_with_spans(wanted, today))
    if dated:
        return dated
    away = {Part.EDUCATION, Part.CERTIFICATIONS, Part.OTHER}
    rest = [(i, ln) for i, ln in enumerate(reading.lines) if ln.part not in away]
    return list(_with_spans([(i, ln) for i, ln in rest if not _near_study(reading, i)], today))


def count_years(reading: Reading, dated: Sequence[DatedLine]) -> Years:
    """The stated years unless the dates clearly show more."""
    stated = [years for line in reading.lines for years in _stated_years(line)]
    worked = round(months_covered(s for line in dated for s in line.spans) / 12)
    under_heading = Part.EXPERIENCE in reading.parts
    if not stated:
        return Years(worked, 0.9 if under_heading else 0.55) if dated else Years(None, 0.0)
    high, value = max(stated, key=lambda years: years[0])
    if worked > high + _TRUSTED_GAP_YEARS:
        return Years(worked, 0.6)
    agrees = not dated or high <= worked + 2 * _TRUSTED_GAP_YEARS
    return Years(value, 1.0 if agrees else 0.7)


def _with_spans(lines: Iterable[tuple[int, Line]], today: date) -> Iterator[DatedLine]:
    for index, line in lines:
        if spans := find_spans(line.text, today):
            yield DatedLine(index, tuple(spans))


def _near_study(reading: Reading, index: int) -> bool:
    near = reading.lines[max(0, index - 1) : index + 2]
    return any(_STUDY.search(line.text) for line in near)


def _stated_years(line: Line) -> Iterator[tuple[float, int | float | str]]:
    if line.part in (Part.EDUCATION, Part.OTHER, Part.COMPANY):
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
