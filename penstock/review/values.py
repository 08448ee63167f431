"""The values that people give to fields, as the schema of the profile takes them."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from penstock.errors import UsageError
from penstock.llm.answers import UNCAPPED, clean_fields
from penstock.llm.profiles import Profile
from penstock.store.columns import storable

_EMPTY: tuple[Any, ...] = (None, "", [])


def check_values(profile: Profile, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a node of this profile shows them; UsageError says which one cannot be used,
    and what is expected."""
    if not given:
        raise UsageError("no value is given: name a field and its value")
    for name in given:
        if name not in profile.field_names:
            raise UsageError(
                f"the profile {profile.name} has no field {name!r}: "
                f"use {', '.join(profile.field_names)}"
            )
    return {name: _check_value(profile, name, storable(value)) for name, value in given.items()}


def _check_value(profile: Profile, name: str, value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        value = None
    if value is None and _types(profile, name) == {"array"}:
        value = []
    try:
        read = _alone(profile, name).model_validate({name: value})
    except ValidationError as error:
        raise _refuse(profile, name, value, error.errors()[0]["msg"]) from None
    cleaned = clean_fields(profile, {name: json.loads(read.model_dump_json())[name]}, UNCAPPED)
    if cleaned[name] in _EMPTY and value not in _EMPTY:
        raise _refuse(profile, name, value, "nothing usable is in it")
    return cleaned[name]


def _refuse(profile: Profile, name: str, value: Any, why: str) -> UsageError:
    types = " or ".join(sorted(_types(profile, name)))
    described = profile.schema.model_fields[name].description
    return UsageError(
        f"{name} cannot be {json.dumps(value, ensure_ascii=False)} ({why}): give {types}"
        + (f". {described}" if described else "")
    )


def parse_value(profile: Profile, name: str, text: str) -> Any:
    """What a person typed: one item a line for a list, JSON for any type; nothing empties the
    field."""
    if name not in profile.field_names:
        return text
    text, types = text.strip(), _types(profile, name)
    if "array" in types and not text.startswith("["):
        return [_read(line.strip(), types) for line in text.splitlines() if line.strip()]
    return _read(text, types) if text else None


def write_value(value: Any) -> str:
    """The text that `parse_value` reads as this value."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def is_list(profile: Profile, name: str) -> bool:
    return "array" in _types(profile, name)


def _read(text: str, types: set[str]) -> Any:
    if types <= {"string", "null"} or ("array" in types and text[:1] not in "[{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _alone(profile: Profile, name: str) -> type[BaseModel]:
    """A schema with this field and no other."""
    field = profile.schema.model_fields[name]
    fields: dict[str, Any] = {name: (field.annotation, field)}
    return create_model(profile.schema.__name__, **fields)


def _types(profile: Profile, name: str) -> set[str]:
    """As JSON has them."""
    schema = _alone(profile, name).model_json_schema()["properties"][name]
    return {str(one.get("type", "object")) for one in schema.get("anyOf", [schema])}
