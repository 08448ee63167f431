"""What the source already said about a document, in the types the fields want."""

import re
from collections.abc import Mapping
from typing import Any

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MAX_CHARS = 2000
_MAX_SUM = 1e12
_SPACES = re.compile(r"[^\S\n]+")
_ITEM_BREAK = re.compile(r"\s*(?:\n|;|•|▪|●)\s*[-*•·]?\s*")


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
