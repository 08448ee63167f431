"""The model chain: a cheap model first, a stronger one when its answer is not good enough; and what
their calls cost."""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.documents import (
    Evidence,
    Extraction,
    ExtractionRequest,
    Fault,
    FieldEvidence,
    ModelCall,
)
from penstock.errors import ConfigurationError, ErrorClass, StagePaused
from penstock.llm.answers import Caps, FallbackReason, judge_answer
from penstock.llm.caller import (
    STAGE,
    CallFailed,
    CallNotNeeded,
    EndpointDown,
    EndpointUnreachable,
    InputTooLong,
    ModelCaller,
    ModelNotFound,
    ModelReply,
    MustWait,
)
from penstock.llm.evidence import (
    Spellings,
    WeighedAnswer,
    no_spellings,
    record_confidence,
    weigh_answer,
)
from penstock.llm.profiles import Profile, narrow_profile, profile_named
from penstock.llm.prompts import INPUT_CUT, Outcome, PreparedRequest, cut_text, prepare_request
from penstock.settings import RETIRED_MODELS

log = logging.getLogger(__name__)
ACCEPTED = "accepted"
TRUNCATED = "truncated"
UNANSWERED = "no model gave a usable answer"
# The fallback gave nothing better, so the primary's answer is kept despite its low confidence.
KEPT_PRIMARY = "kept_primary"
# A missing model is tried again after this time: the error may have been a passing one.
NOT_FOUND_SECONDS = 600.0
CHARS_PER_TOKEN = 4
# While one thread judges and records its answer, another may use its slot at the endpoint.
THREADS_PER_SLOT = 2
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens of prompt, of completion, and of prompt from the cache."""

    prompt: float
    completion: float
    cached: float

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> float:
        fresh = max(prompt_tokens - cached_tokens, 0)
        dollars = fresh * self.prompt + cached_tokens * self.cached
        return (dollars + completion_tokens * self.completion) / _MILLION


PRICES = {
    "openai/gpt-oss-20b": Price(0.075, 0.30, 0.0375),
    "openai/gpt-oss-120b": Price(0.15, 0.60, 0.075),
}


def price_table(entries: tuple[str, ...]) -> dict[str, Price]:
    """The built-in prices, replaced and completed by `model=prompt/completion[/cached]`."""
    return PRICES | dict(map(_read_price, entries))


def _read_price(entry: str) -> tuple[str, Price]:
    model, _, figures = entry.partition("=")
    try:
        prompt, completion, *rest = numbers = [float(figure) for figure in figures.split("/")]
        if rest[1:] or not model.strip() or not all(0 <= one < math.inf for one in numbers):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"EXTRACTION_PRICES: {entry!r} is not a price: write model=prompt/completion or "
            "model=prompt/completion/cached, in dollars for a million tokens"
        ) from None
    return model.strip(), Price(prompt, completion, rest[0] if rest else prompt)


def cost_of(
    prices: Mapping[str, Price], model: str, prompt: int, completion: int, cached: int
) -> float:
    """The cost of one call; 0 for a model without a price."""
    price = prices.get(model)
    return price.cost(prompt, completion, cached) if price else 0.0


class Ledger(Protocol):
    """Records calls and answers as they come, so that neither is lost however the batch ends."""

    def spending(
        self, request: ExtractionRequest, about_usd: float
    ) -> AbstractContextManager[None]:
        """Around a call that will cost about so much. Entering raises BudgetSpent when the calls
        of this document's run have used up its budget, CallNotNeeded when the run has ended."""

    def record(
        self, request: ExtractionRequest, call: ModelCall, answer: Extraction | None = None
    ) -> None:
        """A call, and in the same transaction the answer it gave, if that is taken."""

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None:
        """An answer that is taken after its call was recorded."""


class ModelSlots(Protocol):
    """Call slots that several processes share."""

    def hold(self, wanted: int, stopping: threading.Event) -> AbstractContextManager[int]:
        """Around the calls of a batch: how many of `wanted` may be under way at once, in all
        batches of this process. Waits for its turn; Interrupted when `stopping` is set."""


class OwnSlots:
    """The process shares them with no other."""

    def hold(self, wanted: int, stopping: threading.Event) -> AbstractContextManager[int]:
        del stopping
        return nullcontext(wanted)


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """The models of a chain and what counts as an answer."""

    primary: str
    fallback: str
    threshold: float
    max_tokens: int
    max_input_chars: int
    concurrency: int
    caps: Caps
    prices: Mapping[str, Price]
    spellings: Spellings = no_spellings
    """Other words for a value, which support it too."""

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.primary, self.fallback)))


@dataclass(slots=True)
class _Attempt:
    """One document, and what the models answered so far."""

    request: ExtractionRequest
    prepared: PreparedRequest
    fallback_reason: str | None = None
    """Why the first model's answer was not taken."""
    usable: Extraction | None = None
    failures: list[str] = field(default_factory=list)
    kinds: list[ErrorClass] = field(default_factory=list)
    partial: Extraction | None = None
    """An answer that is good but for some fields; only these are asked for again."""
    unreachable: bool = True
    """Whether no call has reached the endpoint."""
    calls: list[ModelCall] = field(default_factory=list)

    def add_failure(self, reason: str, message: str, kind: ErrorClass = ErrorClass.UNKNOWN) -> None:
        self.fallback_reason = self.fallback_reason or reason
        self.failures.append(message)
        self.kinds.append(kind)

    def ask_again(self, found: Extraction) -> None:
        """Ask the next model for the fields alone that the text does not support."""
        self.partial = found
        names = tuple(name for name, one in found.evidence.items() if one.unsupported)
        profile = narrow_profile(self.prepared.profile, names)
        self.prepared = replace(self.prepared, profile=profile)

    @property
    def kind(self) -> ErrorClass:
        """Of the last failure that may pass with another attempt, if there is one."""
        return next((kind for kind in reversed(self.kinds) if not kind.permanent), self.kinds[-1])

    @property
    def unanswered(self) -> bool:
        """Whether no model answered at all."""
        return set(self.kinds) <= {ErrorClass.TIMEOUT, ErrorClass.UNAVAILABLE}


class ModelChain:
    """An extractor that calls models; see `penstock.llm.prompts.Extractor`."""

    def __init__(
        self,
        settings: ChainSettings,
        caller: ModelCaller,
        ledger: Ledger,
        meanwhile: Callable[[], None] = lambda: None,
        slots: ModelSlots | None = None,
    ) -> None:
        """`meanwhile` is called once, when the first requests are under way: while models answer,
        there is time to load what comes next. It must not block."""
        self._settings = settings
        self._caller = caller
        self._ledger = ledger
        self._meanwhile: Callable[[], None] | None = meanwhile
        self._slots = slots or OwnSlots()
        self._lock = threading.Lock()
        self._not_found: dict[str, tuple[float, str]] = {}
        self._threads = ThreadPoolExecutor(
            settings.concurrency * THREADS_PER_SLOT, thread_name_prefix="penstock-llm"
        )

    @property
    def identity(self) -> str:
        s = self._settings
        return f"groq:{'>'.join(s.models)}@{s.threshold:g}/{s.max_input_chars}"

    def extract(self, requests: Sequence[ExtractionRequest]) -> list[Outcome]:
        """One outcome per request, in order. A stage that cannot work raises StagePaused; answers
        that came before that are kept."""
        self._caller.check_stopping()
        prepared = [prepare_request(one, self._settings.max_input_chars) for one in requests]
        if not any(isinstance(one, PreparedRequest) for one in prepared):
            return [one for one in prepared if not isinstance(one, PreparedRequest)]
        with self._slots.hold(self._settings.concurrency, self._caller.stopping) as granted:
            self._caller.allow(granted)
            outcomes = [
                self._submit(request, one) if isinstance(one, PreparedRequest) else one
                for request, one in zip(requests, prepared, strict=True)
            ]
            meanwhile, self._meanwhile = self._meanwhile, None
            if meanwhile is not None:
                meanwhile()
            _wait_for([one for one in outcomes if isinstance(one, Future)])
        return [one.result() if isinstance(one, Future) else one for one in outcomes]

    def _submit(self, request: ExtractionRequest, prepared: PreparedRequest) -> Future[Outcome]:
        try:
            return self._threads.submit(self._extract_one, request, prepared)
        except RuntimeError:
            # The pool takes nothing more: the chain was closed while requests were handed over.
            self._caller.check_stopping()
            raise

    def close(self) -> None:
        """Stop waiting and calling: threads that wait for answers get Interrupted."""
        self._caller.close()
        # Not cancelled: `wait` would wait for ever for futures that no thread takes up any more.
        self._threads.shutdown(wait=False)

    def _extract_one(self, request: ExtractionRequest, prepared: PreparedRequest) -> Outcome:
        attempt = _Attempt(request, prepared)
        try:
            self._caller.check_endpoint()
            found = self._try_models(attempt)
        except EndpointDown as down:
            message = str(down)
            return Fault(ErrorClass.UNAVAILABLE, message, down.seconds, costs_nothing=True)
        except MustWait as wait:
            return Fault(ErrorClass.RATE_LIMITED, str(wait), wait.seconds)
        except CallNotNeeded as ended:
            return Fault(ErrorClass.UNAVAILABLE, str(ended))
        if found is not None:
            return found
        if not attempt.failures:
            # Every model turned out to be missing: the second time this raises StagePaused.
            return self._extract_one(request, prepared)
        return Fault(attempt.kind, f"{UNANSWERED}: {'; '.join(attempt.failures)}")

    def _try_models(self, attempt: _Attempt) -> Extraction | None:
        """The first answer that is good enough, else the best that can be used."""
        for model in self._usable_models():
            found = self._try_model(model, attempt)
            if found is not None:
                return found
        if attempt.failures and attempt.unanswered:
            message = "; ".join(attempt.failures)
            self._caller.record_no_answer(message, unreachable=attempt.unreachable)
        if attempt.usable is not None:
            self._ledger.keep(attempt.request, attempt.usable)
        return attempt.usable

    def _try_model(self, model: str, attempt: _Attempt) -> Extraction | None:
        """The model's answer if it is good enough; if not, the reason is added to `attempt`."""
        if attempt.failures:
            log.info(
                "Falling back to larger model: node %s, model %s, reason %s",
                attempt.request.node_id,
                model,
                attempt.fallback_reason,
            )
        try:
            reply = self._call(model, attempt, self._settings.max_tokens)
            if reply.truncated:
                self._record(model, attempt, reply, TRUNCATED)
                reply = self._call(model, attempt, 2 * self._settings.max_tokens)
        except ModelNotFound as error:
            self._leave_out(model, str(error))
            return None
        except CallFailed as failed:
            reply = ModelReply(None, False, 0, 0, 0, failed.seconds)
            self._record(model, attempt, reply, failed.reason)
            attempt.add_failure(failed.reason, str(failed), failed.kind)
            attempt.unreachable &= isinstance(failed, EndpointUnreachable)
            return None
        if reply.truncated:
            attempt.add_failure(TRUNCATED, f"{model}: the answer was cut short twice")
            self._record(model, attempt, reply, TRUNCATED)
            return None
        return self._judge(model, attempt, reply)

    def _judge(self, model: str, attempt: _Attempt, reply: ModelReply) -> Extraction | None:
        s = self._settings
        judged = judge_answer(attempt.prepared.profile, reply.content, s.caps, s.threshold)
        if judged.fields is None or judged.confidence is None:
            self._record(model, attempt, reply, str(judged.reason))
            attempt.add_failure(str(judged.reason), f"{model}: {judged.reason}")
            return None
        found, reason = self._weigh(model, attempt, judged.fields, judged.confidence)
        reason = judged.reason or reason
        if attempt.partial is not None:
            # These were the fields that the answer before lacked: with them it is complete.
            whole = profile_named(attempt.request.profile)
            found, reason = _complete(whole, attempt.partial, found), None
        call = self._call_of(model, attempt, reply, reason or ACCEPTED)
        found = replace(found, calls=tuple(attempt.calls))
        self._ledger.record(attempt.request, call, found if reason is None else None)
        if reason is None:
            log.info(
                "Extraction succeeded with %s model: node %s, model %s",
                "primary" if model == s.primary else "fallback",
                attempt.request.node_id,
                model,
            )
            return found
        attempt.add_failure(reason, f"{model}: {reason} ({found.confidence:g})")
        if reason is FallbackReason.UNSUPPORTED:
            attempt.ask_again(found)
        if attempt.usable is None or found.confidence > attempt.usable.confidence:
            marks = (*found.marks, KEPT_PRIMARY) if model == s.primary else found.marks
            attempt.usable = replace(found, fallback_reason=reason, marks=marks)
        return None

    def _weigh(
        self, model: str, attempt: _Attempt, fields: dict[str, Any], stated: float
    ) -> tuple[Extraction, FallbackReason | None]:
        """The answer with what supports it, and why it is not good enough although it is valid."""
        s = self._settings
        weighed = weigh_answer(attempt.prepared, fields, model, stated, spellings=s.spellings)
        found = Extraction(
            fields,
            weighed.confidence,
            model,
            fallback_reason=attempt.fallback_reason,
            marks=attempt.prepared.marks,
            evidence=weighed.evidence,
        )
        return found, _doubt(weighed, s.threshold)

    def _call(self, model: str, attempt: _Attempt, max_tokens: int) -> ModelReply:
        """One reply; a text that is too long is sent once more at half its length. That may also
        help an answer with more room: some endpoints limit the sum of both."""
        try:
            return self._call_once(model, attempt, max_tokens)
        except InputTooLong:
            whole = attempt.prepared
            text = cut_text(whole.text, len(whole.text) // 2)
            marks = tuple(dict.fromkeys((*whole.marks, INPUT_CUT)))
            attempt.prepared = replace(whole, text=text, marks=marks)
        try:
            return self._call_once(model, attempt, max_tokens)
        except InputTooLong as again:
            raise CallFailed("too_large", str(again), ErrorClass.TOO_LARGE) from again

    def _call_once(self, model: str, attempt: _Attempt, max_tokens: int) -> ModelReply:
        tokens = len(attempt.prepared.text) // CHARS_PER_TOKEN
        about_usd = cost_of(self._settings.prices, model, tokens, max_tokens // 4, 0)
        with self._ledger.spending(attempt.request, about_usd):
            return self._caller.call(model, attempt.prepared, max_tokens)

    def _record(self, model: str, attempt: _Attempt, reply: ModelReply, outcome: str) -> None:
        self._ledger.record(attempt.request, self._call_of(model, attempt, reply, outcome))

    def _call_of(self, model: str, attempt: _Attempt, reply: ModelReply, outcome: str) -> ModelCall:
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        cached = reply.cached_tokens
        cost_usd = cost_of(self._settings.prices, model, prompt, completion, cached)
        call = ModelCall(model, prompt, completion, reply.seconds, cost_usd, outcome, cached)
        attempt.calls.append(call)
        return call

    def _usable_models(self) -> list[str]:
        now = time.monotonic()
        with self._lock:
            missing = {m: message for m, (until, message) in self._not_found.items() if until > now}
        left = [model for model in self._settings.models if model not in missing]
        if not left:
            raise StagePaused(STAGE, _no_model_left(self._settings, missing))
        return left

    def _leave_out(self, model: str, message: str) -> None:
        with self._lock:
            known = model in self._not_found
            self._not_found[model] = (time.monotonic() + NOT_FOUND_SECONDS, message)
        if not known:
            log.warning("a model cannot be used and is left out: %s", message)


def _doubt(weighed: WeighedAnswer, threshold: float) -> FallbackReason | None:
    """Why an answer that its model is sure of is not good enough all the same."""
    if weighed.unsupported:
        return FallbackReason.UNSUPPORTED
    return FallbackReason.LOW_CONFIDENCE if weighed.confidence < threshold else None


def _complete(profile: Profile, before: Extraction, found: Extraction) -> Extraction:
    """The answer before, with what `found` says of the fields that the text did not support. Items
    of lists that were supported stay; a value that neither finds goes, unless it is required."""
    fields, evidence = dict(before.fields), dict(before.evidence)
    for name in [name for name, one in before.evidence.items() if one.unsupported]:
        kept = _supported(before, name) if isinstance(fields[name], list) else []
        own = found.evidence.get(name)
        pairs = kept + [
            pair for pair in _values(found, name) if pair[0] not in [v for v, _ in kept]
        ]
        if pairs:
            confidence = before.evidence[name].confidence if own is None else own.confidence
            values = [value for value, _ in pairs]
            fields[name] = values if isinstance(fields[name], list) else values[0]
            evidence[name] = FieldEvidence(confidence, tuple(place for _, place in pairs))
        elif name not in profile.required:
            fields[name] = [] if isinstance(fields[name], list) else None
            del evidence[name]
    return replace(
        before,
        fields=fields,
        evidence=evidence,
        confidence=record_confidence(profile, evidence, before.confidence),
        fallback_reason=FallbackReason.UNSUPPORTED,
    )


def _values(found: Extraction, name: str) -> list[tuple[Any, Evidence | None]]:
    """The values of a field, each with what supports it."""
    own = found.evidence.get(name)
    if own is None:
        return []
    value = found.fields[name]
    return [*zip(value if isinstance(value, list) else [value], own.places, strict=True)]


def _supported(found: Extraction, name: str) -> list[tuple[Any, Evidence | None]]:
    return [pair for pair in _values(found, name) if pair[1] is not None]


def _no_model_left(settings: ChainSettings, missing: Mapping[str, str]) -> str:
    """What to change, and to what, when the endpoint has none of the models."""
    named = {
        "EXTRACTION_PRIMARY_MODEL": settings.primary,
        "EXTRACTION_FALLBACK_MODEL": settings.fallback,
    }
    advice = "; ".join(
        f"set {env}={RETIRED_MODELS[model]}"
        if model in RETIRED_MODELS
        else f"set {env} to a model that the endpoint has"
        for env, model in named.items()
    )
    return f"no usable model is left ({'; '.join(missing.values())}): {advice}"


def _wait_for(futures: Collection[Future[Outcome]]) -> None:
    """Wait until all are done or one has raised; in that case cancel what has not started."""
    done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
    if not waiting:
        return
    for future in waiting:
        future.cancel()
    wait([future for future in waiting if not future.cancelled()])
    for future in done:
        future.result()
