"""Requests as they were received, and answers to any JSON schema."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

_CHARS_PER_TOKEN = 4
CONFIDENCE = 0.9
_WORD = re.compile(r"[^\W_][\w+#’'-]{0,29}")
_WORDS_FROM_CHARS = 600
_PHRASE_WORDS = 3
_LIST_ITEMS = 2
# A schema may contain itself; below this depth everything optional is left out.
_DEEP = 8
# Stands for a bound that a schema does not have.
_FAR = 1e200
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


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request. `status` is what was answered, or None when no status line is ever sent."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    body: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    """By lower-case name; not shown, since a key is among them."""
    at: float
    """When it was complete, in seconds of the monotonic clock."""
    status: int | None = None

    @property
    def text(self) -> str:
        """All messages of the user."""
        own = (message for message in self.messages if message.get("role") == "user")
        return "\n".join(part for message in own for part in _parts(message))

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens the messages have."""
        return estimate_tokens(
            "".join(part for message in self.messages for part in _parts(message))
        )

    @property
    def response_kind(self) -> str:
        """text, json_object or json_schema."""
        return str(_mapping(self.body.get("response_format")).get("type", "text"))

    @property
    def json_schema(self) -> Mapping[str, Any]:
        """The requested schema with its name and strictness; empty when none was given."""
        return _mapping(_mapping(self.body.get("response_format")).get("json_schema"))

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that the answer has to follow."""
        return _mapping(self.json_schema.get("schema")) or None


def estimate_tokens(text: str) -> int:
    """A count that is about right for English and the same at every run."""
    return -(-len(text) // _CHARS_PER_TOKEN)


def read_chat_request(body: bytes, headers: Mapping[str, str], at: float) -> ChatRequest:
    """The request, with an empty body when it is no JSON object."""
    try:
        fields = _mapping(json.loads(body))
    except ValueError:
        fields = {}
    messages = fields.get("messages")
    listed = messages if isinstance(messages, list) else []
    return ChatRequest(
        model=str(fields.get("model") or ""),
        messages=tuple(_mapping(message) for message in listed),
        body=fields,
        headers=headers,
        at=at,
    )


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (str(_mapping(part).get("text", "")) for part in content)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def fill_answer(request: ChatRequest) -> str | Mapping[str, Any]:
    """Fields for the requested schema, a small object in JSON mode, a sentence otherwise."""
    # Of the longest line, which is part of the document: what it does not say would be doubted.
    longest = max(request.text.split("\n"), key=len)
    words = tuple(_WORD.findall(longest[:_WORDS_FROM_CHARS])) or ("nothing", "much")
    filler = SchemaFiller(request.schema or {}, words)
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
            choices = [choice for choice in choices if choice is not None] or choices
            return choices[crc32(path.encode()) % len(choices)]
        kind = schema.get("type")
        kinds = [{**schema, "type": one} for one in kind] if isinstance(kind, list) else None
        if options := schema.get("anyOf") or schema.get("oneOf") or kinds:
            return self.fill(self._choose(options, path), path)
        guess = "object" if "properties" in schema else "array" if "items" in schema else "string"
        match kind or guess:
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
        text = _FORMATS.get(schema.get("format", "")) or self.phrase(path)
        least = schema.get("minLength", 0)
        text = text if len(text) >= least else f"{text} " * math.ceil(least / len(text))
        return text[: schema.get("maxLength", len(text))]

    def phrase(self, path: str) -> str:
        """A few of the user's words."""
        start = crc32(path.encode()) % len(self.words)
        return " ".join(self.words[start : start + _PHRASE_WORDS])

    def _fill_object(self, schema: Schema, path: str) -> dict[str, Any]:
        fields: Schema = schema.get("properties", {})
        names = schema.get("required", []) if _is_deep(path) else fields
        return {name: self.fill(fields.get(name, {}), f"{path}.{name}") for name in names}

    def _fill_array(self, schema: Schema, path: str) -> list[Any]:
        least = schema.get("minItems", 0)
        wanted = least if _is_deep(path) else max(least, _LIST_ITEMS)
        wanted = min(wanted, schema.get("maxItems", wanted))
        values: list[Any] = []
        # Few words or a short enumeration may give the same value again; a list should not.
        for number in range(wanted * 8):
            value = self.fill(schema.get("items", {}), f"{path}.{number}")
            if value not in values:
                values.append(value)
            if len(values) == wanted:
                break
        missing = range(len(values), least)
        return values + [self.fill(schema.get("items", {}), f"{path}.{n}") for n in missing]

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


def _is_deep(path: str) -> bool:
    return path.count(".") >= _DEEP


def _fill_number(schema: Schema, path: str, *, whole: bool) -> int | float:
    least, above = schema.get("minimum", -_FAR), schema.get("exclusiveMinimum", -_FAR)
    most, below = schema.get("maximum", _FAR), schema.get("exclusiveMaximum", _FAR)
    low, high = max(least, above), min(most, below)
    if path.endswith(".confidence") and not whole and low <= CONFIDENCE <= high:
        return CONFIDENCE
    step = schema.get("multipleOf") or (1 if whole else 0.5)
    # Some steps from zero, or the nearest number of them inside the bounds, if there is one.
    first = max(math.ceil(least / step), math.floor(above / step) + 1)
    last = min(math.floor(most / step), math.ceil(below / step) - 1)
    steps = min(max(1 + crc32(path.encode()) % 9, first), last)
    value: float = (low + high) / 2 if steps < first else round(steps * step, 9)
    return math.trunc(value) if whole else value
