"""A stand-in for Groq: a real HTTP server on loopback that answers as a test has set it, keeps rate
limits, and refuses what Groq refuses."""

import itertools
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.testing.answers import ChatRequest, estimate_tokens, fill_answer, read_chat_request
from penstock.testing.http_server import HttpServer, ServerResponse
from penstock.testing.script import (
    Answer,
    Behaviour,
    Ending,
    Failure,
    Page,
    Reply,
    Rule,
    Script,
    When,
    bad_request,
    invalid_api_key,
    model_not_found,
    rate_limited,
    too_large,
)

log = logging.getLogger(__name__)

PREFIXES = ("/openai/v1", "/v1")
DEFAULT_MODELS = frozenset({"openai/gpt-oss-20b", "openai/gpt-oss-120b"})
_PROMPT_TOKENS_PER_SECOND = 20_000
_COMPLETION_TOKENS_PER_SECOND = 1_000
_QUEUE_SECONDS = 0.01
_PLENTY = 100_000_000
# Rounding must not refuse a client that waited exactly as long as required.
_TOLERANCE = 1e-6

Headers = tuple[tuple[str, str], ...]


class GroqServer(HttpServer):
    """A stand-in for Groq on a free port; the official client talks to it unchanged.

    Of several rules for a request, one with `when` goes before one without, one for a model
    before one for any (`None`), a script that is not used up before `always`.

    Args:
        answer: What requests without a rule get: text, fields to be written as JSON, a behaviour,
            or a function of the request that returns one of these. By default it fills the
            requested schema with words of the document.
        api_key: The only key that is accepted, all others get 401; None accepts any.
        retired: Models that get 404, as those that Groq has shut down.
        without_json_schema: Models that refuse the response format `json_schema`.
        without_reasoning_effort: Models that refuse `reasoning_effort`.

    Example:
        with GroqServer() as server:
            server.script("openai/gpt-oss-20b", [rate_limited(retry_after=2), Reply()])
            server.always("openai/gpt-oss-120b", unavailable(), when="Berlin")
            client = Groq(api_key="any", base_url=server.base_url, max_retries=0)
    """

    def __init__(
        self,
        answer: Answer = fill_answer,
        *,
        api_key: str | None = None,
        retired: Iterable[str] = (),
        without_json_schema: Iterable[str] = (),
        without_reasoning_effort: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self._default = answer
        self._authorization = None if api_key is None else f"Bearer {api_key}"
        self._retired = frozenset(retired)
        self._without_json_schema = frozenset(without_json_schema)
        self._without_reasoning_effort = frozenset(without_reasoning_effort)
        self._script = Script()
        self._limits = Limits()
        self._requests: list[ChatRequest] = []
        self._numbers = itertools.count(1)

    @property
    def openai_url(self) -> str:
        """For clients of OpenAI-compatible servers."""
        return self.base_url + PREFIXES[0]

    def script(self, model: str | None, answers: Iterable[Answer], *, when: When = None) -> None:
        """Give these answers, once each and in order; after the last one the rule is gone.

        Args:
            model: Only to requests for this model; None: to all.
            answers: What `answer` of the server may be.
            when: Only to requests whose text holds this, or that this function accepts.
        """
        self._script.add(Rule(model, when, deque(answers), lasting=False))

    def always(self, model: str | None, answer: Answer, *, when: When = None) -> None:
        """Give this `answer` every time, until another `always` for the same requests; `model` and
        `when` as for `script`."""
        self._script.add(Rule(model, when, deque([answer]), lasting=True))

    def limit_requests(self, per_second: float, burst: int | None = None) -> None:
        """Refuse what comes faster, with 429 and a true Retry-After.

        Args:
            per_second: Requests a second, over time.
            burst: How many may come at once after a pause; None: what one second allows.
        """
        self._limits.requests = Bucket(per_second, burst or max(1.0, per_second))

    def limit_tokens(self, per_minute: int) -> None:
        """The same for tokens of prompts and answers, `per_minute`; a prompt over the whole limit
        gets 413."""
        self._limits.tokens = Bucket(per_minute / 60, per_minute)

    @property
    def requests(self) -> list[ChatRequest]:
        """All chat requests so far, in the order they came."""
        return list(self._requests)

    def count(self, model: str | None = None, status: int | None = None) -> int:
        """How many requests there were, of that model and answered with that status if given."""
        return sum(
            model in (None, request.model) and status in (None, request.status)
            for request in self.requests
        )

    def reset(self) -> None:
        """Forget all requests, rules and limits. Requests that wait go on waiting."""
        self._requests.clear()
        self._reset_peak()
        self._script.clear()
        self._limits.requests = None
        self._limits.tokens = None

    def _respond(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> ServerResponse:
        request = read_chat_request(body, headers, time.monotonic())
        prefix, _, name = path.rpartition("/v1/")
        endpoint = (method, name) if f"{prefix}/v1" in PREFIXES else None
        if endpoint == ("POST", "chat/completions"):
            return self._complete_chat(request)
        if endpoint != ("GET", "models"):
            message = f"Unknown request URL: {method} {path}."
            return self._write(Failure(404, message, code="unknown_url"), request)
        if not self._accepts_key(request):
            return self._write(invalid_api_key(), request)
        models = [
            {"id": model, "object": "model", "created": 1_700_000_000, "owned_by": "Groq"}
            for model in sorted((DEFAULT_MODELS | self._script.models) - self._retired)
        ]
        return self._write(Page(200, _encode({"object": "list", "data": models})), request)

    def _complete_chat(self, request: ChatRequest) -> ServerResponse:
        try:
            behaviour = self._refuse(request) or self._script.behave(request, self._default)
            response = self._write(behaviour, request)
        except Exception as error:
            log.error("the scripted answer failed", exc_info=error)
            message = f"the scripted answer raised {type(error).__name__}: {error}"
            response = self._write(Failure(500, message, "internal_server_error"), request)
        unsent = response.behaviour.ending in (Ending.UNSENT, Ending.NEVER)
        self._requests.append(replace(request, status=None if unsent else response.status))
        return response

    def _accepts_key(self, request: ChatRequest) -> bool:
        return self._authorization in (None, request.headers.get("authorization"))

    def _refuse(self, request: ChatRequest) -> Behaviour | None:
        """Why this request is not served; one that is served is charged to the limits."""
        if not self._accepts_key(request):
            return invalid_api_key()
        if request.model in self._retired:
            return model_not_found()
        error = _missing(request) or self._unsupported(request) or _wrong_format(request)
        return bad_request(error) if error else self._limits.refuse(request.prompt_tokens)

    def _unsupported(self, request: ChatRequest) -> str | None:
        if request.body.get("stream"):
            return "`stream` is not supported by this stand-in for Groq"
        if request.body.get("reasoning_effort") and request.model in self._without_reasoning_effort:
            return "`reasoning_effort` is not supported with this model"
        if request.response_kind == "json_schema" and request.model in self._without_json_schema:
            return (
                "This model does not support response format `json_schema`. See supported models "
                "at https://console.groq.com/docs/structured-outputs#supported-models"
            )
        return None

    def _write(self, behaviour: Behaviour, request: ChatRequest) -> ServerResponse:
        status, body = 200, b""
        if isinstance(behaviour, Reply):
            body = self._write_completion(request, behaviour)
        elif isinstance(behaviour, Failure):
            message = behaviour.message.replace("{model}", request.model)
            code = {} if behaviour.code is None else {"code": behaviour.code}
            error = {"message": message, "type": behaviour.type, **code, **behaviour.details}
            status, body = behaviour.status, _encode({"error": error})
        elif isinstance(behaviour, Page):
            status, body = behaviour.status, behaviour.body
        media_type = behaviour.media_type or "application/json"
        headers = (("content-type", media_type), *self._limits.headers, *behaviour.headers)
        sent = body[: len(body) // 2] if behaviour.half_body else body
        return ServerResponse(status, headers, sent, behaviour)

    def _write_completion(self, request: ChatRequest, reply: Reply) -> bytes:
        number = next(self._numbers)
        content = reply.write_content(request)
        prompt = request.prompt_tokens
        reasoning = estimate_tokens(reply.reasoning or "")
        completion = estimate_tokens(content or "") + reasoning
        self._limits.charge_tokens(completion)
        message = {"role": "assistant", "content": content}
        if reply.reasoning is not None:
            message["reasoning"] = reply.reasoning
        choice = {"index": 0, "message": message, "logprobs": None}
        prompt_seconds = prompt / _PROMPT_TOKENS_PER_SECOND
        completion_seconds = completion / _COMPLETION_TOKENS_PER_SECOND
        usage = {
            "queue_time": _QUEUE_SECONDS,
            "prompt_tokens": prompt,
            "prompt_time": prompt_seconds,
            "completion_tokens": completion,
            "completion_time": completion_seconds,
            "total_tokens": prompt + completion,
            "total_time": prompt_seconds + completion_seconds,
            "prompt_tokens_details": {"cached_tokens": min(reply.cached_tokens, prompt)},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        return _encode(
            {
                "id": f"chatcmpl-{number:032x}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": request.model,
                "choices": [{**choice, "finish_reason": reply.finish_reason}],
                "usage": usage,
                "system_fingerprint": "fp_0000000000",
                "x_groq": {"id": f"req_{number:026x}"},
            }
        )


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _missing(request: ChatRequest) -> str | None:
    if not request.body:
        return "the request body is not a JSON object"
    absent = (name for name in ("model", "messages") if not request.body.get(name))
    return next((f"'{name}' : property '{name}' is missing" for name in absent), None)


def _wrong_format(request: ChatRequest) -> str | None:
    kind, messages = request.response_kind, list(request.messages)
    if kind == "json_object" and "json" not in json.dumps(messages).casefold():
        return (
            "'messages' must contain the word 'json' in some form, "
            "to use 'response_format' of type 'json_object'."
        )
    if request.response_kind == "json_schema" and request.schema is None:
        return "'response_format.json_schema' : property 'schema' is missing"
    if request.json_schema.get("strict") and request.schema is not None:
        return next(_strict_errors(request.schema, ""), None)
    return None


def _strict_errors(schema: Any, path: str) -> Iterator[str]:
    """What strict mode requires of every object: no other fields, and all of its own required."""
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
        yield from _strict_errors(part, f"{path}/{step}")


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in ("properties", "$defs", "definitions"):
        for name, part in schema.get(keyword, {}).items():
            yield f"{keyword}/{name}", part
    for keyword in ("anyOf", "oneOf", "allOf"):
        for number, part in enumerate(schema.get(keyword, [])):
            yield f"{keyword}/{number}", part
    yield "items", schema.get("items")


class Bucket:
    """A token bucket. Answers are charged afterwards, so its level may be negative."""

    def __init__(
        self, per_second: float, capacity: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_second = per_second
        self.capacity = capacity
        self._clock = clock
        self._level = capacity
        self._filled_at = clock()

    @property
    def level(self) -> float:
        now = self._clock()
        gained = (now - self._filled_at) * self.per_second
        self._level = min(self.capacity, self._level + gained)
        self._filled_at = now
        return self._level

    @property
    def full_in_seconds(self) -> float:
        return (self.capacity - self.level) / self.per_second

    def wait_seconds(self, amount: float) -> float:
        """How long until so much can be spent; 0 when it can be now."""
        missing = amount - self.level
        return missing / self.per_second if missing > _TOLERANCE else 0.0

    def spend(self, amount: float) -> None:
        self._level = self.level - amount


class Limits:
    """The limits of one key. Only the server's thread spends; tests set new buckets."""

    def __init__(self) -> None:
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None

    def refuse(self, tokens: int) -> Behaviour | None:
        """The refusal of a request of that size; an accepted one is charged."""
        if self.tokens and tokens > self.tokens.capacity:
            return too_large(int(self.tokens.capacity), tokens)
        if wait := self.requests.wait_seconds(1) if self.requests else 0.0:
            return _refusal("requests per minute (RPM)", "requests", wait)
        if wait := self.tokens.wait_seconds(tokens) if self.tokens else 0.0:
            return _refusal("tokens per minute (TPM)", "tokens", wait)
        if self.requests:
            self.requests.spend(1)
        self.charge_tokens(tokens)
        return None

    def charge_tokens(self, tokens: int) -> None:
        """Spend what an answer turned out to cost."""
        if self.tokens:
            self.tokens.spend(tokens)

    @property
    def headers(self) -> Headers:
        return _headers("requests", self.requests) + _headers("tokens", self.tokens)


def format_duration(seconds: float) -> str:
    """As Groq writes durations: 285ms, 7.66s, 2m59.56s, 1h0m5s."""
    if 0 < seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds * 100) / 100, 60)
    hours, minutes = divmod(int(minutes), 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{larger}{round(rest, 2):g}s"


def _refusal(limit: str, unit: str, wait_seconds: float) -> Behaviour:
    wait = f"{math.ceil(wait_seconds * 1000) / 1000:g}"
    message = (
        f"Rate limit reached for model `{{model}}` on {limit}. "
        f"Please try again in {format_duration(wait_seconds)}."
    )
    return rate_limited(wait, unit=unit, message=message)


def _headers(unit: str, bucket: Bucket | None) -> Headers:
    limit = bucket.capacity if bucket else _PLENTY
    level = bucket.level if bucket else _PLENTY
    reset = format_duration(bucket.full_in_seconds) if bucket else "0s"
    return (
        (f"x-ratelimit-limit-{unit}", str(int(limit))),
        (f"x-ratelimit-remaining-{unit}", str(max(0, int(level)))),
        (f"x-ratelimit-reset-{unit}", reset),
    )
