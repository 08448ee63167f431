"""The offline extractor: the same text gives the same fields, with no model and no network."""

from collections.abc import Callable, Sequence
from datetime import date

from penstock.documents import Extraction, ExtractionRequest, ExtractionSkipped, Fault
from penstock.errors import ErrorClass
from penstock.isolation.pool import ChildPool, ChildTask
from penstock.llm.answers import Caps, clean_fields
from penstock.llm.evidence import weigh_answer
from penstock.llm.prompts import MAX_INPUT_CHARS, Outcome, PreparedRequest, prepare_request
from penstock.rules.answer import RulesAnswer
from penstock.rules.dates import written_on
from penstock.rules.document import answer_document
from penstock.rules.layout import ParsedText, parse_text
from penstock.rules.posting import answer_posting
from penstock.rules.resume import answer_resume
from penstock.rules.vocabulary import spellings_of

MODEL = "rules"
REVISION = 2
"""Raise it when the rules answer differently: cached answers carry it."""
IDENTITY = f"{MODEL}/{REVISION}"
FUNCTION = f"{__name__}:extract_fields"

_ANSWERS: dict[str, Callable[[PreparedRequest, ParsedText, date], RulesAnswer]] = {
    "resume": answer_resume,
    "job_posting": answer_posting,
    "document": answer_document,
}


class RulesExtractor:
    """Fills the built-in profiles by rules, in this process or in child processes."""

    def __init__(
        self,
        caps: Caps | None = None,
        max_input_chars: int = MAX_INPUT_CHARS,
        today: date | None = None,
        *,
        children: ChildPool | None = None,
        function: str = FUNCTION,
    ) -> None:
        """`today` is what "Present" in a text means, by default the day it was written;
        `function`, as `module:name`, is what the children call."""
        self._caps = caps or Caps()
        self._max_input_chars = max_input_chars
        self._today = today
        self._children = children
        self._function = function

    @property
    def identity(self) -> str:
        return IDENTITY

    def extract(self, requests: Sequence[ExtractionRequest]) -> list[Outcome]:
        """One outcome per request, in order."""
        prepared = [self._prepare(request) for request in requests]
        outcomes = iter(self._answer([one for one in prepared if isinstance(one, PreparedRequest)]))
        return [next(outcomes) if isinstance(one, PreparedRequest) else one for one in prepared]

    def _prepare(self, request: ExtractionRequest) -> PreparedRequest | ExtractionSkipped | Fault:
        prepared = prepare_request(request, self._max_input_chars)
        if not isinstance(prepared, PreparedRequest) or prepared.profile.name in _ANSWERS:
            return prepared
        return Fault(
            ErrorClass.EXTRACTOR_MISSING,
            f"the offline rules cannot fill the profile {prepared.profile.name!r}: set "
            f"GROQ_API_KEY to use a model, or use one of {', '.join(_ANSWERS)}",
        )

    def _answer(self, prepared: Sequence[PreparedRequest]) -> Sequence[Extraction | Fault]:
        if self._children is None:
            return [extract_fields(one, caps=self._caps, today=self._today) for one in prepared]
        task: ChildTask[PreparedRequest, Extraction] = ChildTask(
            function=self._function,
            doing="extracting its fields",
            name_of=lambda one: one.title or "untitled text",
            size_of=lambda one: len(one.text),
            together=64,
            options={"caps": self._caps, "today": self._today},
        )
        return self._children.map(task, prepared)


def answer_by_rules(prepared: PreparedRequest, today: date | None) -> RulesAnswer:
    """What the rules of the profile say, before it is cleaned, looked up and calibrated."""
    name = prepared.profile.name
    parsed = parse_text(prepared.text, resume=name == "resume")
    return _ANSWERS[name](prepared, parsed, today or written_on(parsed, prepared.metadata))


def extract_fields(prepared: PreparedRequest, *, caps: Caps, today: date | None) -> Extraction:
    """The fields that the rules find; "Present" in the text means `today`."""
    found = answer_by_rules(prepared, today)
    fields = clean_fields(prepared.profile, found.fields, caps)
    weighed = weigh_answer(prepared, fields, MODEL, found.confidence, found.supports, spellings_of)
    # No surer than the rules are to have found everything, which no single value shows.
    confidence = min(weighed.confidence, found.confidence)
    return Extraction(fields, round(confidence, 2), MODEL, evidence=weighed.evidence)
