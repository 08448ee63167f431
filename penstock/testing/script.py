"""Which answer each request gets, as a test has set it."""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import format_datetime
from enum import Enum
from typing import Any, Literal, Self

from penstock.testing.answers import ChatRequest, fill_answer

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
    """How an answer is sent, each part of which can go wrong.

    The methods return a changed copy, so they can be chained: `Reply().after(0.2).truncated()`.

    Args:
        latency_seconds: The wait before the first byte.
        body_seconds: How long the body takes after the headers.
        ending: How far the answer gets.
        half_body: Send half of the body as if it were all.
        media_type: The content type to claim.
        headers: Further headers.
    """

    latency_seconds: float = 0.0
    body_seconds: float = 0.0
    ending: Ending = Ending.WHOLE
    half_body: bool = False
    media_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def after(self, seconds: float) -> Self:
        """Wait so many `seconds` before the first byte."""
        return replace(self, latency_seconds=seconds)

    def dribbled(self, seconds: float) -> Self:
        """Send the headers at once, and the body in small pieces that take `seconds` together."""
        return replace(self, body_seconds=seconds)

    def dropped_midway(self) -> Self:
        """Close the connection when half of the announced body is sent."""
        return replace(self, ending=Ending.MIDWAY)

    def truncated(self) -> Self:
        """Send half of the body as if it were all: the envelope is no longer JSON."""
        return replace(self, half_body=True)

    def labelled(self, media_type: str) -> Self:
        """Claim that the content type is `media_type`."""
        return replace(self, media_type=media_type)

    def with_header(self, name: str, value: str) -> Self:
        """Add a header with this `value`, its name spelled as given."""
        return replace(self, headers=(*self.headers, (name, value)))


@dataclass(frozen=True, slots=True)
class Reply(Behaviour):
    """A completion.

    Args:
        content: The message: text, fields to be written as JSON, None for null, or a function of
            the request that returns one of these. By default it fills the requested schema.
        without: Fields that JSON content leaves out.
        confidence: The value of the field `confidence` in JSON content.
        style: How the content is written: bare, in a Markdown fence, with talk around it, or cut
            off before its end.
        finish_reason: As in Groq's answers: `stop`, `length` and so on.
        reasoning: The reasoning that comes with it, and counts as tokens.
        cached_tokens: How many tokens of the prompt count as cached.
    """

    content: Text | Callable[[ChatRequest], Text] = fill_answer
    without: tuple[str, ...] = ()
    confidence: float | None = None
    style: Style = "bare"
    finish_reason: str = "stop"
    reasoning: str | None = None
    cached_tokens: int = 0

    def write_content(self, request: ChatRequest) -> str | None:
        """The text of the message that answers `request`."""
        content = self.content(request) if callable(self.content) else self.content
        if isinstance(content, Mapping):
            fields = {name: value for name, value in content.items() if name not in self.without}
            if self.confidence is not None:
                fields["confidence"] = self.confidence
            content = json.dumps(fields, ensure_ascii=False)
        if content and self.style == "fenced":
            return f"```json\n{content}\n```"
        if content and self.style == "chatty":
            return f"Sure! Here is what I found:\n\n{content}\n\nLet me know if you need more."
        if content and self.style == "cut":
            return content[: len(content) * 2 // 3]
        return content


@dataclass(frozen=True, slots=True)
class Failure(Behaviour):
    """An error in Groq's shape.

    Args:
        status: The HTTP status.
        message: `{model}` in it becomes the requested model.
        type: Groq's kind of error.
        code: Groq's code, such as `model_not_found`.
        details: Further members of the error, such as `failed_generation`.
    """

    status: int
    message: str
    type: str = "invalid_request_error"
    code: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page(Behaviour):
    """Any body at all, as a proxy in between might send it, with an HTTP status."""

    status: int
    body: bytes


Answer = Behaviour | Text | Callable[[ChatRequest], Behaviour | Text]
"""What a script is made of. A function is called on the server's thread: it must not wait."""


def hang() -> Behaviour:
    """Never answer; the connection stays open until one side closes it."""
    return Behaviour(ending=Ending.NEVER)


def drop() -> Behaviour:
    """Close the connection without an answer."""
    return Behaviour(ending=Ending.UNSENT)


def cut_short() -> Behaviour:
    """An answer that reached the limit of tokens before its end."""
    return Reply(style="cut", finish_reason="length")


When = str | Callable[[ChatRequest], bool] | None
"""A part of the user's text, a predicate of the request, or no condition."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Answers for the requests it matches: one after the other, or the same one always."""

    model: str | None
    when: When
    answers: deque[Answer]
    lasting: bool

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Higher goes first: the more specific rule, then the one that will be used up."""
        return (self.when is not None, self.model is not None, not self.lasting)

    def matches(self, request: ChatRequest) -> bool:
        if self.model is not None and self.model != request.model:
            return False
        if isinstance(self.when, str):
            return self.when in request.text
        return self.when is None or self.when(request)


class Script:
    """All rules. Any thread may add one while the server answers."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, rule: Rule) -> None:
        with self._lock:
            # The sort is stable: a new lasting rule is put before its equals, a queue behind.
            self._rules = [rule, *self._rules] if rule.lasting else [*self._rules, rule]
            self._rules.sort(key=lambda each: each.rank, reverse=True)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    @property
    def models(self) -> set[str]:
        with self._lock:
            return {rule.model for rule in self._rules if rule.model is not None}

    def behave(self, request: ChatRequest, default: Answer) -> Behaviour:
        """What the first matching rule says about this request, else the default."""
        with self._lock:
            rules = list(self._rules)
        answer = default
        # A condition is the test's own code: it runs without the lock.
        for rule in rules:
            if rule.answers and rule.matches(request):
                answer = rule.answers[0] if rule.lasting else rule.answers.popleft()
                break
        chosen = answer(request) if callable(answer) else answer
        return chosen if isinstance(chosen, Behaviour) else Reply(chosen)


RetryAfter = int | float | str | datetime | None
"""Seconds, a date (sent as an HTTP date), a header value as it stands, or no header."""

_SERVER_FAULT = "internal_server_error"
_DAILY_TOKENS = 500_000


def json_validate_failed(failed_generation: str = '{"title": "Pump') -> Behaviour:
    """400: the model wrote something that is not the requested JSON: `failed_generation`."""
    message = (
        "Failed to generate JSON. Please adjust your prompt. "
        "See 'failed_generation' for more details."
    )
    details = {"failed_generation": failed_generation}
    return Failure(400, message, code="json_validate_failed", details=details)


def model_decommissioned() -> Behaviour:
    """400: how models were retired earlier."""
    message = (
        "The model `{model}` has been decommissioned and is no longer supported. "
        "Please refer to https://console.groq.com/docs/deprecations for a recommendation "
        "on which model to use instead."
    )
    return Failure(400, message, code="model_decommissioned")


def bad_request(message: str, code: str | None = None) -> Behaviour:
    """400 with this message and Groq's error `code`, if given."""
    return Failure(400, message, code=code)


def invalid_api_key() -> Behaviour:
    """401: the key is not known."""
    return Failure(401, "Invalid API Key", code="invalid_api_key")


def forbidden() -> Behaviour:
    """403: the key may not use the model."""
    message = "The model `{model}` is blocked at the project level."
    return Failure(403, message, "permissions_error", "model_permission_blocked_project")


def model_not_found() -> Behaviour:
    """404: a model that does not exist, or no longer."""
    message = "The model `{model}` does not exist or you do not have access to it."
    return Failure(404, message, code="model_not_found")


def too_large(limit: int = 6000, requested: int = 9000) -> Behaviour:
    """413: one request that is over the limit of tokens all by itself; the message names the
    `limit` and how many tokens were `requested`."""
    message = (
        "Request too large for model `{model}` on tokens per minute (TPM): "
        f"Limit {limit}, Requested {requested}, please reduce your message size and try again."
    )
    return Failure(413, message, "tokens", "rate_limit_exceeded")


def rate_limited(
    retry_after: RetryAfter = None,
    *,
    header: str = "retry-after",
    unit: str = "requests",
    message: str = "Rate limit reached for model `{model}` on requests per minute (RPM).",
) -> Behaviour:
    """429: too many requests or tokens.

    Args:
        retry_after: Seconds, a date, the header's value as it stands, or None for no header.
        header: How the header's name is spelled.
        unit: `requests` or `tokens`, as Groq names what was used up.
        message: `{model}` in it becomes the requested model.
    """
    failure = Failure(429, message, unit, "rate_limit_exceeded")
    if isinstance(retry_after, datetime):
        retry_after = format_datetime(retry_after, usegmt=True)
    return failure if retry_after is None else failure.with_header(header, str(retry_after))


def daily_quota(retry_after: RetryAfter = 4 * 3600) -> Behaviour:
    """429: the tokens of the day are used up, so a retry within minutes is useless; `retry_after`
    as for `rate_limited`."""
    message = (
        "Rate limit reached for model `{model}` on tokens per day (TPD): "
        f"Limit {_DAILY_TOKENS}, Used {_DAILY_TOKENS}, Requested 1200. "
        "Please try again later."
    )
    return rate_limited(retry_after, unit="tokens", message=message)


def capacity_exceeded() -> Behaviour:
    """498: Groq's own status for a flex tier that has no room."""
    return Failure(498, "Flex tier capacity exceeded", _SERVER_FAULT, "capacity_exceeded")


def server_error() -> Behaviour:
    """500: an error of Groq's own."""
    return Failure(500, "Internal Server Error", _SERVER_FAULT)


def bad_gateway() -> Behaviour:
    """502 with a page of HTML, as a proxy sends it."""
    page = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"
    return Page(502, page, media_type="text/html")


def unavailable() -> Behaviour:
    """503: the service is down for a while."""
    return Failure(503, "Service Unavailable", _SERVER_FAULT)
