"""On what terms a posting hires: the kind of employment and the seniority."""

import re
from functools import cache

from penstock.llm.extractor import Question
from penstock.llm.rules.facts import text_fact
from penstock.llm.rules.layout import Reading
from penstock.llm.rules.phrases import PhraseTable
from penstock.llm.rules.vocabulary import read_table

_EMPLOYMENT_LABELS = ("employment type", "job type", "type", "contract", "contract type", "hours")
# Somebody who manages accounts or products need not lead people.
_NOT_PEOPLE = r"(?<!account )(?<!product )(?<!project )(?<!success )"
_SENIORITY = (
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
_SENIORITY_PATTERNS = tuple(
    (name, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")) for name, pattern in _SENIORITY
)
_STATED_LEVEL = re.compile(r"\b(entry|mid|senior|junior)[ -]?level\b")


def find_employment(question: Question, reading: Reading, labels: dict[str, str]) -> str | None:
    """The kind of employment, from the source's facts, a label or the text."""
    stated = text_fact(question.metadata, "employment_type")
    for name in _EMPLOYMENT_LABELS:
        stated = stated or labels.get(name)
    for lowered in ((stated or "").lower().replace("_", " "), reading.lowered):
        said = {hit.name for hit in _employment_table().find(lowered)}
        for name in read_table("employment"):
            if name in said:
                return name
    return stated


def find_seniority(title: str, labels: dict[str, str], reading: Reading) -> str | None:
    """The level a title or label names, or the text states as "entry level" and the like."""
    for source in (title, labels.get("seniority", ""), labels.get("level", "")):
        for name, pattern in _SENIORITY_PATTERNS:
            if pattern.search(source.lower()):
                return name
    stated = _STATED_LEVEL.search(reading.lowered)
    if stated is None:
        return None
    return "junior" if stated[1] == "entry" else stated[1]


@cache
def _employment_table() -> PhraseTable:
    table = read_table("employment")
    return PhraseTable({phrase: name for name, phrases in table.items() for phrase in phrases})
