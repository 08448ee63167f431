"""Rules that do what a text's title says, good or bad, for children to import by path."""

from datetime import date

from penstock.documents import Extraction
from penstock.llm.cleaning import Caps
from penstock.llm.extractor import Question
from tests.unit.isolation.misbehaving import obey

PATH = f"{__name__}:answer_question"


def answer_question(question: Question, *, caps: Caps, today: date) -> Extraction:
    obey(question.title or "")
    return Extraction({"today": today, "caps": caps}, 1.0, "obedience")
