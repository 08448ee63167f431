"""Requests that Groq does not serve: to a model that is gone, or asking what it cannot do."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.testing.behaviours import Behaviour
from penstock.testing.chat import ChatRequest
from penstock.testing.failures import bad_request, model_not_found


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which models are gone, and which lack something."""

    retired: frozenset[str] = frozenset()
    without_json_schema: frozenset[str] = frozenset()
    without_reasoning_effort: frozenset[str] = frozenset()

    def refuse(self, request: ChatRequest) -> Behaviour | None:
        """Why this request is not served."""
        if request.model in self.retired:
            return model_not_found()
        complaint = self._missing(request) or self._unsupported(request) or _wrong_format(request)
        return bad_request(complaint) if complaint else None

    def _missing(self, request: ChatRequest) -> str | None:
        if not request.body:
            return "the request body is not a JSON object"
        absent = (name for name in ("model", "messages") if not request.body.get(name))
        return next((f"'{name}' : property '{name}' is missing" for name in absent), None)

    def _unsupported(self, request: ChatRequest) -> str | None:
        if request.body.get("stream"):
            return "`stream` is not supported by this stand-in for Groq"
        if request.body.get("reasoning_effort") and request.model in self.without_reasoning_effort:
            return "`reasoning_effort` is not supported with this model"
        if request.response_kind == "json_schema" and request.model in self.without_json_schema:
            return (
                "This model does not support response format `json_schema`. See supported models "
                "at https://console.groq.com/docs/structured-outputs#supported-models"
            )
        return None


def _wrong_format(request: ChatRequest) -> str | None:
    if request.response_kind == "json_object" and not _mentions_json(request):
        return (
            "'messages' must contain the word 'json' in some form, "
            "to use 'response_format' of type 'json_object'."
        )
    if request.response_kind == "json_schema" and request.schema is None:
        return "'response_format.json_schema' : property 'schema' is missing"
    if request.json_schema.get("strict") and request.schema is not None:
        return next(_strict_complaints(request.schema, ""), None)
    return None


def _mentions_json(request: ChatRequest) -> bool:
    return "json" in json.dumps(list(request.messages)).casefold()


def _strict_complaints(schema: Any, path: str) -> Iterator[str]:
    """What strict mode asks of every object: no other fields, and all of its own required."""
    if not isinstance(schema, Mapping):
        return
    start = f"invalid JSON schema for response_format: '{path or '/'}'"
    fields = schema.get("properties", {})
    if "properties" in schema or schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"{start}: `additionalProperties:false` must be set on every object"
        if optional := sorted(set(fields) - set(schema.get("required", []))):
            yield f"{start}: `required` must include every property; missing: {optional}"
    for step, part in _parts(schema):
        yield from _strict_complaints(part, f"{path}/{step}")


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in ("properties", "$defs", "definitions"):
        for name, part in schema.get(keyword, {}).items():
            yield f"{keyword}/{name}", part
    for keyword in ("anyOf", "oneOf", "allOf"):
        for number, part in enumerate(schema.get(keyword, [])):
            yield f"{keyword}/{number}", part
    yield "items", schema.get("items")
