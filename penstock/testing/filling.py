"""Answers to any JSON schema: plausible values made from the user's own words, always the same.

All of what strict mode allows is followed; of the keywords beyond it, `pattern` is not.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from penstock.testing.chat import ChatRequest

CONFIDENCE = 0.9
_WORD = re.compile(r"[^\W_][\w+#’'-]{0,29}")
_WORDS_FROM_CHARS = 600
_PHRASE_WORDS = 3
_LIST_ITEMS = 2
# A schema may contain itself; below this an answer takes every way out that it is offered.
_DEEP = 8
_FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "P3D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/page",
    "uuid": "0d2f5a3e-6a52-4d0f-9d35-0a4d0c2b6f11",
}

Schema = Mapping[str, Any]


def fill_answer(request: ChatRequest) -> str | Mapping[str, Any]:
    """Fields for the request's schema, a small object in JSON mode, a sentence otherwise."""
    filler = SchemaFiller(request.schema or {}, _words_of(request.text))
    if request.schema is not None:
        value = filler.fill(request.schema, "answer")
        return value if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
    if request.response_kind.startswith("json"):
        return {"answer": filler.phrase("answer"), "confidence": CONFIDENCE}
    return f"This is about {filler.phrase('answer')}."


@dataclass(frozen=True, slots=True)
class SchemaFiller:
    """Fills the parts of one schema; `path` is where the value goes, and decides which it is."""

    root: Schema
    words: Sequence[str]

    def fill(self, schema: Any, path: str) -> Any:
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if choices := schema.get("enum"):
            return _pick([choice for choice in choices if choice is not None] or choices, path)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.fill(self._choose(options, path), path)
        return self._fill_kind(_kind_of(schema, path), schema, path)

    def phrase(self, path: str) -> str:
        """A few of the user's words."""
        start = crc32(path.encode()) % len(self.words)
        return " ".join(self.words[start : start + _PHRASE_WORDS])

    def _fill_kind(self, kind: str, schema: Schema, path: str) -> Any:
        match kind:
            case "object":
                return self._fill_object(schema, path)
            case "array":
                return self._fill_array(schema, path)
            case "number" | "integer":
                return _fill_number(schema, path, whole=kind == "integer")
            case "boolean":
                return crc32(path.encode()) % 2 == 0
            case "null":
                return None
        return self._fill_string(schema, path)

    def _fill_object(self, schema: Schema, path: str) -> dict[str, Any]:
        fields: Schema = schema.get("properties", {})
        names = schema.get("required", []) if _is_deep(path) else fields
        return {name: self.fill(fields.get(name, {}), f"{path}.{name}") for name in names}

    def _fill_array(self, schema: Schema, path: str) -> list[Any]:
        least = schema.get("minItems", 0)
        wanted = least if _is_deep(path) else max(least, _LIST_ITEMS)
        wanted = min(wanted, schema.get("maxItems", wanted))
        values: list[Any] = []
        # Few words or a short enumeration repeat themselves; a list should not.
        for number in range(wanted * 8):
            value = self.fill(schema.get("items", {}), f"{path}.{number}")
            if value not in values:
                values.append(value)
            if len(values) == wanted:
                break
        missing = range(len(values), least)
        return values + [self.fill(schema.get("items", {}), f"{path}.{n}") for n in missing]

    def _fill_string(self, schema: Schema, path: str) -> str:
        text = _FORMATS.get(schema.get("format", "")) or self.phrase(path)
        least = schema.get("minLength", 0)
        text = text if len(text) >= least else f"{text} " * math.ceil(least / len(text))
        return text[: schema.get("maxLength", len(text))]

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """The schema with its references and its `allOf` put in place."""
        if not isinstance(schema, dict):
            return {}
        if "$ref" not in schema and "allOf" not in schema:
            return schema
        resolved = dict(schema)
        while "$ref" in resolved:
            resolved = {**self._find(resolved.pop("$ref")), **resolved}
        for part in resolved.pop("allOf", []):
            other = self._resolve(part)
            fields = {**resolved.get("properties", {}), **other.get("properties", {})}
            resolved = {**resolved, **other, **({"properties": fields} if fields else {})}
        return resolved

    def _find(self, reference: str) -> Schema:
        found: Any = self.root
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")] if step else found
        return dict(found)

    def _choose(self, options: Sequence[Any], path: str) -> Any:
        kinds = [self._resolve(option).get("type") for option in options]
        if _is_deep(path) and "null" in kinds:
            return options[kinds.index("null")]
        return next(
            (o for o, kind in zip(options, kinds, strict=True) if kind != "null"), options[0]
        )


def _words_of(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text[:_WORDS_FROM_CHARS])) or ("nothing", "much")


def _pick(choices: Sequence[Any], path: str) -> Any:
    return choices[crc32(path.encode()) % len(choices)]


def _is_deep(path: str) -> bool:
    return path.count(".") >= _DEEP


def _kind_of(schema: Schema, path: str) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        wanted = "null" if _is_deep(path) and "null" in kinds else None
        return wanted or next((str(kind) for kind in kinds if kind != "null"), "null")
    guess = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kinds or guess)


def _fill_number(schema: Schema, path: str, *, whole: bool) -> int | float:
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    if path.endswith(".confidence") and not whole and low <= CONFIDENCE <= high:
        return CONFIDENCE
    step = schema.get("multipleOf") or (1 if whole else 0.5)
    steps = _clamp_steps(schema, 1 + crc32(path.encode()) % 9, step)
    value = (low + high) / 2 if steps is None else round(steps * step, 9)
    return math.trunc(value) if whole else value


def _clamp_steps(schema: Schema, steps: int, step: float) -> int | None:
    """So many steps from zero, or the nearest number of them inside the bounds, if there is one."""
    least = [math.ceil(schema["minimum"] / step)] if "minimum" in schema else []
    if "exclusiveMinimum" in schema:
        least.append(math.floor(schema["exclusiveMinimum"] / step) + 1)
    most = [math.floor(schema["maximum"] / step)] if "maximum" in schema else []
    if "exclusiveMaximum" in schema:
        most.append(math.ceil(schema["exclusiveMaximum"] / step) - 1)
    clamped = min([max([steps, *least]), *most])
    return clamped if clamped >= max(least, default=clamped) else None
