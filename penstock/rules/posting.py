"""The job posting profile by rules: employer, place, terms and pay."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from penstock.llm.prompts import PreparedRequest
from penstock.rules.answer import (
    FoundValue,
    RulesAnswer,
    list_fact,
    make_answer,
    number_fact,
    text_fact,
)
from penstock.rules.layout import ParsedText, Section
from penstock.rules.skills import (
    calm_title,
    find_skills,
    find_titles,
    is_title,
    names_a_role,
    tidy_title,
)
from penstock.rules.vocabulary import read_phrases, read_table
from penstock.text.postings.blocks import Block, join_blocks
from penstock.text.postings.headings import Kind, heading_kind, words_for
from penstock.text.postings.sections import Split, is_heading, split_text

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


def read_labels(parsed: ParsedText) -> dict[str, str]:
    """Facts written as "Label: value", also with the value on the next line."""
    labels: dict[str, str] = {}
    lines = parsed.lines[:_LABELLED_LINES]
    for line, following in zip(lines, (*lines[1:], None), strict=False):
        label, colon, value = line.text.partition(":")
        if not colon or len(label) > _LABEL_CHARS:
            continue
        value = value.strip(" *_") or (following.text if following else "")
        if value and len(value) <= 120:
            labels.setdefault(label.strip(" *_#").lower(), value)
    return labels


def find_stated(
    request: PreparedRequest, labels: dict[str, str], fact: str, *names: str
) -> FoundValue | None:
    """A fact of the source, else the value of the first of these labels."""
    if value := text_fact(request.metadata, fact):
        return FoundValue(value, 1.0)
    return next((FoundValue(labels[name], 0.95) for name in names if name in labels), None)


def find_company(
    request: PreparedRequest, parsed: ParsedText, labels: dict[str, str]
) -> FoundValue:
    """The employer, from the source's facts, a label, a heading or a sentence."""
    names = ("company", "employer", "organization", "organisation", "agency")
    if stated := find_stated(request, labels, "company", *names):
        return stated
    for name, support in _company_hints(request, parsed):
        tidy = name.strip(" ,.*’'")
        if tidy and not _NO_COMPANY.match(tidy):
            return FoundValue(tidy, support)
    return FoundValue(None, 0.0)


def find_location(
    request: PreparedRequest, parsed: ParsedText, labels: dict[str, str]
) -> FoundValue:
    """The place of work, from the source's facts, a label, the head or a sentence."""
    names = ("location", "office location", "work location", "office", "where", "standort")
    if stated := find_stated(request, labels, "location", *names):
        return stated
    head = "\n".join(line.text for line in parsed.lines[:_HEAD_LINES])
    for text, support in ((head, 0.85), (parsed.text, 0.6)):
        if place := _PLACE.search(text):
            return FoundValue(place[0], support)
        if based := _BASED.search(text):
            return FoundValue(based["place"], support)
        if _REMOTE.search(text.lower()):
            return FoundValue("Remote", support)
    return FoundValue(None, 0.0)


def _company_hints(request: PreparedRequest, parsed: ParsedText) -> Iterator[tuple[str, float]]:
    for line in parsed.lines:
        if line.heading and line.part is Section.COMPANY and line.text.startswith("About "):
            yield line.text.removeprefix("About "), 0.9
    head = [request.title or "", *(line.text for line in parsed.lines[:4])]
    for text in head:
        for piece in _PIECES.split(text):
            name = piece.strip()
            if len(name) <= _NAME_CHARS and _SUFFIXED.fullmatch(name) and not names_a_role(name):
                yield name, 0.85
    for pattern in (_HIRES, _JOIN):
        for match in pattern.finditer(parsed.text):
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


_EMPLOYMENT_LABELS = ("employment type", "job type", "type", "contract", "contract type", "hours")
_WEEK = re.compile(
    r"\b(\d\d)(?:[.,]\d+)? ?(?:h|uur|timer|timmar|stunden|hours|heures|horas|ore|hodin)\b"
)
_FULL_WEEK = 35
# A manager of accounts or products need not lead people.
_NOT_PEOPLE = r"(?<!account )(?<!product )(?<!project )(?<!success )"
_LEVELS = (
    ("intern", r"intern(?:ship)?|trainee|apprentice|working student"),
    ("executive", r"chief|c[etfo]o|vp|vice president|president|executive director"),
    ("director", r"director|head of"),
    ("principal", r"principal|staff|distinguished"),
    ("lead", r"lead|team lead(?:er)?"),
    ("manager", rf"{_NOT_PEOPLE}manager|supervisor|foreman|superintendent"),
    ("senior", r"senior|sr\.?|experienced|iii"),
    ("junior", r"junior|jr\.?|entry[ -]level|graduate|associate|assistant"),
    ("mid", r"mid[ -]?level|mid|intermediate|ii"),
)
_SENIORITY = [(name, re.compile(rf"(?<!\w)(?:{words})(?!\w)")) for name, words in _LEVELS]
_STATED_LEVEL = re.compile(r"\b(entry|mid|senior|junior)[ -]?level\b")


def find_employment(
    request: PreparedRequest, parsed: ParsedText, labels: dict[str, str]
) -> str | None:
    """The kind of employment, from the source's facts, a label or a line that states its terms."""
    found = find_stated(request, labels, "employment_type", *_EMPLOYMENT_LABELS)
    phrases = read_phrases("employment")
    starts = (hit.start for hit in phrases.find(parsed.lowered))
    lines = dict.fromkeys(bisect_right(parsed.starts, start) - 1 for start in starts)
    texts = (parsed.lines[max(0, line)].text for line in lines)
    for said in (found.value if found else "", *filter(words_for("contract").search, texts)):
        lowered = said.lower().replace("_", " ")
        if week := _WEEK.search(lowered):
            return "full-time" if float(week[1]) >= _FULL_WEEK else "part-time"
        named = {hit.name for hit in phrases.find(lowered)}
        if kind := next((name for name in read_table("employment") if name in named), None):
            return kind
    return found.value if found else None


def find_seniority(title: str, labels: dict[str, str], parsed: ParsedText) -> str | None:
    """The level a title or label names, or the text states as "entry level" and the like."""
    for source in (title, labels.get("seniority", ""), labels.get("level", "")):
        for name, pattern in _SENIORITY:
            if pattern.search(source.lower()):
                return name
    stated = _STATED_LEVEL.search(parsed.lowered)
    if stated is None:
        return None
    return "junior" if stated[1] == "entry" else stated[1]


_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "¥": "JPY"}
_PREFIXED = {"US$": "USD", "C$": "CAD", "CA$": "CAD", "A$": "AUD", "AU$": "AUD", "NZ$": "NZD"}
_CODES = "USD|EUR|GBP|CHF|CAD|AUD|NZD|INR|JPY|SEK|NOK|DKK|PLN|CZK|SGD|HKD|ZAR|BRL|MXN"
_MONEY = rf"(?:(?:US|CA?|AU?|NZ)?\$|[€£₹¥]|\b(?:{_CODES})\b)"
_AMOUNT = r"\d{1,3}(?:[ ,.'’]\d{3})+(?:\.\d{1,2})?|\d+(?:\.\d{1,2})?"
_TO = r"\s*(?:-|–|—|to|and|up to|bis)\s*"
_PAY = re.compile(
    rf"(?P<before>{_MONEY})\s*(?P<low>{_AMOUNT})\s*(?P<lk>[kK]\b)?"
    rf"(?:{_TO}(?:{_MONEY})?\s*(?P<high>{_AMOUNT})\s*(?P<hk>[kK]\b)?)?(?:\s*(?P<code>{_CODES})\b)?"
    rf"|(?<![\w.,])(?P<low2>{_AMOUNT})\s*(?P<lk2>[kK]\b)?\s*(?:{_MONEY})?"
    rf"(?:{_TO}(?P<high2>{_AMOUNT})\s*(?P<hk2>[kK]\b)?)?\s*(?P<after>{_MONEY})"
)
_MONEY_SIGN = re.compile(_MONEY)
_THOUSANDS = re.compile(r"\d[kK]\b|\d{2,3}[,.]\d{3}\b")
_PAY_WORD = re.compile(
    r"salary|compensation|\bpay\b|per year|per annum|annual|p\.a\.|/ ?(?:yr|year|hour|hr|month|day)"
    r"|per hour|hourly|per month|base|gehalt|\bwage|ote\b|a year|an hour|remuneration|package",
    re.IGNORECASE,
)
_NOT_PAY = re.compile(
    r"revenue|raised|funding|series [a-e]\b|million|billion|\bbn\b|valuation|budget|arr\b|customers"
    r"|bonus of|sign-on|stipend|referral|allowance",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Salary:
    """Pay as stated, by the year or by the hour; one figure alone is both ends."""

    low: float
    high: float
    currency: str


def find_salary(text: str) -> Salary | None:
    """The first sum that a line presents as pay."""
    for line in text.split("\n"):
        if _MONEY_SIGN.search(line) and (_PAY_WORD.search(line) or _THOUSANDS.search(line)):
            for match in _PAY.finditer(line):
                around = line[max(0, match.start() - 30) : match.end() + 20]
                if not _NOT_PAY.search(around) and (pay := _salary_of(match)):
                    return pay
    return None


def currency_code(text: str) -> str | None:
    """The ISO code for a code or sign."""
    sign = text.strip().upper()
    return _PREFIXED.get(sign) or _SYMBOLS.get(sign) or (sign if len(sign) == 3 else None)


def _salary_of(match: re.Match[str]) -> Salary | None:
    low, high = match["low"] or match["low2"], match["high"] or match["high2"]
    low_k, high_k = match["lk"] or match["lk2"], match["hk"] or match["hk2"]
    currency = currency_code(match["code"] or match["before"] or match["after"])
    first = _amount(low, bool(low_k or (high and high_k and len(low) <= 3)))
    last = _amount(high, bool(high_k or (low_k and len(high) <= 3))) if high else first
    plausible = 5 <= first <= last <= 5_000_000 and last <= first * 10
    return Salary(first, last, currency) if plausible and currency else None


def _amount(digits: str, thousands: bool) -> float:
    grouped = re.fullmatch(r"(\d{1,3}(?:[ ,.'’]\d{3})+)(\.\d{1,2})?", digits)
    plain = re.sub(r"[ ,.'’]", "", grouped[1]) + (grouped[2] or "") if grouped else digits
    return float(plain) * (1000 if thousands else 1)


_HEADLINE_LINES = 6
_HEADING_CHARS = 40
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


def answer_posting(request: PreparedRequest, parsed: ParsedText, _today: date) -> RulesAnswer:
    """The posting fields a text and its source support."""
    labels = read_labels(parsed)
    title = _find_title(request, parsed, labels)
    company = find_company(request, parsed, labels)
    location = find_location(request, parsed, labels)
    found = split_text(request.text)
    description, described = _describe(request, found)
    requirements, required = _find_requirements(request, found)
    skills, _ = find_skills(parsed, Section.REQUIREMENTS)
    fields = {
        "title": title.value,
        "company": company.value,
        "location": location.value,
        "employment_type": find_employment(request, parsed, labels),
        **_find_pay(request, parsed),
        "seniority": find_seniority(title.value or "", labels, parsed),
        "description": description,
        "requirements": requirements,
        "skills": skills,
    }
    supports = {
        "title": (0.30, title.support),
        "company": (0.15, company.support),
        "location": (0.10, location.support),
        "description": (0.15, described),
        "requirements": (0.20, required),
        "skills": (0.10, min(1.0, len(skills) / 4)),
    }
    return make_answer(request, parsed.text, fields, supports)


def _find_title(request: PreparedRequest, parsed: ParsedText, labels: dict[str, str]) -> FoundValue:
    names = ("job title", "position", "title", "role", "position title", "vacancy")
    if stated := find_stated(request, labels, "title", *names):
        return FoundValue(calm_title(stated.value), stated.support)
    if request.title and names_a_role(request.title):
        # The job in a page title such as "Engineer - Acme | Careers".
        plain = _CALL.sub("", request.title)
        title = next(find_titles(plain), None) or re.split(r"\s+[|–—-]\s+", plain.strip())[0]
        return FoundValue(title, 0.95)
    head = [line for line in parsed.lines if line.part is Section.HEAD][:_HEADLINE_LINES]
    for line in head:
        if found := next(find_titles(_CALL.sub("", line.text)), None):
            return FoundValue(found, 0.85)
    for match in _SOUGHT.finditer(parsed.text):
        title = match[1][:1].upper() + match[1][1:]
        if is_title(title):
            return FoundValue(title, 0.7)
    first = request.title or (head[0].text if head else None)
    short = first is not None and len(first.split()) <= 8
    return FoundValue(tidy_title(first), 0.4) if first and short else FoundValue(None, 0.0)


def _find_pay(request: PreparedRequest, parsed: ParsedText) -> dict[str, object]:
    low = number_fact(request.metadata, "salary_min")
    high = number_fact(request.metadata, "salary_max")
    currency = currency_code(text_fact(request.metadata, "salary_currency") or "")
    found = find_salary(parsed.text) if low is None and high is None else None
    if found:
        low, high, currency = found.low, found.high, currency or found.currency
    return {"salary_min": low, "salary_max": high, "salary_currency": currency}


def _describe(request: PreparedRequest, found: Split) -> tuple[str | None, float]:
    """The whole description in the words and lines of the source or the text."""
    if fact := _long_fact(request, "description"):
        return fact, 1.0
    description = join_blocks(found.description)
    return description or None, 1.0 if len(description) >= _MIN_PROSE_CHARS else 0.4


def _find_requirements(request: PreparedRequest, found: Split) -> tuple[list[str], float]:
    if facts := list_fact(request.metadata, "requirements"):
        return [fact for fact in facts if not _is_bare_heading(fact)] or facts, 1.0
    lines = [block for block in found.requirements if not is_heading(block)]
    items = [item for block in lines for item in _items(block, len(lines))]
    return items, 1.0 if len(items) > 1 else 0.6 if items else 0.0


def _is_bare_heading(line: str) -> bool:
    short = len(line) <= _HEADING_CHARS and not line.endswith(".")
    return short and (line.endswith(":") or heading_kind(line) is Kind.REQUIRED)


def _long_fact(request: PreparedRequest, key: str) -> str:
    value = request.metadata.get(key)
    return value.strip() if isinstance(value, str) else ""


def _items(block: Block, count: int) -> list[str]:
    """A bullet is one requirement; a lone paragraph is one for each sentence."""
    pieces = [block.text] if block.item or count > 2 else _SENTENCES.split(block.text)
    return [piece.strip(" ;.") for piece in pieces if piece.strip(" ;.")]
