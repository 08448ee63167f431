"""Job titles: which words make one, and where a line holds one."""

import re
from collections.abc import Iterator
from functools import cache

from penstock.llm.rules.vocabulary import read_words

_WORD = r"[^\W\d_][\w&/.+#'’()-]*"
_BREAKS = re.compile(
    r"\s*[|•·;\t@]\s*|\s{2,}|\s+[–—-]+\s+|\s*[–—]\s*|,\s+|\s+(?:at|with|from|bei|chez)\s+|:\s+"
    r"|\s+in\s+(?!Test\b)(?=[A-Z])|(?:\b[A-Z]\w+\s+)as\s+(?:an?\s+)?"
)
_NOT_A_TITLE = re.compile(
    r"(?:university|college|school|department|inc|ltd|llc|gmbh|bachelor|master of|degree|"
    r"reported|reporting|responsible|managed|worked|our|we|you|your|the|a|an|this|years?|"
    r"office of|team of|who|is|are|was)\b",
    re.IGNORECASE,
)
_PROSE_WORD = re.compile(
    r"(?<!\w)(?:our|we|you|your|years?|is|are|was|the|has|have|will|my)(?!\w)", re.IGNORECASE
)
_ASIDE = re.compile(r"\s*\([^)]*\)?\s*\Z")
_SMALL_WORDS = {"OF", "AND", "FOR", "THE", "IN", "TO"}
_MAX_TITLE_CHARS = 70


def find_titles(line: str) -> Iterator[str]:
    """The job titles among the pieces of a line such as "Engineer, Acme | 2018"."""
    if not _job_word().search(line):
        return
    for piece in _BREAKS.split(line):
        if is_title(tidy_title(piece)):
            yield tidy_title(piece)


def is_title(text: str) -> bool:
    """Whether these few words, and nothing else, name a job."""
    return (
        0 < len(text) <= _MAX_TITLE_CHARS
        and text[0].isupper()
        and _title().fullmatch(text) is not None
        and _NOT_A_TITLE.match(text) is None
        and _PROSE_WORD.search(text) is None
    )


def names_a_role(text: str) -> bool:
    """Whether a word for a job occurs at all."""
    return _job_word().search(text) is not None


def tidy_title(text: str) -> str:
    """Without stray punctuation, and not shouted."""
    words = _ASIDE.sub("", text).strip(" .,(*_").split()
    if not all(word.isupper() for word in words if len(word) > 2):
        return " ".join(words)
    return " ".join(_quieten(word) for word in words)


def _quieten(word: str) -> str:
    if word in _SMALL_WORDS:
        return word.lower()
    return word.title() if len(word) > 3 else word


@cache
def _job_words() -> str:
    return "|".join(sorted(map(re.escape, read_words("jobs")), key=len, reverse=True))


@cache
def _job_word() -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{_job_words()})(?!\w)", re.IGNORECASE)


@cache
def _title() -> re.Pattern[str]:
    return re.compile(
        rf"(?:{_WORD}\s+){{0,5}}?(?:{_WORD}[/-])?(?:{_job_words()})(?:[/-]{_WORD})?"
        rf"(?:\s+(?:of|for|to|in)\s+{_WORD}(?:\s+{_WORD}){{0,4}})?"
        r"(?:\s+(?:[IV]{1,3}|[1-5]))?(?:\s*\([^)]{2,24}\))?",
        re.IGNORECASE,
    )
