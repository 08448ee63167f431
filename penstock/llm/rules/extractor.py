"""The offline extractor: the same text gives the same fields, with no model and no network."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

from penstock.documents import Extraction, ExtractionRequest, ExtractionSkipped, Fault
from penstock.errors import ErrorClass
from penstock.llm.cleaning import Caps, clean_fields
from penstock.llm.extractor import MAX_INPUT_CHARS, Outcome, Question, prepare_question
from penstock.llm.rules.answer import Answer
from penstock.llm.rules.document import answer_document
from penstock.llm.rules.layout import Reading, read_text
from penstock.llm.rules.posting import answer_posting
from penstock.llm.rules.resume import answer_resume

MODEL = "rules"
REVISION = 1
"""Raise it when the rules answer differently: cached answers carry it."""
IDENTITY = f"{MODEL}/{REVISION}"

_ANSWERS: dict[str, Callable[[Question, Reading, date], Answer]] = {
    "resume": answer_resume,
    "job_posting": answer_posting,
    "document": answer_document,
}


class RulesExtractor:
    """Fills the built-in profiles by rules; "Present" in a text means `today`."""

    def __init__(
        self,
        caps: Caps | None = None,
        max_input_chars: int = MAX_INPUT_CHARS,
        today: date | None = None,
    ) -> None:
        self._caps = caps or Caps()
        self._max_input_chars = max_input_chars
        self._today = today

    @property
    def identity(self) -> str:
        return IDENTITY

    def extract(self, requests: Sequence[ExtractionRequest]) -> list[Outcome]:
        """One outcome per request, in order."""
        today = self._today or datetime.now(UTC).date()
        return [self._extract_one(request, today) for request in requests]

    def _extract_one(self, request: ExtractionRequest, today: date) -> Outcome:
        question = prepare(request, self._max_input_chars)
        if not isinstance(question, Question):
            return question
        return answer_question(question, caps=self._caps, today=today)


def prepare(
    request: ExtractionRequest, max_input_chars: int
) -> Question | ExtractionSkipped | Fault:
    """A question that the rules can answer, or why there is none."""
    question = prepare_question(request, max_input_chars)
    if isinstance(question, Question) and question.profile.name not in _ANSWERS:
        return _no_rules(question.profile.name)
    return question


def answer_question(question: Question, *, caps: Caps, today: date) -> Extraction:
    """The fields that the rules find; "Present" in the text means `today`."""
    answer = _ANSWERS[question.profile.name](question, read_text(question.text), today)
    fields = clean_fields(question.profile, answer.fields, caps)
    return Extraction(fields, answer.confidence, MODEL)


def _no_rules(profile: str) -> Fault:
    return Fault(
        ErrorClass.EXTRACTOR_MISSING,
        f"the offline rules cannot fill the profile {profile!r}: set GROQ_API_KEY to use a model, "
        f"or use one of {', '.join(_ANSWERS)}",
    )
