"""One call to one model: rate limited, timed, with errors mapped to our own.

ModelError
├── ModelNotFound      the endpoint does not have this model, or no longer
├── InputTooLong       the text is larger than the endpoint takes
├── MustWait           the endpoint asks to wait
│   └── EndpointDown   it has not answered several times
├── CallNotNeeded      the run has ended: no call was made
└── CallFailed         this call failed; another model, or a later attempt, may do better
    └── EndpointUnreachable   no connection, so it says nothing about the document
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ErrorClass, Interrupted, StagePaused
from penstock.llm.prompts import (
    JsonMode,
    JsonModes,
    PreparedRequest,
    build_messages,
    estimate_tokens,
)
from penstock.llm.ratelimit import FifoSemaphore, RateLimit, read_rate_headers
from penstock.retry import CircuitBreaker, parse_retry_after

if TYPE_CHECKING:
    import httpx
    from groq import APIStatusError, Groq

log = logging.getLogger(__name__)
STAGE = "extract"
_PATH = "/openai/v1/chat/completions"
# Longer waits go back to the queue, so that the slot is free for a call to another model.
MAX_WAIT_SECONDS = 60.0
# No minute limit takes this long to reset: it is the quota of a day.
QUOTA_WAIT_SECONDS = 600.0
DEFAULT_WAIT_SECONDS = 1.0
# For a server that is being restarted.
UNREACHABLE_RETRY_SECONDS = 5.0
# No restart takes this long: an operator has to look at it.
PAUSE_AFTER_SECONDS = 120.0
# An address where no connection ever came about is most likely wrong.
PAUSE_IF_NEVER_REACHED_SECONDS = 20.0
_DOWN = (
    "the endpoint has not answered several times in a row; check EXTRACTION_BASE_URL and the "
    "network"
)
# Groq's own status for "no capacity"; from here on a status says nothing about the request.
_NO_CAPACITY = 498
_MODEL_NOT_FOUND = {
    "model_not_found",
    "model_decommissioned",
    "model_permission_blocked_project",
    "model_permission_blocked_org",
}
# The account is out of money or closed, whatever the status: Groq's codes, then OpenAI's.
_ACCOUNT_REFUSED = {
    "organization_restricted",
    "blocked_api_access",
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_hard_limit_reached",
    "billing_not_active",
    "account_deactivated",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "project_spend_limit_exceeded",
}


class ModelError(Exception):
    """Base of all errors of a model call; the message is for people."""


class ModelNotFound(ModelError):
    pass


class InputTooLong(ModelError):
    pass


class MustWait(ModelError):
    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class EndpointDown(MustWait):
    pass


class CallNotNeeded(ModelError):
    pass


class CallFailed(ModelError):
    def __init__(self, reason: str, message: str, kind: ErrorClass = ErrorClass.UNKNOWN) -> None:
        super().__init__(message)
        self.reason = reason
        self.kind = kind
        self.seconds = 0.0
        """How long it took to fail."""


class EndpointUnreachable(CallFailed):
    pass


class _FormRefused(Exception):
    """The endpoint does not take the request in this JSON mode."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered, and what it took."""

    content: str | None
    truncated: bool
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float


class ModelCaller:
    """Calls models at one endpoint; safe from several threads."""

    def __init__(
        self,
        client: "Groq",
        rates: RateLimit,
        breaker: CircuitBreaker,
        modes: JsonModes,
        *,
        concurrency: int,
    ) -> None:
        self._client = client
        self._rates = rates
        self._breaker = breaker
        self._modes = modes
        self._concurrency = concurrency
        self._slots = FifoSemaphore(concurrency)
        self._last_failure = ""
        self._reached = False
        self.stopping = threading.Event()

    def close(self) -> None:
        self.stopping.set()
        self._client.close()

    def allow(self, calls: int) -> None:
        """Have at most so many calls under way at once from now on, or fewer as always."""
        self._slots.resize(min(calls, self._concurrency))

    def check_stopping(self) -> None:
        """Raise Interrupted once this is closed."""
        if self.stopping.is_set():
            raise Interrupted("stopped during model calls; the rest is extracted later")

    def check_endpoint(self) -> None:
        """Raise EndpointDown while the circuit is open, or StagePaused if it is for too long."""
        self.check_stopping()
        seconds = self._breaker.check()
        if seconds is not None:
            self._pause_if_down_for_long()
            raise EndpointDown(_DOWN, seconds)

    def record_no_answer(self, message: str, *, unreachable: bool) -> None:
        """Record that no model answered a request. EndpointDown if that opened the circuit or the
        endpoint was not even reached; StagePaused if it goes on for too long."""
        opened = self._breaker.failed()
        self._last_failure = message
        self._reached |= not unreachable
        self._pause_if_down_for_long()
        if self._breaker.is_open:
            if opened:
                log.warning("no model is called for a while: %s (%s)", _DOWN, message)
            raise EndpointDown(_DOWN, self._breaker.check() or DEFAULT_WAIT_SECONDS)
        if unreachable:
            raise EndpointDown(message, UNREACHABLE_RETRY_SECONDS)

    def _pause_if_down_for_long(self) -> None:
        most = PAUSE_AFTER_SECONDS if self._reached else PAUSE_IF_NEVER_REACHED_SECONDS
        if self._breaker.open_for_seconds >= most:
            # The same words each time: workers log the same pause once.
            raise StagePaused(
                STAGE,
                f"no model at {self._client.base_url.host} has answered for {most:.0f} s and "
                f"more: check EXTRACTION_BASE_URL and the network ({self._last_failure})",
            )

    def call(self, model: str, prepared: PreparedRequest, max_tokens: int) -> ModelReply:
        """The model's reply; rate limits are waited for up to MAX_WAIT_SECONDS."""
        give_up_at = time.monotonic() + MAX_WAIT_SECONDS
        mode = first = self._modes.mode_for(model, prepared.profile)
        while True:
            try:
                reply = self._call_once(model, mode, prepared, max_tokens)
            except _FormRefused as refused:
                if mode is JsonMode.PLAIN:
                    raise CallFailed("bad_request", str(refused)) from refused
                mode = JsonMode(mode + 1)
            except MustWait as wait:
                if wait.seconds >= QUOTA_WAIT_SECONDS:
                    raise StagePaused(
                        STAGE,
                        f"the account's quota for {model} is used up and resets in "
                        f"{wait.seconds / 3600:.1f} h: wait, raise the quota, or name another "
                        f"model in EXTRACTION_PRIMARY_MODEL ({wait})",
                    ) from wait
                if time.monotonic() + wait.seconds > give_up_at:
                    raise
            else:
                if mode is not first:
                    self._modes.use_simpler_mode(model, mode)
                return reply

    def _call_once(
        self, model: str, mode: JsonMode, prepared: PreparedRequest, max_tokens: int
    ) -> ModelReply:
        messages = build_messages(prepared, with_schema=mode is not JsonMode.STRICT)
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            **self._modes.options(model, mode, prepared.profile),
        }
        self._rates.acquire(model, estimate_tokens(messages, max_tokens), self.stopping)
        with self._slots:
            started = time.monotonic()
            try:
                response = self._post(model, body)
                reply = _read_reply(response.content, time.monotonic() - started)
            except CallFailed as failed:
                failed.seconds = time.monotonic() - started
                raise
        self._reached = True
        self._breaker.succeeded()
        used = reply.prompt_tokens + reply.completion_tokens
        self._rates.observe(model, read_rate_headers(response.headers), used)
        return reply

    def _post(self, model: str, body: Mapping[str, Any]) -> "httpx.Response":
        from groq import APIConnectionError, APIStatusError, APITimeoutError
        from httpx import ConnectError, ConnectTimeout, Response

        self.check_stopping()
        try:
            # The client's typed call takes twice the time, and all of it from the other threads.
            return self._client.post(_PATH, body=body, cast_to=Response)
        except APIStatusError as error:
            raise self._map_status(model, error) from error
        except APIConnectionError as error:
            unreachable = isinstance(error.__cause__, ConnectError | ConnectTimeout)
            failure = EndpointUnreachable if unreachable else CallFailed
            if isinstance(error, APITimeoutError):
                message = f"{model} did not answer in time"
                raise failure("timeout", message, ErrorClass.TIMEOUT) from error
            # Closing the client cuts off the calls that are under way.
            self.check_stopping()
            message = f"{model}: no answer came ({error.__cause__ or error})"
            raise failure("server_error", message, ErrorClass.UNAVAILABLE) from error

    def _map_status(self, model: str, error: "APIStatusError") -> Exception:
        """The error to raise; it never shows the request, which holds the key."""
        self._reached = True
        status, details = error.status_code, _error_details(error.body)
        code = details.get("code") if isinstance(details.get("code"), str) else None
        reason = str(details.get("message") or "no reason given")[:300]
        message = f"{model}: HTTP {status}{f' {code}' if code else ''}: {reason}"
        if status >= _NO_CAPACITY:
            return CallFailed("server_error", message, ErrorClass.UNAVAILABLE)
        paused = _configuration_fault(status, code, message)
        if paused is not None:
            return StagePaused(STAGE, paused)
        if status == 429:
            failure: Exception = self._map_rate_limit(model, error.response.headers, message)
        elif code in _MODEL_NOT_FOUND:
            failure = ModelNotFound(message)
        elif status == 413 or code == "context_length_exceeded":
            failure = InputTooLong(message)
        elif code == "json_validate_failed":
            failure = CallFailed("invalid_json", message)
        elif status in (400, 422):
            failure = _FormRefused(message)
        else:
            return CallFailed("server_error", message, ErrorClass.UNAVAILABLE)
        # These come from an endpoint that works and has looked at the request.
        self._breaker.succeeded()
        return failure

    def _map_rate_limit(self, model: str, headers: Mapping[str, str], message: str) -> MustWait:
        seconds = parse_retry_after(headers)
        seconds = DEFAULT_WAIT_SECONDS if seconds is None else seconds
        self._rates.observe(model, read_rate_headers(headers), 0)
        if seconds < QUOTA_WAIT_SECONDS:
            self._rates.hold(model, seconds)
        return MustWait(message, seconds)


def _read_reply(body: bytes, seconds: float) -> ModelReply:
    try:
        envelope = json.loads(body)
        choice = envelope["choices"][0]
        content = choice["message"].get("content")
        usage = envelope.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return ModelReply(
            content=content if isinstance(content, str) else None,
            truncated=choice.get("finish_reason") == "length",
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            cached_tokens=int(details.get("cached_tokens") or 0),
            seconds=seconds,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CallFailed(
            "server_error",
            f"the endpoint's answer is no chat completion ({type(error).__name__}): check "
            "EXTRACTION_BASE_URL",
            ErrorClass.UNAVAILABLE,
        ) from error


def _configuration_fault(status: int, code: str | None, message: str) -> str | None:
    """What to correct, if the account, the key or the address is refused and no document is at
    fault; None if it may be the request."""
    if code in _ACCOUNT_REFUSED or status == 402:
        return (
            "the endpoint refuses the account: settle its bill, raise its limit or ask the "
            f"provider, or set GROQ_API_KEY to the key of another account ({message})"
        )
    if code in _MODEL_NOT_FOUND:
        return None
    if status in (401, 403):
        return (
            f"the endpoint refuses the key (HTTP {status}): set GROQ_API_KEY, or the key of the "
            "block that was named, to a valid one"
        )
    if status == 404:
        return (
            "the endpoint knows neither the model nor the address (HTTP 404): check "
            f"EXTRACTION_BASE_URL and EXTRACTION_PRIMARY_MODEL ({message})"
        )
    if status == 407:
        return (
            "a proxy on the way to the endpoint asks for a password (HTTP 407): put it into "
            f"HTTPS_PROXY or HTTP_PROXY, or name the endpoint in NO_PROXY ({message})"
        )
    if status == 405 or status < 400:
        return (
            f"no chat endpoint is at this address (HTTP {status}): check EXTRACTION_BASE_URL "
            f"({message})"
        )
    return None


def _error_details(body: Any) -> Mapping[str, Any]:
    error = body.get("error", body) if isinstance(body, Mapping) else None
    return error if isinstance(error, Mapping) else {}
