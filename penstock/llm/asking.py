"""One question to one model: paced, timed, and whatever goes wrong told in our own words."""

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ErrorClass, Interrupted, StagePaused
from penstock.llm.breaker import Breaker
from penstock.llm.extractor import Question
from penstock.llm.modes import Mode, Modes
from penstock.llm.prompting import build_messages, estimate_tokens
from penstock.llm.ratelimit import RateLimit, read_rate_headers, read_retry_after
from penstock.llm.slots import Slots
from penstock.llm.trouble import (
    CallFailed,
    EndpointDown,
    ModelGone,
    MustWait,
    TooLong,
    Unreached,
)

if TYPE_CHECKING:
    import httpx
    from groq import APIStatusError, Groq

log = logging.getLogger(__name__)
STAGE = "extract"
_PATH = "/openai/v1/chat/completions"
# Longer waits go back to the queue, so that the slot is free for another model's question.
PATIENCE_SECONDS = 60.0
# No minute limit takes this long to reset: it is the quota of a day.
QUOTA_SECONDS = 600.0
DEFAULT_WAIT_SECONDS = 1.0
# For a server that is being restarted.
UNREACHED_SECONDS = 5.0
_DOWN = (
    "the endpoint has not answered several times in a row; EXTRACTION_BASE_URL and the network "
    "are worth a look"
)
# Groq's own status for "no capacity", the first of those that say nothing about the question.
_NO_CAPACITY = 498
_GONE = {
    "model_not_found",
    "model_decommissioned",
    "model_permission_blocked_project",
    "model_permission_blocked_org",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said, and what it took."""

    content: str | None
    truncated: bool
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float


class Asker:
    """Asks models at one endpoint; safe from several threads."""

    def __init__(
        self,
        client: "Groq",
        rates: RateLimit,
        breaker: Breaker,
        modes: Modes,
        *,
        concurrency: int,
    ) -> None:
        self._client = client
        self._rates = rates
        self._breaker = breaker
        self._modes = modes
        self._slots = Slots(concurrency)
        self.stopping = threading.Event()

    def close(self) -> None:
        self.stopping.set()
        self._client.close()

    def check_stopping(self) -> None:
        """Raise Interrupted once this is closed."""
        if self.stopping.is_set():
            raise Interrupted("stopped while models were asked; what is left is asked later")

    def check_endpoint(self) -> None:
        """Raise EndpointDown while the endpoint is left alone."""
        self.check_stopping()
        seconds = self._breaker.check()
        if seconds is not None:
            raise EndpointDown(_DOWN, seconds)

    def note_silence(self, unreached: str | None = None) -> None:
        """No model has answered a question; after several such ones in a row, EndpointDown. At
        once, if the question did not even get there, for the reason that is given."""
        was_open = self._breaker.is_open
        self._breaker.failed()
        if not self._breaker.is_open:
            if unreached is not None:
                raise EndpointDown(unreached, UNREACHED_SECONDS)
            return
        if not was_open:
            log.warning("no model is asked for a while: %s", _DOWN)
        raise EndpointDown(_DOWN, self._breaker.check() or DEFAULT_WAIT_SECONDS)

    def ask(self, model: str, question: Question, max_tokens: int) -> Reply:
        """The model's reply, after as many 429s as patience allows; or one of our troubles."""
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        mode = first = self._modes.mode_of(model, question.profile)
        while True:
            try:
                reply = self._ask_once(model, mode, question, max_tokens)
            except _Refused as refused:
                if mode is Mode.PLAIN:
                    raise CallFailed("bad_request", str(refused)) from refused
                mode = Mode(mode + 1)
            except MustWait as wait:
                if wait.seconds >= QUOTA_SECONDS:
                    raise _quota_pause(model, wait) from wait
                if time.monotonic() + wait.seconds > patience_ends:
                    raise
            else:
                if mode is not first:
                    self._modes.step_down(model, mode)
                return reply

    def _ask_once(self, model: str, mode: Mode, question: Question, max_tokens: int) -> Reply:
        messages = build_messages(question, with_schema=mode is not Mode.STRICT)
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            **self._modes.options(model, mode, question.profile),
        }
        self._rates.acquire(model, estimate_tokens(messages, max_tokens), self.stopping)
        with self._slots:
            started = time.monotonic()
            try:
                response = self._call(model, body)
                reply = _read_reply(response.content, time.monotonic() - started)
            except CallFailed as failed:
                failed.seconds = time.monotonic() - started
                raise
        self._breaker.succeeded()
        used = reply.prompt_tokens + reply.completion_tokens
        self._rates.observe(model, read_rate_headers(response.headers), used)
        return reply

    def _call(self, model: str, body: Mapping[str, Any]) -> "httpx.Response":
        from groq import APIConnectionError, APIStatusError, APITimeoutError
        from httpx import Response

        self.check_stopping()
        try:
            # The client's typed call takes twice the time, and all of it from the other threads.
            return self._client.post(_PATH, body=body, cast_to=Response)
        except APIStatusError as error:
            raise self._explain_status(model, error) from error
        except APITimeoutError as error:
            message = f"{model} did not answer in time"
            raise _failure_of(error)("timeout", message, ErrorClass.TIMEOUT) from error
        except APIConnectionError as error:
            # Closing the client cuts off the calls that are under way.
            self.check_stopping()
            message = f"{model}: no answer came ({error.__cause__ or error})"
            raise _failure_of(error)("server_error", message, ErrorClass.UNAVAILABLE) from error

    def _explain_status(self, model: str, error: "APIStatusError") -> Exception:
        """Our word for an answer that is an error; never the request, which holds the key."""
        status, code = error.status_code, _error_code(error.body)
        said = f"{model}: HTTP {status}{f' {code}' if code else ''}: {_error_text(error.body)}"
        if status >= _NO_CAPACITY:
            return CallFailed("server_error", said, ErrorClass.UNAVAILABLE)
        self._breaker.succeeded()
        if status == 429:
            return self._explain_limit(model, error, said)
        if code in _GONE:
            return ModelGone(said)
        if status in (401, 403):
            return StagePaused(
                STAGE,
                f"the endpoint refuses the key (HTTP {status}): set GROQ_API_KEY to a valid one",
            )
        if status == 404:
            return StagePaused(
                STAGE,
                "the endpoint knows neither the model nor the address (HTTP 404): check "
                f"EXTRACTION_BASE_URL and EXTRACTION_PRIMARY_MODEL ({said})",
            )
        if status == 413 or code == "context_length_exceeded":
            return TooLong(said)
        if code == "json_validate_failed":
            return CallFailed("invalid_json", said)
        if status in (400, 422):
            return _Refused(said)
        return CallFailed("server_error", said, ErrorClass.UNAVAILABLE)

    def _explain_limit(self, model: str, error: "APIStatusError", said: str) -> MustWait:
        headers = error.response.headers
        asked = read_retry_after(headers)
        seconds = DEFAULT_WAIT_SECONDS if asked is None else asked
        self._rates.observe(model, read_rate_headers(headers), 0)
        if seconds < QUOTA_SECONDS:
            self._rates.hold(model, seconds)
        return MustWait(said, seconds)


def _failure_of(error: Exception) -> type[CallFailed]:
    from httpx import ConnectError, ConnectTimeout

    unreached = isinstance(error.__cause__, ConnectError | ConnectTimeout)
    return Unreached if unreached else CallFailed


class _Refused(Exception):
    """The endpoint does not take the request in this form."""


def _quota_pause(model: str, wait: MustWait) -> StagePaused:
    hours = wait.seconds / 3600
    return StagePaused(
        STAGE,
        f"the account's quota for {model} is used up and resets in {hours:.1f} h: wait, raise the "
        f"quota, or name another model in EXTRACTION_PRIMARY_MODEL ({wait})",
    )


def _read_reply(body: bytes, seconds: float) -> Reply:
    try:
        envelope = json.loads(body)
        choice = envelope["choices"][0]
        content = choice["message"].get("content")
        usage = envelope.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return Reply(
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
            f"the endpoint's answer is no chat completion ({type(error).__name__}): is "
            "EXTRACTION_BASE_URL right?",
            ErrorClass.UNAVAILABLE,
        ) from error


def _error_code(body: Any) -> str | None:
    error = _error_of(body)
    code = error.get("code")
    return code if isinstance(code, str) else None


def _error_text(body: Any) -> str:
    message = _error_of(body).get("message")
    return str(message)[:300] if message else "no reason given"


def _error_of(body: Any) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        error = body.get("error", body)
        if isinstance(error, Mapping):
            return error
    return {}
