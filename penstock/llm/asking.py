"""One question to one model: paced, timed, and whatever goes wrong told in our own words."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ErrorClass, StagePaused
from penstock.llm.breaker import Breaker
from penstock.llm.extractor import Question
from penstock.llm.modes import Mode, Modes
from penstock.llm.prompting import build_messages, estimate_tokens
from penstock.llm.ratelimit import RateLimit, read_rate_headers, read_retry_after
from penstock.llm.trouble import CallFailed, EndpointDown, ModelGone, MustWait, TooLong

if TYPE_CHECKING:
    from groq import APIStatusError, Groq

STAGE = "extract"
# Longer waits go back to the queue, so that the slot is free for another model's question.
PATIENCE_SECONDS = 60.0
# No minute limit takes this long to reset: it is the quota of a day.
QUOTA_SECONDS = 600.0
DEFAULT_WAIT_SECONDS = 1.0
_GONE = {"model_not_found", "model_decommissioned"}


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
        self._slots = threading.Semaphore(concurrency)
        self.stopping = threading.Event()

    def close(self) -> None:
        self.stopping.set()
        self._client.close()

    def ask(self, model: str, question: Question, max_tokens: int) -> Reply:
        """The model's reply, after as many 429s as patience allows; or one of our troubles."""
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            mode = self._modes.mode_of(model, question.profile)
            try:
                return self._ask_once(model, mode, question, max_tokens)
            except _Refused as refused:
                if not self._modes.step_down(model, mode):
                    raise CallFailed("bad_request", str(refused)) from refused
            except EndpointDown:
                raise
            except MustWait as wait:
                if wait.seconds >= QUOTA_SECONDS:
                    raise _quota_pause(model, wait) from wait
                if time.monotonic() + wait.seconds > patience_ends:
                    raise

    def _ask_once(self, model: str, mode: Mode, question: Question, max_tokens: int) -> Reply:
        from groq import APIConnectionError, APIStatusError, APITimeoutError

        messages = build_messages(question, with_schema=mode is not Mode.STRICT)
        estimate = estimate_tokens(messages, max_tokens)
        self._check_breaker()
        self._rates.acquire(model, estimate, self.stopping)
        started = time.monotonic()
        try:
            with self._slots:
                started = time.monotonic()
                raw = self._client.chat.completions.with_raw_response.create(
                    model=model,
                    messages=messages,  # type: ignore[arg-type]  # plain dicts, as it sends them
                    max_tokens=max_tokens,
                    temperature=0,
                    **self._modes.options(mode, question.profile),
                )
        except APIStatusError as error:
            raise self._explain_status(model, error) from error
        except APITimeoutError as error:
            self._breaker.failed()
            message = f"{model} did not answer in time"
            raise CallFailed("timeout", message, ErrorClass.TIMEOUT) from error
        except APIConnectionError as error:
            self._breaker.failed()
            cause = error.__cause__ or error
            raise CallFailed(
                "server_error", f"{model}: no answer came ({cause})", ErrorClass.UNAVAILABLE
            ) from error
        self._breaker.succeeded()
        reply = _read_reply(raw.http_response.content, time.monotonic() - started)
        used = reply.prompt_tokens + reply.completion_tokens
        self._rates.observe(model, read_rate_headers(raw.headers), used)
        return reply

    def _check_breaker(self) -> None:
        seconds = self._breaker.check()
        if seconds is not None:
            raise EndpointDown(
                "the endpoint has not answered several times in a row; EXTRACTION_BASE_URL and "
                "the network are worth a look",
                seconds,
            )

    def _explain_status(self, model: str, error: "APIStatusError") -> Exception:
        """Our word for an answer that is an error; never the request, which holds the key."""
        status, code = error.status_code, _error_code(error.body)
        said = f"{model}: HTTP {status}{f' {code}' if code else ''}: {_error_text(error.body)}"
        if status == 429:
            return self._explain_limit(model, error, said)
        if status in (401, 403):
            return StagePaused(
                STAGE,
                f"the endpoint refuses the key (HTTP {status}): set GROQ_API_KEY to a valid one",
            )
        if code in _GONE:
            return ModelGone(said)
        if status == 404:
            return StagePaused(
                STAGE,
                f"nothing answers chat completions at EXTRACTION_BASE_URL (HTTP 404): {said}",
            )
        if status == 413:
            return TooLong(said)
        if code == "json_validate_failed":
            return CallFailed("invalid_json", said)
        if status == 400 or status == 422:
            return _Refused(said)
        self._breaker.failed()
        return CallFailed("server_error", said, ErrorClass.UNAVAILABLE)

    def _explain_limit(self, model: str, error: "APIStatusError", said: str) -> MustWait:
        self._breaker.succeeded()
        headers = error.response.headers
        asked = read_retry_after(headers)
        seconds = DEFAULT_WAIT_SECONDS if asked is None else asked
        self._rates.observe(model, read_rate_headers(headers), 0)
        if seconds < QUOTA_SECONDS:
            self._rates.hold(model, seconds)
        return MustWait(said, seconds)


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
        usage = envelope.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return Reply(
            content=choice["message"].get("content"),
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
