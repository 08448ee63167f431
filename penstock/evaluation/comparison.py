"""Compares a value that was found with the right one. How is decided here, by the type of its field
in the schema of its profile: a text, a list, a number or a choice."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from penstock.llm.profiles import Profile
from penstock.llm.schema import strict_schema

# Fields between which a text can be divided in more than one right way.
TOGETHER: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "job_posting": (("description", "requirements"),)
}
# Numbers are near each other within one (years), or within a hundredth (sums).
_NEAR, _NEAR_SHARE = 1.0, 0.01
# A value of so many words is right when it has most of them; a shorter one has to have them all.
_LONG_WORDS = 8
_MOST_WORDS = 0.8
# From Hiragana on, words are not set apart: each character counts as one.
_WITHOUT_BLANKS = "\u3040"
_WORD = re.compile(r"[^\W_]+[+#]*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_IN_PARENTHESES = re.compile(r"\([^()]*\)")


class Kind(StrEnum):
    """How the values of a field are compared."""

    TEXT = "text"
    LIST = "list"
    NUMBER = "number"
    CHOICE = "choice"


class Level(StrEnum):
    """How strictly values are compared."""

    EXACT = "exact"
    """The same characters."""
    NORMALISED = "normalised"
    """But for case, accents, punctuation, parentheses and the way a number is written."""
    SOFT = "soft"
    """Word by word; numbers that are near each other."""


class Counts(NamedTuple):
    """Of values, or of words: how many were found, how many of these are right, how many there
    should be."""

    right: int = 0
    found: int = 0
    wanted: int = 0

    def plus(self, other: "Counts") -> "Counts":
        right, found, wanted = other
        return Counts(self.right + right, self.found + found, self.wanted + wanted)

    @property
    def precision(self) -> float | None:
        """None when nothing was found."""
        return self.right / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """None when there is nothing to find."""
        return self.right / self.wanted if self.wanted else None

    @property
    def f1(self) -> float | None:
        """None when there is nothing to find and nothing was found."""
        both = self.found + self.wanted
        return 2 * self.right / both if both else None


def kind_of(profile: Profile, field: str) -> Kind:
    """How the values of a field are compared, by its type."""
    return _kinds(profile)[field]


def known_fields(profile: Profile) -> tuple[str, ...]:
    """The fields that can be compared: all but the confidence."""
    return tuple(_kinds(profile))


@cache
def _kinds(profile: Profile) -> dict[str, Kind]:
    schema = strict_schema(profile.schema)
    shared = schema.get("$defs", {})
    return {
        name: _kind(_types(part, shared))
        for name, part in schema["properties"].items()
        if name != "confidence"
    }


def _kind(types: set[str]) -> Kind:
    if "array" in types:
        return Kind.LIST
    if types & {"integer", "number"}:
        return Kind.NUMBER
    return Kind.CHOICE if types and types <= {"enum", "boolean"} else Kind.TEXT


def _types(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> set[str]:
    if "$ref" in schema:
        return _types(shared[schema["$ref"].rpartition("/")[2]], shared)
    if "anyOf" in schema:
        return {one for option in schema["anyOf"] for one in _types(option, shared)}
    return {"enum"} if "enum" in schema else {str(schema.get("type"))} - {"null"}


def compare(kind: Kind, wanted: Any, found: Any) -> dict[Level, Counts]:
    """How the found value of a field, or its list of values, compares with the right one."""
    right, got = values_of(wanted), values_of(found)
    soft = _near(right, got) if kind is Kind.NUMBER else _overlap(right, got)
    normalised = _common(list(map(_plain, right)), list(map(_plain, got)))
    return {
        Level.EXACT: _common(list(map(_exact, right)), list(map(_exact, got))),
        Level.NORMALISED: normalised,
        Level.SOFT: normalised if kind is Kind.CHOICE else soft,
    }


def is_right(kind: Kind, value: Any, wanted: Any) -> bool:
    """Whether one found value is right: nearly the number, most words of a long text, else the same
    words as one of those that are wanted."""
    return any(_is_same(kind, value, one) for one in values_of(wanted))


def values_of(value: Any) -> list[Any]:
    """The values of a field; an empty one is none."""
    values = value if isinstance(value, list | tuple) else [value]
    return [one for one in values if one not in (None, "", [], {})]


def _is_same(kind: Kind, value: Any, wanted: Any) -> bool:
    if kind is Kind.NUMBER:
        return bool(_near([wanted], [value]).right)
    if _plain(value) == _plain(wanted):
        return True
    share = _overlap([wanted], [value])
    return share.wanted >= _LONG_WORDS and (share.f1 or 0) >= _MOST_WORDS


def _common(wanted: Sequence[str], found: Sequence[str]) -> Counts:
    return Counts(len({*wanted} & {*found}), len({*found}), len({*wanted}))


def _overlap(wanted: Sequence[Any], found: Sequence[Any]) -> Counts:
    right, got = (Counter(word for one in side for word in words(one)) for side in (wanted, found))
    return Counts((right & got).total(), got.total(), right.total())


def _near(wanted: Sequence[Any], found: Sequence[Any]) -> Counts:
    right, got = _middle(wanted), _middle(found)
    near = (
        right is not None
        and got is not None
        and abs(right - got) <= max(_NEAR, _NEAR_SHARE * abs(right))
    )
    return Counts(int(near), len(found[:1]), len(wanted[:1]))


def _middle(values: Sequence[Any]) -> float | None:
    """Of a number, or of a range such as "5-7"."""
    numbers = [float(one) for one in _NUMBER.findall(str(values[0]))[:2]] if values else []
    return sum(numbers) / len(numbers) if numbers else None


def _exact(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> str:
    """Only its words; without what stands in parentheses, unless that is all."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return " ".join(words(value))
    text = str(value)
    if _NUMBER.fullmatch(text):
        return f"{float(text):g}"
    return " ".join(words(_IN_PARENTHESES.sub(" ", text)) or words(text))


def words(value: Any) -> list[str]:
    """The words of a value without case and accents; of a record, of all its values."""
    if isinstance(value, Mapping):
        return [word for name in sorted(value) for word in words(value[name])]
    if isinstance(value, list | tuple):
        return [word for one in value for word in words(one)]
    if value is None:
        return []
    apart = unicodedata.normalize("NFKD", str(value).casefold())
    plain = "".join(char for char in apart if not unicodedata.combining(char))
    return [part for word in _WORD.findall(plain) for part in _parts(word)]


def _parts(word: str) -> Sequence[str]:
    return word if max(word) >= _WITHOUT_BLANKS else (word,)
