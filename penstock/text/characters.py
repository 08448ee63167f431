"""Characters every store accepts: composed Unicode, no NULs, no lone surrogates, tidy lines."""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

TITLE_CHARS = 300
VALUE_CHARS = 100_000
"""Of one value of the metadata; the description of a long job posting has a tenth of that."""

# Postgres refuses NUL in text and in jsonb, and UTF-8 cannot carry a lone surrogate.
_REFUSED = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANK_LINES = re.compile(r"\n{3,}")
# Composing sorts the marks on a letter in quadratic time. No script puts this many on one
# (https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format).
_MARKS_ON_A_LETTER = 30
_FIRST_MARK = 0x300


def clean_text(text: str) -> str:
    """The same text with nothing in it that a database or a reader would stumble over."""
    text = _REFUSED.sub("", _LINE_ENDS.sub("\n", text))
    text = "\n".join(map(str.rstrip, text.split("\n")))
    return _compose(_BLANK_LINES.sub("\n\n", text)).strip()


def clean_line(text: str) -> str:
    """The text on one line, with single spaces."""
    return " ".join(clean_text(text).split())


def clean_title(title: str | None) -> str | None:
    """One trimmed line of at most 300 characters, or nothing."""
    return clean_line(title or "")[:TITLE_CHARS].strip() or None


def clean_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata whose strings are clean and bounded, without the entries that say nothing."""
    cleaned = {key: _clean_value(value) for key, value in metadata.items()}
    return {key: value for key, value in cleaned.items() if value not in (None, "", [], {})}


def _compose(text: str) -> str:
    if unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _suspect_runs().sub(_thin_out, text))


@cache
def _suspect_runs() -> re.Pattern[str]:
    """Long runs of combining marks, and of all rare letters: few ranges are fast to search."""
    marks = "".join(filter(_starts_with_mark, map(chr, range(_FIRST_MARK, 0x10000))))
    suspect = f"[{marks}\U00010000-\U0010ffff]"
    return re.compile(f"{suspect}{suspect}{{{_MARKS_ON_A_LETTER},}}")


def _thin_out(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for letter in run.group():
        marks = marks + 1 if _starts_with_mark(letter) else 0
        if marks <= _MARKS_ON_A_LETTER:
            kept.append(letter)
    return "".join(kept)


def _starts_with_mark(letter: str) -> bool:
    return bool(unicodedata.combining(unicodedata.normalize("NFD", letter)[0]))


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value[:VALUE_CHARS])
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if isinstance(value, Mapping):
        return clean_metadata(value)
    return value
