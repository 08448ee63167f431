"""The job posting profile by rules."""

import re
from collections.abc import Iterator
from datetime import date

from penstock.llm.extractor import Question, cut_text
from penstock.llm.rules.answer import Answer
from penstock.llm.rules.conditions import find_employment, find_seniority
from penstock.llm.rules.confidence import settle
from penstock.llm.rules.employer import Found, find_company, find_location, read_labels
from penstock.llm.rules.facts import list_fact, number_fact, text_fact
from penstock.llm.rules.layout import Line, Part, Reading
from penstock.llm.rules.roles import find_titles, is_title, names_a_role, tidy_title
from penstock.llm.rules.salary import currency_code, find_salary
from penstock.llm.rules.skills import find_skills

_DESCRIPTION_CHARS = 600
_MAX_REQUIREMENTS = 20
_HEADLINE_LINES = 6
_MIN_PROSE_CHARS = 50
_SENTENCES = re.compile(r"(?<=[.!?;])\s+")
_CALL = re.compile(
    r"\A\W*(?:(?:job )?application for|apply for|now hiring|we(?:'|’)?(?: a)?re hiring|hiring"
    r"|vacancy|job opening|job)\b:?\s*|\s+(?:wanted|needed|required)\b.*",
    re.IGNORECASE,
)
_SOUGHT = re.compile(
    r"\b(?:hiring|looking for|seeking|seeks|recruiting|searching for)\s+(?:an?|our next)\s+"
    r"(?:(?:full|part)-time\s+|new\s+|talented\s+|experienced\s+)?"
    r"((?:[\w/&+#-]+\s+){0,4}?[\w-]+)(?=\s+(?:to|who|for|in|with|at|on|and)\b|[.,;\n]|\Z)"
)
_CRUMBS = re.compile(r"\s[|·•]\s")
_REQUIREMENT_WORD = re.compile(
    r"\b(?:experience|degree|ability|knowledge|proficien|familiar|years|required|must|fluen|skills"
    r"|licen[cs]e|certifi)",
    re.IGNORECASE,
)


def answer_posting(question: Question, reading: Reading, _today: date) -> Answer:
    """The posting fields a text and its source support."""
    labels = read_labels(reading)
    title = _find_title(question, reading, labels)
    company = find_company(question, reading, labels)
    location = find_location(question, reading, labels)
    description, described = _describe(question, reading)
    requirements, required = _find_requirements(question, reading)
    skills = find_skills(reading, Part.REQUIREMENTS)
    fields = {
        "title": title.value,
        "company": company.value,
        "location": location.value,
        "employment_type": find_employment(question, reading, labels),
        **_find_pay(question, reading),
        "seniority": find_seniority(title.value or "", labels, reading),
        "description": description,
        "requirements": requirements,
        "skills": list(skills.names),
    }
    supports = {
        "title": (0.30, title.support),
        "company": (0.15, company.support),
        "location": (0.10, location.support),
        "description": (0.15, described),
        "requirements": (0.20, required),
        "skills": (0.10, min(1.0, len(skills.names) / 4)),
    }
    usable = not question.profile.missing(fields)
    return Answer(fields, settle(supports, reading.text, usable=usable))


def _find_title(question: Question, reading: Reading, labels: dict[str, str]) -> Found:
    if fact := text_fact(question.metadata, "title"):
        return Found(tidy_title(fact), 1.0)
    for name in ("job title", "position", "title", "role", "position title", "vacancy"):
        if name in labels:
            return Found(tidy_title(labels[name]), 0.95)
    if question.title and names_a_role(question.title):
        return Found(_role_part(question.title), 0.95)
    head = [line for line in reading.lines if line.part is Part.HEAD][:_HEADLINE_LINES]
    for line in head:
        if title := next(find_titles(_without_call(line.text)), None):
            return Found(title, 0.85)
    if title := next(_sought_titles(reading.text), None):
        return Found(title, 0.7)
    first = question.title or (head[0].text if head else None)
    short = first is not None and len(first.split()) <= 8
    return Found(tidy_title(first), 0.4) if first and short else Found(None, 0.0)


def _role_part(text: str) -> str:
    """The job in a page title such as "Engineer - Acme | Careers"."""
    plain = _without_call(text)
    return next(find_titles(plain), None) or re.split(r"\s+[|–—-]\s+", plain.strip())[0]


def _without_call(text: str) -> str:
    return _CALL.sub("", text)


def _sought_titles(text: str) -> Iterator[str]:
    for match in _SOUGHT.finditer(text):
        title = match[1][:1].upper() + match[1][1:]
        if is_title(title):
            yield title


def _find_pay(question: Question, reading: Reading) -> dict[str, object]:
    low = number_fact(question.metadata, "salary_min")
    high = number_fact(question.metadata, "salary_max")
    currency = currency_code(text_fact(question.metadata, "salary_currency") or "")
    found = find_salary(reading.text) if low is None and high is None else None
    if found:
        low, high, currency = found.low, found.high, currency or found.currency
    return {"salary_min": low, "salary_max": high, "salary_currency": currency}


def _describe(question: Question, reading: Reading) -> tuple[str | None, float]:
    if fact := text_fact(question.metadata, "description"):
        return cut_text(fact, _DESCRIPTION_CHARS), 1.0
    for part, support in ((Part.SUMMARY, 1.0), (Part.HEAD, 0.8), (Part.COMPANY, 0.6)):
        if prose := " ".join(_prose(reading.within(part))):
            return cut_text(prose, _DESCRIPTION_CHARS), support
    duties = "; ".join(line.text.rstrip(".;") for line in reading.within(Part.DUTIES))
    return (cut_text(duties, _DESCRIPTION_CHARS), 0.6) if duties else (None, 0.0)


def _prose(lines: list[Line]) -> Iterator[str]:
    for line in lines:
        pieces = _CRUMBS.split(line.text)
        if len(line.text) >= _MIN_PROSE_CHARS and not line.bullet and len(pieces) < 3:
            yield line.text


def _find_requirements(question: Question, reading: Reading) -> tuple[list[str], float]:
    if facts := list_fact(question.metadata, "requirements"):
        return facts[:_MAX_REQUIREMENTS], 1.0
    lines = reading.within(Part.REQUIREMENTS)
    if lines:
        listed = [line for line in lines if line.bullet] or reading.first_block(Part.REQUIREMENTS)
        items = [item for line in listed for item in _items(line, len(listed))]
        return items[:_MAX_REQUIREMENTS], 1.0 if len(items) > 1 else 0.6
    bullets = [line.text for line in reading.lines if line.bullet]
    likely = [text for text in bullets if _REQUIREMENT_WORD.search(text)]
    return likely[:_MAX_REQUIREMENTS], 0.4 if likely else 0.0


def _items(line: Line, count: int) -> list[str]:
    """A bullet is one requirement; a lone paragraph is one for each sentence."""
    text = line.text.partition(":")[2].strip() if line.heading else line.text
    pieces = [text] if line.bullet or count > 2 else _SENTENCES.split(text)
    return [piece.strip(" ;.") for piece in pieces if piece.strip(" ;.")]
