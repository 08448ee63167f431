"""What a client asked: one chat-completions request, as it was received and answered."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_CHARS_PER_TOKEN = 4


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
        """What the user says, all messages of that role together."""
        spoken = (message for message in self.messages if message.get("role") == "user")
        return "\n".join(part for message in spoken for part in _parts(message))

    @property
    def prompt_tokens(self) -> int:
        return estimate_tokens(
            "".join(part for message in self.messages for part in _parts(message))
        )

    @property
    def response_kind(self) -> str:
        """text, json_object or json_schema."""
        return str(_mapping(self.body.get("response_format")).get("type", "text"))

    @property
    def json_schema(self) -> Mapping[str, Any]:
        """The wanted schema with its name and strictness; empty when none was given."""
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
