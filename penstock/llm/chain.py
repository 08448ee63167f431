"""A cheap model first, a stronger one when its answer is not good enough."""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from penstock.documents import Extraction, ExtractionRequest, Fault, ModelCall
from penstock.errors import ErrorClass, StagePaused
from penstock.llm.answers import judge_answer
from penstock.llm.asking import STAGE, Asker, Reply
from penstock.llm.cleaning import Caps
from penstock.llm.extractor import INPUT_CUT, Outcome, Question, cut_text, prepare_question
from penstock.llm.ledger import Ledger
from penstock.llm.prices import Price, cost_of
from penstock.llm.trouble import CallFailed, ModelGone, MustWait, NotWanted, TooLong, Unreached

log = logging.getLogger(__name__)
ACCEPTED = "accepted"
TRUNCATED = "truncated"
# The fallback had nothing better, so what the primary said is kept although it is unsure.
KEPT_PRIMARY = "kept_primary"
# A model that is gone may come back, or was never gone but for a moment.
GONE_SECONDS = 600.0
CHARS_PER_TOKEN = 4
# While one thread judges and records its answer, another may use its slot at the endpoint.
THREADS_PER_SLOT = 2


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

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.primary, self.fallback)))


@dataclass(slots=True)
class _Tried:
    """What came of one question so far."""

    question: Question
    reason: str | None = None
    """Why the first model's answer was not taken."""
    usable: Extraction | None = None
    failures: list[str] = field(default_factory=list)
    kinds: list[ErrorClass] = field(default_factory=list)
    unreached: bool = True
    """Whether nobody has even heard the question."""
    calls: list[ModelCall] = field(default_factory=list)

    def note(self, reason: str, message: str, kind: ErrorClass = ErrorClass.UNKNOWN) -> None:
        self.reason = self.reason or reason
        self.failures.append(message)
        self.kinds.append(kind)

    @property
    def kind(self) -> ErrorClass:
        """Of the last failure that another attempt may mend, if there is one."""
        return next((kind for kind in reversed(self.kinds) if not kind.permanent), self.kinds[-1])

    @property
    def unanswered(self) -> bool:
        """Whether no model said anything at all."""
        return set(self.kinds) <= {ErrorClass.TIMEOUT, ErrorClass.UNAVAILABLE}


class ModelChain:
    """An extractor that asks models; see `penstock.llm.extractor.Extractor`."""

    def __init__(self, settings: ChainSettings, asker: Asker, ledger: Ledger) -> None:
        self._settings = settings
        self._asker = asker
        self._ledger = ledger
        self._lock = threading.Lock()
        self._gone: dict[str, tuple[float, str]] = {}
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
        self._asker.check_stopping()
        prepared = [prepare_question(one, self._settings.max_input_chars) for one in requests]
        asked: dict[int, Future[Outcome]] = {
            index: self._threads.submit(self._answer, request, question)
            for index, (request, question) in enumerate(zip(requests, prepared, strict=True))
            if isinstance(question, Question)
        }
        _wait_for(asked.values())
        return [
            asked[index].result() if isinstance(one, Question) else one
            for index, one in enumerate(prepared)
        ]

    def close(self) -> None:
        """Stop waiting and asking: whoever waits for answers gets Interrupted."""
        self._asker.close()
        # Not cancelled: `wait` would wait for ever for those that nobody takes up any more.
        self._threads.shutdown(wait=False)

    def _answer(self, request: ExtractionRequest, question: Question) -> Outcome:
        tried = _Tried(question)
        try:
            self._asker.check_endpoint()
            found = self._try_models(request, tried)
        except MustWait as wait:
            return Fault(ErrorClass.RATE_LIMITED, str(wait), wait.seconds)
        except NotWanted as ended:
            return Fault(ErrorClass.UNAVAILABLE, str(ended))
        if found is not None:
            self._ledger.keep(request, found)
            return found
        if not tried.failures:
            return self._answer(request, question)  # every model turned out to be gone: say so
        return Fault(tried.kind, f"no model gave a usable answer: {'; '.join(tried.failures)}")

    def _try_models(self, request: ExtractionRequest, tried: _Tried) -> Extraction | None:
        """The first answer that is good enough, else the best that can be used."""
        for model in self._usable_models():
            found = self._try_model(model, request, tried)
            if found is not None:
                return found
        if tried.failures and tried.unanswered:
            self._asker.note_silence("; ".join(tried.failures) if tried.unreached else None)
        return tried.usable

    def _try_model(
        self, model: str, request: ExtractionRequest, tried: _Tried
    ) -> Extraction | None:
        """The model's answer if it is good enough; why not is noted in `tried`."""
        if tried.failures:
            log.info(
                "Falling back to larger model: node %s, model %s, reason %s",
                request.node_id,
                model,
                tried.reason,
            )
        try:
            reply = self._ask(model, request, tried)
        except ModelGone as gone:
            self._retire(model, str(gone))
            return None
        except CallFailed as failed:
            self._record(request, tried, model, failed.seconds, failed.reason)
            tried.note(failed.reason, str(failed), failed.kind)
            tried.unreached = tried.unreached and isinstance(failed, Unreached)
            return None
        if reply.truncated:
            tried.note(TRUNCATED, f"{model}: the answer was cut short twice")
            self._record(request, tried, model, reply, TRUNCATED)
            return None
        return self._judge(model, request, reply, tried)

    def _judge(
        self, model: str, request: ExtractionRequest, reply: Reply, tried: _Tried
    ) -> Extraction | None:
        s = self._settings
        judged = judge_answer(tried.question.profile, reply.content, s.caps, s.threshold)
        self._record(request, tried, model, reply, judged.reason or ACCEPTED)
        if judged.fields is None or judged.confidence is None:
            tried.note(str(judged.reason), f"{model}: {judged.reason}")
            return None
        found = Extraction(
            judged.fields,
            judged.confidence,
            model,
            calls=tuple(tried.calls),
            fallback_reason=tried.reason,
            marks=tried.question.marks,
        )
        if judged.reason is None:
            which = "primary" if model == s.primary else "fallback"
            log.info(
                "Extraction succeeded with %s model: node %s, model %s",
                which,
                request.node_id,
                model,
            )
            return found
        tried.note(judged.reason, f"{model}: {judged.reason} ({judged.confidence:g})")
        if tried.usable is None or found.confidence > tried.usable.confidence:
            marks = (*found.marks, KEPT_PRIMARY) if model == s.primary else found.marks
            tried.usable = replace(found, fallback_reason=judged.reason, marks=marks)
        return None

    def _ask(self, model: str, request: ExtractionRequest, tried: _Tried) -> Reply:
        """One reply; a question that is too long is asked once more in half its length, an answer
        that was cut short once more with twice the room."""
        room = self._settings.max_tokens
        reply = self._ask_shrinking(model, request, tried, room)
        if not reply.truncated:
            return reply
        self._record(request, tried, model, reply, TRUNCATED)
        # What an endpoint takes may be the sum of question and answer.
        return self._ask_shrinking(model, request, tried, 2 * room)

    def _ask_shrinking(
        self, model: str, request: ExtractionRequest, tried: _Tried, room: int
    ) -> Reply:
        try:
            return self._ask_once(model, request, tried.question, room)
        except TooLong:
            tried.question = _halved(tried.question)
        try:
            return self._ask_once(model, request, tried.question, room)
        except TooLong as again:
            raise CallFailed("too_large", str(again), ErrorClass.TOO_LARGE) from again

    def _ask_once(
        self, model: str, request: ExtractionRequest, question: Question, room: int
    ) -> Reply:
        tokens = len(question.text) // CHARS_PER_TOKEN
        about_usd = cost_of(self._settings.prices, model, tokens, room // 4, 0)
        with self._ledger.spending(request, about_usd):
            return self._asker.ask(model, question, room)

    def _record(
        self,
        request: ExtractionRequest,
        tried: _Tried,
        model: str,
        came: Reply | float,
        outcome: str,
    ) -> None:
        """Write down a reply, or a call that failed after so many seconds."""
        reply = came if isinstance(came, Reply) else Reply(None, False, 0, 0, 0, came)
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        cached = reply.cached_tokens
        call = ModelCall(
            model=model,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            seconds=reply.seconds,
            cost_usd=cost_of(self._settings.prices, model, prompt, completion, cached),
            outcome=outcome,
        )
        tried.calls.append(call)
        self._ledger.record(request, call)

    def _usable_models(self) -> list[str]:
        now = time.monotonic()
        with self._lock:
            gone = {model: said for model, (until, said) in self._gone.items() if until > now}
        left = [model for model in self._settings.models if model not in gone]
        if not left:
            raise StagePaused(STAGE, no_model_left(self._settings, gone))
        return left

    def _retire(self, model: str, said: str) -> None:
        with self._lock:
            known = model in self._gone
            self._gone[model] = (time.monotonic() + GONE_SECONDS, said)
        if not known:
            log.warning("a model cannot be used and is left out: %s", said)


def no_model_left(settings: ChainSettings, gone: Mapping[str, str]) -> str:
    """What to change, and to what, when the endpoint knows none of the models."""
    from penstock.settings import RETIRED_MODELS

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
    return f"no usable model is left ({'; '.join(gone.values())}): {advice}"


def _halved(question: Question) -> Question:
    text = cut_text(question.text, len(question.text) // 2)
    marks = tuple(dict.fromkeys((*question.marks, INPUT_CUT)))
    return replace(question, text=text, marks=marks)


def _wait_for(futures: Collection[Future[Outcome]]) -> None:
    """Until all are done, or one has raised; then what was not begun is not begun."""
    done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
    if not waiting:
        return
    for future in waiting:
        future.cancel()
    wait([future for future in waiting if not future.cancelled()])
    for future in done:
        future.result()
