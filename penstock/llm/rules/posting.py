"""The job posting profile by rules."""

import re
from collections.abc import Iterator
from datetime import date

from penstock.llm.extractor import Question, cut_text
from penstock.llm.rules.answer import Answer
from penstock.llm.rules.confidence import settle
from penstock.llm.rules.employer import Found, find_company, find_location, read_labels
from penstock.llm.rules.facts import list_fact, number_fact, text_fact
from penstock.llm.rules.layout import Line, Part, Reading
from penstock.llm.rules.roles import find_titles, names_a_role, tidy_title
from penstock.llm.rules.salary import currency_code, find_salary
from penstock.llm.rules.skills import find_skills

_DESCRIPTION_CHARS = 600
_MAX_REQUIREMENTS = 20
_HEADLINE_LINES = 6
_MIN_PROSE_CHARS = 50
_SENTENCES = re.compile(r"(?<=[.!?;])\s+")
_REQUIREMENT_WORD = re.compile(
    r"\b(?:experience|degree|ability|knowledge|proficien|familiar|years|required|must|fluen|skills"
    r"|licen[cs]e|certifi)",
    re.IGNORECASE,
)
_EMPLOYMENT = (
    ("internship", r"internship|\bintern\b|working student|werkstudent"),
    ("part-time", r"part[ _-]?time|teilzeit"),
    (
        "contract",
        r"\bcontract(?:or)? (?:role|position|basis|job)|\bcontract\b(?!s)|freelance|fixed[ -]term",
    ),
    ("temporary", r"temporary|seasonal|\btemp\b"),
    ("volunteer", r"\bvolunteer\b"),
    ("full-time", r"full[ _-]?time|\bpermanent\b|vollzeit"),
)
_EMPLOYMENT_PATTERNS = tuple((name, re.compile(p, re.IGNORECASE)) for name, p in _EMPLOYMENT)
_SENIORITY = (
    ("intern", r"intern(?:ship)?|trainee|apprentice|working student"),
    ("executive", r"chief|c[etfo]o|vp|vice president|president|executive director"),
    ("director", r"director|head of"),
    ("principal", r"principal|staff|distinguished"),
    ("lead", r"lead|team lead(?:er)?"),
    ("manager", r"manager|supervisor|foreman|superintendent"),
    ("senior", r"senior|sr\.?|experienced|iii"),
    ("junior", r"junior|jr\.?|entry[ -]level|graduate|associate|assistant"),
    ("mid", r"mid[ -]?level|mid|intermediate|ii"),
)
_SENIORITY_PATTERNS = tuple(
    (name, re.compile(rf"(?<!\w)(?:{p})(?!\w)", re.IGNORECASE)) for name, p in _SENIORITY
)
_STATED_SENIORITY = re.compile(r"(entry|mid|senior|junior)[ -]?level", re.IGNORECASE)


def answer_posting(question: Question, reading: Reading, today: date) -> Answer:  # noqa: ARG001
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
        "employment_type": _find_employment(question, reading, labels),
        **_find_pay(question, reading),
        "seniority": _find_seniority(title.value or "", labels, reading.text),
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
        return Found(_role_part(fact), 1.0)
    for name in ("job title", "position", "title", "role", "position title", "vacancy"):
        if name in labels:
            return Found(_role_part(labels[name]), 0.95)
    if question.title and names_a_role(question.title):
        return Found(_role_part(question.title), 0.95)
    head = [line for line in reading.lines if line.part is Part.HEAD][:_HEADLINE_LINES]
    for line in head:
        if title := next(find_titles(line.text), None):
            return Found(title, 0.85)
    first = question.title or (head[0].text if head else None)
    short = first is not None and len(first.split()) <= 8
    return Found(tidy_title(first), 0.4) if first and short else Found(None, 0.0)


def _role_part(text: str) -> str:
    """The job in a page title such as "Engineer - Acme | Careers"."""
    return next(find_titles(text), None) or re.split(r"\s+[|–—-]\s+", text.strip())[0]


def _find_employment(question: Question, reading: Reading, labels: dict[str, str]) -> str | None:
    stated = text_fact(question.metadata, "employment_type")
    for name in ("employment type", "job type", "type", "contract", "contract type", "hours"):
        stated = stated or labels.get(name)
    for text in filter(None, (stated, reading.text)):
        for name, pattern in _EMPLOYMENT_PATTERNS:
            if pattern.search(text):
                return name
    return stated


def _find_pay(question: Question, reading: Reading) -> dict[str, object]:
    low = number_fact(question.metadata, "salary_min")
    high = number_fact(question.metadata, "salary_max")
    currency = currency_code(text_fact(question.metadata, "salary_currency") or "")
    found = find_salary(reading.text) if low is None and high is None else None
    if found:
        low, high, currency = found.low, found.high, currency or found.currency
    return {"salary_min": low, "salary_max": high, "salary_currency": currency}


def _find_seniority(title: str, labels: dict[str, str], text: str) -> str | None:
    for source in (title, labels.get("seniority", ""), labels.get("level", "")):
        for name, pattern in _SENIORITY_PATTERNS:
            if pattern.search(source):
                return name
    stated = _STATED_SENIORITY.search(text)
    levels = {"entry": "junior", "junior": "junior", "mid": "mid", "senior": "senior"}
    return levels[stated[1].lower()] if stated else None


def _describe(question: Question, reading: Reading) -> tuple[str | None, float]:
    if fact := text_fact(question.metadata, "description"):
        return cut_text(fact, _DESCRIPTION_CHARS), 1.0
    for part, support in ((Part.SUMMARY, 1.0), (Part.HEAD, 0.8), (Part.COMPANY, 0.6)):
        if prose := " ".join(_prose(reading.within(part))):
            return cut_text(prose, _DESCRIPTION_CHARS), support
    duties = "; ".join(line.text.rstrip(".;") for line in reading.within(Part.DUTIES))
    return (cut_text(duties, _DESCRIPTION_CHARS), 0.6) if duties else (None, 0.0)


def _prose(lines: list[Line]) -> Iterator[str]:
    return (ln.text for ln in lines if len(ln.text) >= _MIN_PROSE_CHARS and not ln.bullet)


def _find_requirements(question: Question, reading: Reading) -> tuple[list[str], float]:
    if facts := list_fact(question.metadata, "requirements"):
        return facts[:_MAX_REQUIREMENTS], 1.0
    lines = reading.within(Part.REQUIREMENTS)
    if lines:
        listed = [line for line in lines if line.bullet] or lines
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
