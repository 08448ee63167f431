"""What a posting's headings and lines announce, in the words of many languages."""

import re
from enum import Enum
from functools import cache, lru_cache
from importlib.resources import files


class Kind(Enum):
    """What a part of a posting is about."""

    UNKNOWN = "unknown"
    ROLE = "role"
    REQUIRED = "required"
    OFFER = "offer"
    COMPANY = "company"
    LEGAL = "legal"
    APPLY = "apply"
    JOBS = "jobs"


_HEADING_CHARS = 90
# "Expected" are less certain words of requirements, tried after those of offers.
_ORDER = ("jobs", "legal", "apply", "role", "required", "offer", "expected", "company")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@cache
def _read_words() -> dict[str, list[str]]:
    text = files(__package__).joinpath("headings.txt").read_text(encoding="utf-8")
    words: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, pattern = line.partition(" = ")
        if pattern and not line.startswith("#"):
            words.setdefault(name, []).append(pattern)
    return words


@cache
def words_for(name: str) -> re.Pattern[str]:
    """The words of an entry of the table, in any case."""
    more = {"pay": [MONEY_RANGE.pattern], "terms": _read_words()["contract"]}.get(name, [])
    return re.compile("|".join([*_read_words()[name], *more]), re.IGNORECASE)


# Sums of money as they stand in a pay range.
MONEY_RANGE = re.compile(
    r"(?:USD|EUR|GBP|CAD|AUD|[$€£])\s?\d(?:[\d,.']*\d)?\s?[kK]?\s*(?:/\w+\s*)?"
    r"(?:[-–—]|to|and|bis|à|a)+\s*(?:USD|EUR|GBP|CAD|AUD|[$€£])?\s?\d(?:[\d,.']*\d)?\s?[kK]?"
    r"(?:\s*(?:USD|EUR|GBP|CAD|AUD|€|£))?"
)


@lru_cache(maxsize=4096)
def heading_kind(text: str) -> Kind:
    """What the line announces, if it is a heading."""
    if len(text) > _HEADING_CHARS:
        return Kind.UNKNOWN
    plain = text.replace("’", "'").casefold().strip(" \t*#_:：-–—.•【】■◆")
    name = next((name for name, words in _kinds() if words.search(plain)), "unknown")
    return Kind.REQUIRED if name == "expected" else Kind(name)


@cache
def _kinds() -> list[tuple[str, re.Pattern[str]]]:
    kinds = []
    for name in _ORDER:
        words = "|".join(_read_words()[name])
        anywhere = "|".join(word for word in words.split("|") if _CJK.search(word))
        ending = f"|{anywhere}" if anywhere else ""
        kinds.append((name, re.compile(rf"(?<!\w)(?:{words}){ending}")))
    return kinds


def hints_at_job(text: str, language: str | None = None) -> bool:
    """Whether words of jobs occur, in English or the language, or any if that is not known."""
    words = _read_words()
    own = f"hint-{(language or '')[:2].lower()}"
    names = ("hint-en", own) if own in words else [n for n in words if n.startswith("hint-")]
    hints = dict.fromkeys(hint for name in names for hint in words[name][0].split("|"))
    return any(hint in text for hint in hints)
