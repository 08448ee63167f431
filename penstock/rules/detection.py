"""Which built-in profile a text belongs to, found from its content: a résumé, a job posting, or any
other document when neither is clear."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

from penstock.rules.skills import names_a_role
from penstock.rules.vocabulary import read_table
from penstock.text.postings.headings import words_for

RESUME, POSTING, DOCUMENT = "resume", "job_posting", "document"
# A résumé or a posting says what it is at its beginning; what follows only takes time.
_READ_CHARS = 6000
_HEAD_CHARS = 700
_TOP_CHARS = 120
_HEADING_CHARS = 48
_HEADING_MARKS = " \t#*_=~:-–—•·[]|.?!"
# So much has to speak for a profile, and so much more than for the other one.
_ENOUGH = 2.6
_LEAD = 0.8
_MOST_PHRASES = 6
_SHOWN = 4
_SECTIONS = {
    **dict.fromkeys(("experience", "education", "skills", "certifications"), RESUME),
    **dict.fromkeys(("requirements", "duties", "offer", "company"), POSTING),
}
# Headings that also open parts of papers, reports and web pages.
_COMMON = frozenset(
    {"about us", "career", "contact", "references", "languages", "projects", "skills", "studies"}
    | {"education", "jobs", "apply", "pay", "the work", "technologies", "stack", "our story"}
    | {"strengths", "resume", "objective", "tasks", "our mission", "our company", "cv", "training"}
    | {"profil", "perfil", "salary", "compensation", "missions", "formation", "studium"}
)
_YEAR = r"(?:19[5-9]|20[0-4])\d"
_SPAN = re.compile(
    rf"{_YEAR}\)?\s*(?:-|–|—|to|till|until|bis|au|à|a|al|até|hasta|tot)\s*\(?"
    rf"(?:(?:[^\W\d_]{{3,10}}\.?,?\s+|\d\d?[./-])?{_YEAR}"
    r"|present|current|now|date|today|heute|aujourd|présent|actual|presente|oggi|atual|heden|nu\b)",
    re.IGNORECASE,
)
_CONTACT = re.compile(
    r"[\w.+-]+@[\w-]+\.\w|(?:\+|\b(?:tel|phone|mobile|cell)\b\W*)\(?\d[\d ()./-]{6,}\d"
)


# A short line without a year, as résumés have above a job, and two bullets.
_HEADED_LIST = re.compile(
    r"^([^-•·–*\n\d][^\n\d]{2,47})\n+(?=(?:[ \t]*[-•·–*][^\n]*\n){2})", re.MULTILINE
)
_LEAST_LISTS, _MOST_LISTS = 2, 3
_FIRST_PERSON = re.compile(r"\bI (?:am|have|was|work|hold|led|look|run|also)\b|\bmy \b")
_SPEAKS_OF_SELF = 3


@dataclass(frozen=True, slots=True)
class DetectedProfile:
    """A profile, and what in the text speaks for it."""

    profile: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Signs:
    """What speaks for one profile, and how much."""

    score: float
    found: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.found[:_SHOWN])
        more = len(self.found) - _SHOWN
        return f"{shown} and {more} more" if more > 0 else shown


def detect_profile(text: str, title: str | None = None) -> DetectedProfile:
    """The profile that the text most likely belongs to; `document` when that is not clear."""
    start = text[:_READ_CHARS]
    lowered = f"{title or ''}\n{start}".lower()
    headings = tuple(_headings(lowered))
    # Both begin with a job; what else they say tells them apart.
    role = {"a job's name at the top": 1.0} if names_a_role(lowered[:_TOP_CHARS]) else {}
    resume = _look(RESUME, headings, lowered, role | _person_signs(start))
    posting = _look(POSTING, headings, lowered, role | _job_signs(lowered))
    other = _look(DOCUMENT, (), lowered, {})
    best, second = (resume, posting) if resume.score >= posting.score else (posting, resume)
    lead = best.score - max(second.score, other.score)
    if best.score >= _ENOUGH and lead >= _LEAD:
        return DetectedProfile(RESUME if best is resume else POSTING, str(best))
    if best.score < _ENOUGH:
        return DetectedProfile(DOCUMENT, "neither a résumé nor a posting")
    return DetectedProfile(
        DOCUMENT, f"unsure: {best}, but also {second if second.found else other}"
    )


def _headings(lowered: str) -> Iterator[str]:
    for line in lowered.split("\n"):
        if len(line) <= _HEADING_CHARS and (heading := line.strip(_HEADING_MARKS)):
            yield heading.replace("’", "'")


def _look(profile: str, headings: tuple[str, ...], lowered: str, signs: dict[str, float]) -> _Signs:
    """Each part with a heading counts once; of phrases, the first few."""
    known = _words().headings
    parts: dict[str, float] = {}
    for heading in headings:
        of, part = known.get(heading, ("", ""))
        if of == profile:
            weight = 1.0 if heading in _COMMON else 2.0
            parts[part] = max(parts.get(part, 0.0), weight)
    phrases = [one for one in _words().phrases[profile] if one in lowered][:_MOST_PHRASES]
    score = sum(parts.values()) + sum(signs.values()) + 0.8 * len(phrases)
    named = [f"a part on {part}" for part in parts]
    quoted = [f"“{one.strip()}”" for one in phrases]
    return _Signs(score, (*named, *signs, *quoted))


def _person_signs(start: str) -> dict[str, float]:
    signs: dict[str, float] = {}
    if spans := min(4, sum(1 for _ in _SPAN.finditer(start))):
        signs["spans of years"] = 0.6 * spans
    if _CONTACT.search(start[:_HEAD_CHARS]):
        signs["contact details at the top"] = 1.0
    if len(_FIRST_PERSON.findall(start)) >= _SPEAKS_OF_SELF:
        signs["the first person"] = 1.0
    return signs


def _job_signs(lowered: str) -> dict[str, float]:
    """Terms of employment, and the lists with headings that such a text has in any language."""
    lists = sum(1 for _ in islice(_HEADED_LIST.finditer(lowered), _MOST_LISTS))
    if lists < _LEAST_LISTS or not words_for("terms").search(lowered):
        return {}
    return {"terms of employment": 0.8, "lists with headings": 0.8 * lists}


@dataclass(frozen=True, slots=True)
class _Words:
    headings: dict[str, tuple[str, str]]
    """The profile and the part of each."""
    phrases: dict[str, tuple[str, ...]]


@cache
def _words() -> _Words:
    headings: dict[str, tuple[str, str]] = {}
    for part, names in read_table("headings").items():
        if part in _SECTIONS:
            headings |= dict.fromkeys(names, (_SECTIONS[part], part))
    phrases: dict[str, tuple[str, ...]] = {}
    for entry, names in read_table("profiles").items():
        kind, _, part = entry.partition(" ")
        profile = {"resume": RESUME, "posting": POSTING}.get(kind, DOCUMENT)
        if part == "phrase":
            phrases[profile] = names
        else:
            headings |= dict.fromkeys(names, (profile, part.removeprefix("heading ")))
    return _Words(headings, phrases)
