"""How the stand-in answers one request: with a completion, an error, any page, or silence."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, Self

from penstock.testing.chat import ChatRequest
from penstock.testing.filling import fill_answer

Text = str | Mapping[str, Any] | None
"""A message's content: as it stands, to be written as JSON, or null."""
Style = Literal["bare", "fenced", "chatty", "cut"]


class Ending(Enum):
    """How far an answer gets."""

    WHOLE = "whole"
    MIDWAY = "the connection closes in the middle of the body"
    UNSENT = "the connection closes before the first byte"
    NEVER = "nothing comes, and the connection stays open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What all behaviours have: a way for the answer to travel, each part of which can go wrong.

    The methods give a changed copy, so they can be chained: `Reply().after(0.2).truncated()`.
    """

    latency_seconds: float = 0.0
    body_seconds: float = 0.0
    ending: Ending = Ending.WHOLE
    half_body: bool = False
    media_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def after(self, seconds: float) -> Self:
        """Wait before the first byte."""
        return replace(self, latency_seconds=seconds)

    def dribbled(self, seconds: float) -> Self:
        """Send the headers at once and the body in small pieces."""
        return replace(self, body_seconds=seconds)

    def dropped_midway(self) -> Self:
        """Close the connection when half of the announced body is sent."""
        return replace(self, ending=Ending.MIDWAY)

    def truncated(self) -> Self:
        """Send half of the body as if it were all: the envelope is no longer JSON."""
        return replace(self, half_body=True)

    def labelled(self, media_type: str) -> Self:
        """Claim another content type."""
        return replace(self, media_type=media_type)

    def with_header(self, name: str, value: str) -> Self:
        """Add a header, its name spelled as given."""
        return replace(self, headers=(*self.headers, (name, value)))


@dataclass(frozen=True, slots=True)
class Reply(Behaviour):
    """A completion. Without `content` it fills the schema that the request asks for.

    `without` and `confidence` change the fields of JSON content; `style` is how it is written:
    bare, in a Markdown fence, with talk around it, or cut off before its end.
    """

    content: Text | Callable[[ChatRequest], Text] = fill_answer
    without: tuple[str, ...] = ()
    confidence: float | None = None
    style: Style = "bare"
    finish_reason: str = "stop"
    reasoning: str | None = None
    cached_tokens: int = 0

    def write_content(self, request: ChatRequest) -> str | None:
        """The text of the message."""
        content = self.content(request) if callable(self.content) else self.content
        if isinstance(content, Mapping):
            content = json.dumps(self._edit(content), ensure_ascii=False)
        return _dress(content, self.style) if content else content

    def _edit(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in fields.items() if name not in self.without}
        return kept if self.confidence is None else {**kept, "confidence": self.confidence}


@dataclass(frozen=True, slots=True)
class Failure(Behaviour):
    """An error in Groq's shape. `{model}` in the message becomes the model asked for."""

    status: int
    message: str
    type: str = "invalid_request_error"
    code: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the error, such as `failed_generation`."""


@dataclass(frozen=True, slots=True)
class Page(Behaviour):
    """Any body at all, as a proxy in between might send it."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Silence(Behaviour):
    """No answer."""


Answer = Behaviour | Text | Callable[[ChatRequest], Behaviour | Text]
"""What a script is made of. A function is called on the server's thread: it must not wait."""


def hang() -> Behaviour:
    """Never answer; the connection stays open until somebody closes it."""
    return Silence(ending=Ending.NEVER)


def drop() -> Behaviour:
    """Close the connection without an answer."""
    return Silence(ending=Ending.UNSENT)


def cut_short() -> Behaviour:
    """An answer that met the limit of tokens before its end."""
    return Reply(style="cut", finish_reason="length")


def settle_answer(answer: Answer, request: ChatRequest) -> Behaviour:
    """The behaviour that an answer means for this request."""
    chosen = answer(request) if callable(answer) else answer
    return chosen if isinstance(chosen, Behaviour) else Reply(chosen)


def _dress(text: str, style: Style) -> str:
    match style:
        case "bare":
            return text
        case "fenced":
            return f"```json\n{text}\n```"
        case "chatty":
            return f"Sure! Here is what I found:\n\n{text}\n\nLet me know if you need more."
        case "cut":
            return text[: len(text) * 2 // 3]
