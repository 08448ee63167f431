"""What the rules answer, how far they trust it, and facts that the source already gave."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.llm.prompts import PreparedRequest
from penstock.rules.vocabulary import read_words

CEILING = 0.95
"""Rules are never certain."""
UNUSABLE = 0.5
"""The most an answer without its required fields can claim."""
_SAMPLE_CHARS = 1500
_USUAL_SHARE = 0.12
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MAX_CHARS = 2000
_MAX_SUM = 1e12
_SPACES = re.compile(r"[^\S\n]+")
_ITEM_BREAK = re.compile(r"\s*(?:\n|;|•|▪|●)\s*[-*•·]?\s*")


class RulesAnswer(NamedTuple):
    """A profile's fields, the confidence in them, and the support of single fields."""

    fields: Mapping[str, Any]
    confidence: float
    supports: Mapping[str, float]


# The fields whose supports have another name.
_FIELD_OF = {
    "skills": "primary_skills",
    "titles": "recent_job_titles",
    "years": "years_experience_total",
}


class FoundValue(NamedTuple):
    """A value and how well it is supported, 0 to 1."""

    value: Any
    support: float


def make_answer(
    request: PreparedRequest,
    text: str,
    fields: Mapping[str, Any],
    supports: Mapping[str, tuple[float, float]],
) -> RulesAnswer:
    """The answer whose confidence is the weighted mean of (weight, support) pairs, less for a text
    that is not English."""
    total = sum(weight for weight, _ in supports.values())
    mean = sum(weight * support for weight, support in supports.values()) / total
    ceiling = UNUSABLE if request.profile.missing(fields) else CEILING
    words = [word for word in text[:_SAMPLE_CHARS].lower().split() if len(word) > 1]
    common = sum(map(read_words("common_words").__contains__, words)) / max(1, len(words))
    # 1 for running English, towards 0 for other languages, tables and noise.
    english = min(1.0, common / _USUAL_SHARE)
    factor = 0.5 + 0.5 * english
    own = {
        name if name in fields else _FIELD_OF.get(name, name): round(
            min(support * factor, CEILING), 3
        )
        for name, (_, support) in supports.items()
    }
    return RulesAnswer(fields, round(min(mean * factor, ceiling), 2), own)


def text_fact(metadata: Mapping[str, Any], key: str) -> str | None:
    """A fact as one text; several values are joined."""
    value = metadata.get(key)
    if isinstance(value, list | tuple):
        value = ", ".join(str(item) for item in value if item)
    if not isinstance(value, str | int | float):
        return None
    return " ".join(str(value).split())[:_MAX_CHARS] or None


def number_fact(metadata: Mapping[str, Any], key: str) -> float | None:
    """A fact as a sum of money: a number that is not negative and not absurd."""
    value = metadata.get(key)
    if isinstance(value, str):
        found = _NUMBER.search(value.replace(",", ""))
        value = float(found[0]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_SUM else None


def list_fact(metadata: Mapping[str, Any], key: str) -> list[str]:
    """A fact as a list; a text is taken apart at its lines."""
    value = metadata.get(key)
    items = _ITEM_BREAK.split(_SPACES.sub(" ", value)) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        return []
    return [item.strip(" -*•·") for item in items if isinstance(item, str) and item.strip(" -*•·")]
