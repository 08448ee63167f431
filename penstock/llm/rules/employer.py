"""Who hires, and where."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.llm.extractor import Question
from penstock.llm.rules.facts import text_fact
from penstock.llm.rules.layout import Part, Reading
from penstock.llm.rules.roles import names_a_role

_LABEL_CHARS = 32
_LABELLED_LINES = 60
_HEAD_LINES = 8
_NAME_CHARS = 80
_NAME = r"(?<!\w)[A-Z][\w&.’'-]{0,30}(?: (?:[A-Z&][\w&.’'-]{0,30}|of|and|the)){0,4}"
_HIRES = re.compile(
    rf"(?=[A-Z])(?P<name>{_NAME})"
    r"(?:,?\s+(?:is|are)\s+(?:currently\s+|now\s+)?"
    r"(?:looking for|hiring|seeking|searching|recruiting|growing|expanding|an?\s|the\s)"
    r"|\s+(?:seeks|helps|builds|makes|develops|provides|offers|invites|runs)\s)"
)
_JOIN = re.compile(
    rf"\b(?:[Jj]oin|[Aa]t)\s+(?P<name>{_NAME}?)(?:,|\s+as\b|\s+we\b|['’]s|\s+and\b|\.)"
)
_SUFFIXED = re.compile(
    rf"(?:{_NAME}\s+)?(?:[A-Z][\w&.’'-]*)\s*,?\s(?:Inc|LLC|Ltd|GmbH|Corp|AG|PLC|plc|SE|Limited|BV"
    r"|Corporation|Group|Company|Co|S\.A|Labs|Partners|Hospital|Bank|Studios?|Technologies|Systems)\b\.?"
)
_NO_COMPANY = re.compile(
    r"(?:the\s+(?:role|team|company|position|ideal|successful|candidate|job|right|person|work)"
    r"|the\Z|we|our|this|you|us|it|they|i|there|he|she|who|what|role|position|job|team|remote|"
    r"candidate|ideal|successful|salary|work|here|apply|about|location|experience|must|please|"
    r"today|least|times|benefits|all|your|a|an|if|as|in|what)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"(?<!\w)(?:[A-Z][\w.’']{1,30}(?:[ -][A-Z][\w.’']{1,30}){0,2}),\s"
    r"(?:[A-Z]{2}\b(?:,\s(?:USA?|Canada))?|UK|USA|U\.S\.|"
    r"Germany|France|Spain|Italy|Netherlands|Ireland|England|Scotland|Canada|Australia|India|Poland|"
    r"Portugal|Switzerland|Austria|Sweden|Norway|Denmark|Finland|Belgium|Singapore|Japan|Brazil|"
    r"Mexico|United Kingdom|United States|Czech Republic|New Zealand|South Africa|Ontario|Texas|"
    r"California|Ohio|Florida|New York|Oregon|Washington|Colorado|Illinois|Minnesota)"
)
_BASED = re.compile(
    r"\b(?:[Bb]ased in|[Ll]ocated in|[Oo]n-?site in|office in|offices? in|headquartered in)\s+"
    r"(?:downtown\s+|central\s+)?(?P<place>[A-Z][\w’']+(?:[ -][A-Z][\w’']+){0,3}(?:,\s[A-Z]\w+)?)"
)
_REMOTE = re.compile(r"\b(?:remote|work from home)\b")
_BARE_NAME = re.compile(_NAME)
_SITE_WORD = re.compile(r"\b(?:careers|jobs|vacancies|apply|home|login|hybrid)\b", re.IGNORECASE)
_PIECES = re.compile(r"\s*[|•·;\t]\s*|\s{2,}|\s+[–—-]\s+|\s+(?:at|@)\s+")


@dataclass(frozen=True, slots=True)
class Found:
    """A value and how well it is supported, 0 to 1."""

    value: str | None
    support: float


def read_labels(reading: Reading) -> dict[str, str]:
    """Facts written as "Label: value", also with the value on the next line."""
    labels: dict[str, str] = {}
    lines = reading.lines[:_LABELLED_LINES]
    for line, following in zip(lines, (*lines[1:], None), strict=False):
        label, colon, value = line.text.partition(":")
        if not colon or len(label) > _LABEL_CHARS:
            continue
        value = value.strip(" *_") or (following.text if following else "")
        if value and len(value) <= 120:
            labels.setdefault(label.strip(" *_#").lower(), value)
    return labels


def find_company(question: Question, reading: Reading, labels: dict[str, str]) -> Found:
    """The employer, from the source's facts, a label, a heading or a sentence."""
    if fact := text_fact(question.metadata, "company"):
        return Found(fact, 1.0)
    for name in ("company", "employer", "organization", "organisation", "agency"):
        if name in labels:
            return Found(labels[name], 0.95)
    for name, support in _company_hints(question, reading):
        tidy = name.strip(" ,.*’'")
        if tidy and not _NO_COMPANY.match(tidy):
            return Found(tidy, support)
    return Found(None, 0.0)


def find_location(question: Question, reading: Reading, labels: dict[str, str]) -> Found:
    """The place of work, from the source's facts, a label, the head or a sentence."""
    if fact := text_fact(question.metadata, "location"):
        return Found(fact, 1.0)
    for name in ("location", "office location", "work location", "office", "where", "standort"):
        if name in labels:
            return Found(labels[name], 0.95)
    head = "\n".join(line.text for line in reading.lines[:_HEAD_LINES])
    for text, support in ((head, 0.85), (reading.text, 0.6)):
        if place := _PLACE.search(text):
            return Found(place[0], support)
        if based := _BASED.search(text):
            return Found(based["place"], support)
        if _REMOTE.search(text.lower()):
            return Found("Remote", support)
    return Found(None, 0.0)


def _company_hints(question: Question, reading: Reading) -> Iterator[tuple[str, float]]:
    for line in reading.lines:
        if line.heading and line.part is Part.COMPANY and line.text.startswith("About "):
            yield line.text.removeprefix("About "), 0.9
    head = [question.title or "", *(line.text for line in reading.lines[:4])]
    for text in head:
        for piece in _PIECES.split(text):
            name = piece.strip()
            if len(name) <= _NAME_CHARS and _SUFFIXED.fullmatch(name) and not names_a_role(name):
                yield name, 0.85
    for pattern in (_HIRES, _JOIN):
        for match in pattern.finditer(reading.text):
            yield match["name"], 0.7
    for text in head:
        role, _, company = text.partition(" at ")
        if company and names_a_role(role):
            yield _PIECES.split(company)[0].partition(",")[0].partition("(")[0], 0.8
    yield from _names_beside_title(head)


def _names_beside_title(head: list[str]) -> Iterator[tuple[str, float]]:
    """A bare name in the page's title, or the first thing under the job's title."""
    page, *lines = head
    pieces = _PIECES.split(page)[1:] + [_PIECES.split(line)[0] for line in lines[1:3]]
    for piece in pieces:
        name = piece.partition(",")[0].strip()
        bare = len(name) <= _NAME_CHARS and _BARE_NAME.fullmatch(name)
        if bare and not names_a_role(name) and not _SITE_WORD.search(name):
            yield name, 0.65
