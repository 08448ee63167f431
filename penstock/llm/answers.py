"""Reads a model's answer: finds the JSON, cleans the fields, judges whether it is good enough."""

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from penstock.llm.profiles import Profile
from penstock.llm.schema import strict_schema

CONFIDENCE = "confidence"
_MAX_YEARS = 70
_NUMBER = r"(\d{1,2}(?:\.\d+)?)"
_UNIT = r"\s*\+?\s*(?:years?|yrs?\.?)?"
_RANGE = re.compile(rf"{_NUMBER}\s*(?:-|–|—|to)\s*{_NUMBER}{_UNIT}", re.IGNORECASE)
_SINGLE = re.compile(rf"{_NUMBER}{_UNIT}", re.IGNORECASE)
# Longer answers are not read, deeper ones could not be stored.
MAX_CHARS = 200_000
MAX_DEPTH = 32
_MAX_OBJECTS = 100
_MAX_ERRORS = 100
_MAX_INTEGER = 2**63
_OBJECT_START = re.compile(r'\{(?=\s*+["}])')
# Strings are matched to be left as they are: a comma or a blank in one belongs to the document.
_REPAIRED = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|,(?=\s*+[}\]])|[^\S \t\r\n]|[\u200b\u2060\ufeff]', re.DOTALL
)

JsonObject = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caps:
    """How many items of each list are kept."""

    primary_skills: int = 12
    recent_job_titles: int = 3
    certifications: int = 10
    industries: int = 5

    def limit(self, field: str) -> int | None:
        """The most items `field` may hold; None means no limit."""
        name = "primary_skills" if field == "skills" else field
        limit: int | None = getattr(self, name) if name in self.__slots__ else None
        return limit


# Answers are stored uncut, so that a cap can be raised later; these numbers only bound them.
UNCAPPED = Caps(1000, 1000, 1000, 1000)


def cap_fields(fields: Mapping[str, Any], caps: Caps) -> dict[str, Any]:
    """The same fields, with lists no longer than their caps."""
    return {
        name: value[: caps.limit(name)] if isinstance(value, list) else value
        for name, value in fields.items()
    }


def clean_fields(profile: Profile, fields: Mapping[str, Any], caps: Caps) -> dict[str, Any]:
    """The cleaned fields of the profile; unknown ones are dropped."""
    known = profile.schema.model_fields
    return {name: _clean(name, value, caps) for name, value in fields.items() if name in known}


def clean_list(values: Iterable[object], limit: int | None = None) -> list[str]:
    """Trimmed, each spelled as it came first, then capped."""
    first: dict[str, str] = {}
    for value in values:
        if isinstance(value, str) and (item := " ".join(value.split())):
            first.setdefault(item.casefold(), item)
    return list(first.values())[:limit]


def clean_years(value: object) -> int | float | str | None:
    """A plausible number of years, or a range kept as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _plausible(value)
    if not isinstance(value, str):
        return None
    if found := _RANGE.fullmatch(value.strip()):
        low, high = found[1], found[2]
        if float(low) < float(high) <= _MAX_YEARS:
            return f"{low}-{high}"
        return _plausible(float(high))
    single = _SINGLE.fullmatch(value.strip())
    return _plausible(float(single[1])) if single else None


def storable_text(text: str) -> str:
    """Without NUL and unpaired surrogates, which broken PDFs hold and databases refuse."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _plausible(years: float) -> int | float | None:
    if not 0 <= years <= _MAX_YEARS:
        return None
    return int(years) if years == int(years) else years


def _clean(name: str, value: Any, caps: Caps) -> Any:
    if name == "years_experience_total":
        return clean_years(value)
    if isinstance(value, list | tuple):
        # Only texts have spellings; the records and numbers of a user's profile are not changed.
        if all(item is None or isinstance(item, str) for item in value):
            return clean_list(value, caps.limit(name))
        return list(value)[: caps.limit(name)]
    if isinstance(value, str):
        return value.strip() or None
    return value


def read_objects(content: str) -> Iterator[JsonObject | None]:
    """Every top-level object of an answer, in order; None where one starts but is broken.

    A model's reasoning is skipped. The time is linear in the length, whatever the content.
    """
    if len(content) > MAX_CHARS:
        return
    try:
        whole = _storable(json.JSONDecoder(**_NUMBERS).decode(content.strip("\ufeff \t\r\n")))
    except (ValueError, RecursionError):
        yield from _scan(_repair(content))
        return
    objects = whole if isinstance(whole, list) else [whole]
    yield from (one for one in objects if isinstance(one, dict))


def _scan(text: str) -> Iterator[JsonObject | None]:
    decoder = json.JSONDecoder(**_NUMBERS)
    position = 0
    # Each failure costs as much as all of the text before it, so their number is limited.
    for _ in range(_MAX_OBJECTS):
        start = _OBJECT_START.search(text, position)
        if start is None:
            return
        try:
            found, position = decoder.raw_decode(text, start.start())
            yield _storable(found)
        except json.JSONDecodeError as error:
            # What comes before the error is part of the broken object, not an answer.
            position = max(error.pos, start.end())
            yield None
        except (ValueError, RecursionError):
            yield None
            return


def _repair(text: str) -> str:
    """The text from its first brace on, without reasoning, trailing commas and unusual blanks."""
    if text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]

    def replace(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            return found[0]
        return "" if found[0] == "," else " "

    return _REPAIRED.sub(replace, text[max(text.find("{"), 0) :])


def _storable(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {storable_text(key): _storable(item, depth + 1) for key, item in value.items()}
    return value


def _read_integer(digits: str) -> int | float | None:
    # Python refuses to read thousands of digits; databases hold nineteen.
    if len(digits) < 20 and -_MAX_INTEGER <= (number := int(digits)) < _MAX_INTEGER:
        return number
    return _read_number(digits)


def _read_number(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


_NUMBERS: dict[str, Any] = {
    "parse_int": _read_integer,
    "parse_float": _read_number,
    # NaN and Infinity are no JSON; they become null.
    "parse_constant": lambda _: None,
}


class FallbackReason(StrEnum):
    """Why an answer is not good enough."""

    INVALID_JSON = "invalid_json"
    FAILED_VALIDATION = "failed_validation"
    MISSING_FIELDS = "missing_fields"
    LOW_CONFIDENCE = "low_confidence"
    UNSUPPORTED = "unsupported"
    """The text does not say what some fields hold."""


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer's fields; with a reason they are not good enough, without fields not usable."""

    fields: dict[str, Any] | None
    confidence: float | None
    reason: FallbackReason | None


def judge_answer(
    profile: Profile, content: str | None, caps: Caps, threshold: float
) -> JudgedAnswer:
    """Whether an answer is good enough; this never raises, whatever the content.

    Of several objects the last usable one counts: examples and drafts come before the answer. If
    none is usable, the reason is that of the first.
    """
    judge = _Judge(profile, caps, threshold)
    verdicts = [judge.judge(found) for found in read_objects(content or "")]
    usable = (verdict for verdict in reversed(verdicts) if verdict.fields is not None)
    first = verdicts[0] if verdicts else _refuse(FallbackReason.INVALID_JSON)
    return next(usable, first)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges the objects of one answer."""

    profile: Profile
    caps: Caps
    threshold: float

    def judge(self, found: JsonObject | None) -> JudgedAnswer:
        if found is None:
            return _refuse(FallbackReason.INVALID_JSON)
        answer = self._known(self._unwrap(found))
        if (values := self._validate(answer)) is None:
            missing = self.profile.missing(answer)
            reason = FallbackReason.MISSING_FIELDS if missing else FallbackReason.FAILED_VALIDATION
            return _refuse(reason)
        fields = clean_fields(self.profile, values, self.caps)
        if self.profile.missing(fields):
            return _refuse(FallbackReason.MISSING_FIELDS)
        fields.pop(CONFIDENCE, None)
        confidence = _read_confidence(answer.get(CONFIDENCE))
        if confidence is None:
            return _refuse(FallbackReason.FAILED_VALIDATION)
        low = confidence < self.threshold
        return JudgedAnswer(fields, confidence, FallbackReason.LOW_CONFIDENCE if low else None)

    def _unwrap(self, found: JsonObject) -> JsonObject:
        """The object inside, if this one is only its wrapping, as in {"resume": {…}}."""
        known = self._known(found)
        wrapped = [value for name, value in found.items() if name not in known]
        if set(known) <= {CONFIDENCE} and len(wrapped) == 1 and isinstance(wrapped[0], dict):
            return self._unwrap({**known, **wrapped[0]})
        return found

    def _known(self, found: JsonObject) -> JsonObject:
        schema = self.profile.schema
        names = schema.model_fields.keys() | strict_schema(schema)["properties"].keys()
        return {name: value for name, value in found.items() if name in names}

    def _validate(self, answer: JsonObject) -> dict[str, Any] | None:
        """The values as the schema has them, or None if it does not take them."""
        for _ in range(2):
            try:
                values = self.profile.schema.model_validate(answer).model_dump_json()
                # JSON values only: dates as text, and null for NaN.
                return dict(json.loads(values, parse_constant=lambda _: None))
            except ValidationError as error:
                if not _drop_nulls(answer, error):
                    return None
            except Exception as error:
                # A validator in a user's schema may raise anything.
                log.warning(
                    "the schema of profile %s raised %s on an answer: fix its validators",
                    self.profile.name,
                    type(error).__name__,
                )
                return None
        return None


def _refuse(reason: FallbackReason) -> JudgedAnswer:
    return JudgedAnswer(None, None, reason)


def _drop_nulls(answer: JsonObject, error: ValidationError) -> bool:
    """Take out the nulls that the schema refused, and say if there were any.

    Models write null for a missing value also where a default or a shorter list would do.
    """
    if error.error_count() > _MAX_ERRORS:
        return False
    refused = [fault["loc"] for fault in error.errors() if fault["input"] is None]
    # Backwards: removing an item of a list moves those after it.
    for path in reversed(refused):
        _drop_null(answer, path)
    return bool(refused)


def _drop_null(answer: JsonObject, path: Sequence[int | str]) -> None:
    holder: Any = None
    key: Any = None
    value: Any = answer
    for step in path:
        inside = range(len(value)) if isinstance(value, list) else value
        # Other steps name an option of a union.
        if isinstance(inside, range | dict) and step in inside:
            holder, key, value = value, step, value[step]
    if holder is not None and value is None:
        del holder[key]


def _read_confidence(value: object) -> float | None:
    """A number from 0 to 1, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        confidence = float(value)
    except ValueError:
        return None
    return confidence if 0 <= confidence <= 1 else None
