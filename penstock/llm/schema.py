"""A pydantic model's JSON schema in the small dialect of strict mode.

Every field is required and what was optional may be null; objects take no other fields; what the
dialect cannot express (a limit, a pattern, a format) is put into the description.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_NULL: Schema = {"type": "null"}
_KEPT = ("$ref", "type", "enum")
_NOTES = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters or fewer",
    "minItems": "{} items or more",
    "maxItems": "{} items or fewer",
    "pattern": "matching the regular expression {}",
    "format": "as {}",
    "examples": "for example {}",
}


@cache
def strict_schema(model: type[BaseModel]) -> Schema:
    """The schema to send, made once per model."""
    schema = model.model_json_schema()
    shared = schema.get("$defs", {})
    # A model that contains itself has its own fields among the shared ones.
    root = shared[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    strict = _restate(root)
    if shared:
        strict["$defs"] = {name: _restate(part) for name, part in shared.items()}
    return strict


@cache
def fits_strict_mode(model: type[BaseModel]) -> bool:
    """False with a field of free keys (`dict[str, int]`) or any type: JSON mode is used then."""
    parts = _parts(strict_schema(model))
    return all(_is_typed(part) and not part.get("additionalProperties") for part in parts)


def _restate(schema: Mapping[str, Any]) -> Schema:
    restated: Schema = {name: schema[name] for name in _KEPT if name in schema}
    if "const" in schema:
        restated["enum"] = [schema["const"]]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        restated["anyOf"] = [_restate(option) for option in options]
    if schema.get("type") == "array":
        places = schema.get("prefixItems")
        options = [_restate(place) for place in places or ()]
        restated["items"] = {"anyOf": options} if places else _restate(schema.get("items", {}))
    if schema.get("type") == "object":
        restated |= _restate_object(schema)
    return _describe(restated, schema)


def _restate_object(schema: Mapping[str, Any]) -> Schema:
    free = schema.get("additionalProperties")
    if "properties" not in schema and free:
        return {"additionalProperties": _restate(free) if isinstance(free, Mapping) else True}
    fields: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    return {
        "properties": {
            name: _restate(field) if name in required else _allow_null(_restate(field))
            for name, field in fields.items()
        },
        "required": list(fields),
        "additionalProperties": False,
    }


def _allow_null(schema: Schema) -> Schema:
    """An optional field; a list needs no null, since it can be empty."""
    options = schema.get("anyOf", [])
    if schema.get("type") == "array" or _NULL in options or not _is_typed(schema):
        return schema
    outer = {"description": schema["description"]} if "description" in schema else {}
    if options:
        return {"anyOf": [*options, _NULL], **outer}
    inner = {name: value for name, value in schema.items() if name != "description"}
    return {"anyOf": [inner, _NULL], **outer}


def _describe(restated: Schema, schema: Mapping[str, Any]) -> Schema:
    values = {name: schema[name] for name in _NOTES if name in schema}
    notes = "; ".join(
        _NOTES[name].format(", ".join(map(str, value)) if isinstance(value, list) else value)
        for name, value in values.items()
    )
    sentences = (str(schema.get("description", "")).strip(), notes and f"({notes})")
    if not any(sentences):
        return restated
    if "$ref" in restated:
        # A reference stands alone in this dialect.
        restated = {"anyOf": [restated]}
    return {**restated, "description": " ".join(part for part in sentences if part)}


def _parts(schema: Schema) -> Iterator[Schema]:
    yield schema
    below = [*schema.get("anyOf", []), *schema.get("properties", {}).values()]
    below += [*schema.get("$defs", {}).values(), *([schema["items"]] if "items" in schema else [])]
    for part in below:
        yield from _parts(part)


def _is_typed(schema: Schema) -> bool:
    return any(name in schema for name in (*_KEPT, "anyOf"))
