"""The rules in child processes: many texts at once, and a text that hangs them hurts no other."""

from collections.abc import Sequence
from datetime import UTC, date, datetime

from penstock.documents import Extraction, ExtractionRequest
from penstock.isolation.job import Job
from penstock.isolation.pool import ChildPool
from penstock.llm.cleaning import Caps
from penstock.llm.extractor import MAX_INPUT_CHARS, Outcome, Question
from penstock.llm.rules.extractor import IDENTITY, prepare

ANSWER = "penstock.llm.rules.extractor:answer_question"
WARMUP = "penstock.llm.rules.extractor"


class IsolatedRules:
    """Answers as RulesExtractor does, from children that others may share."""

    def __init__(
        self,
        children: ChildPool,
        caps: Caps | None = None,
        max_input_chars: int = MAX_INPUT_CHARS,
        today: date | None = None,
        *,
        answer: str = ANSWER,
    ) -> None:
        """`answer` is an import path, `module:function`, for the children to find it by."""
        self._children = children
        self._caps = caps or Caps()
        self._max_input_chars = max_input_chars
        self._today = today
        self._answer = answer

    @property
    def identity(self) -> str:
        return IDENTITY

    def extract(self, requests: Sequence[ExtractionRequest]) -> list[Outcome]:
        """One outcome per request, in order; what the rules do not read is not sent anywhere."""
        prepared = [prepare(request, self._max_input_chars) for request in requests]
        questions = [question for question in prepared if isinstance(question, Question)]
        answers = self._children.map(self._job(), questions)
        in_order = iter(answers)
        return [next(in_order) if isinstance(one, Question) else one for one in prepared]

    def _job(self) -> Job[Question, Extraction]:
        """The job of one batch, whose texts all have the same today."""
        today = self._today or datetime.now(UTC).date()
        return Job(
            function=self._answer,
            doing="extracting its fields",
            name_of=lambda question: question.title or "untitled text",
            size_of=lambda question: len(question.text),
            options={"caps": self._caps, "today": today},
        )
