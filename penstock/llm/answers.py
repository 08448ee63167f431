"""Whether what a model answered is good enough, and the fields it gave."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ValidationError

from penstock.llm.cleaning import Caps, clean_fields
from penstock.llm.json_objects import JsonObject, read_objects
from penstock.llm.profiles import Profile
from penstock.llm.strict_schema import strict_schema

CONFIDENCE = "confidence"
_MAX_ERRORS = 100

log = logging.getLogger(__name__)


class Reason(StrEnum):
    """Why an answer is not good enough."""

    INVALID_JSON = "invalid_json"
    FAILED_VALIDATION = "failed_validation"
    MISSING_FIELDS = "missing_fields"
    LOW_CONFIDENCE = "low_confidence"


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer's fields; with a reason they are not good enough, without fields not usable."""

    fields: dict[str, Any] | None
    confidence: float | None
    reason: Reason | None


def judge_answer(profile: Profile, content: str | None, caps: Caps, threshold: float) -> Judged:
    """The verdict on an answer; no content is so bad that this raises.

    Of several objects the last that can be used counts: examples and drafts come before the
    answer. If none can, the first tells why.
    """
    judge = _Judge(profile, caps, threshold)
    verdicts = [judge.judge(found) for found in read_objects(content or "")]
    usable = (verdict for verdict in reversed(verdicts) if verdict.fields is not None)
    first = verdicts[0] if verdicts else _refuse(Reason.INVALID_JSON)
    return next(usable, first)


@dataclass(frozen=True, slots=True)
class _Judge:
    """What the objects of one answer are measured by."""

    profile: Profile
    caps: Caps
    threshold: float

    def judge(self, found: JsonObject | None) -> Judged:
        if found is None:
            return _refuse(Reason.INVALID_JSON)
        answer = self._known(self._unwrap(found))
        if (values := self._validate(answer)) is None:
            return _refuse(self._explain(answer))
        fields = clean_fields(self.profile, values, self.caps)
        if self.profile.missing(fields):
            return _refuse(Reason.MISSING_FIELDS)
        fields.pop(CONFIDENCE, None)
        return self._weigh(fields, _read_confidence(answer.get(CONFIDENCE)))

    def _weigh(self, fields: dict[str, Any], confidence: float | None) -> Judged:
        if confidence is None:
            return _refuse(Reason.FAILED_VALIDATION)
        low = confidence < self.threshold
        return Judged(fields, confidence, Reason.LOW_CONFIDENCE if low else None)

    def _explain(self, answer: JsonObject) -> Reason:
        missing = self.profile.missing(answer)
        return Reason.MISSING_FIELDS if missing else Reason.FAILED_VALIDATION

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
                return _dump(self.profile.schema.model_validate(answer))
            except ValidationError as error:
                if not _drop_nulls(answer, error):
                    return None
            except Exception as error:
                # A validator in an own schema may raise anything; the other answers are judged on.
                log.warning(
                    "the schema of profile %s raised %s on an answer: mend its validators",
                    self.profile.name,
                    type(error).__name__,
                )
                return None
        return None


def _refuse(reason: Reason) -> Judged:
    return Judged(None, None, reason)


def _dump(values: BaseModel) -> dict[str, Any]:
    """JSON values only: dates as text, and null for what is no number."""
    dumped: dict[str, Any] = json.loads(values.model_dump_json(), parse_constant=lambda _: None)
    return dumped


def _drop_nulls(answer: JsonObject, error: ValidationError) -> bool:
    """Take out the nulls that the schema refused, and say if there were any.

    Models write null for "nothing said" also where a default or a shorter list would say it.
    """
    if error.error_count() > _MAX_ERRORS:
        return False
    refused = [fault["loc"] for fault in error.errors() if fault["input"] is None]
    # Backwards: taking an item out of a list moves those after it.
    for path in reversed(refused):
        _drop_null(answer, path)
    return bool(refused)


def _drop_null(answer: JsonObject, path: Sequence[int | str]) -> None:
    holder: Any = None
    key: Any = None
    value: Any = answer
    for step in path:
        # Steps that lead nowhere name an option of a union.
        if _leads_on(value, step):
            holder, key, value = value, step, value[step]
    if holder is not None and value is None:
        del holder[key]


def _leads_on(value: Any, step: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value


def _read_confidence(value: object) -> float | None:
    """A number from 0 to 1, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        confidence = float(value)
    except ValueError:
        return None
    return confidence if 0 <= confidence <= 1 else None
