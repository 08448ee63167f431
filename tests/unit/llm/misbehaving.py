"""Rules that do what a text's title says, good or bad, for children to import by path."""

from datetime import date

from penstock.documents import Extraction
from penstock.llm.answers import Caps
from penstock.llm.prompts import PreparedRequest
from tests.unit.isolation.misbehaving import obey

PATH = f"{__name__}:extract_fields"


def extract_fields(prepared: PreparedRequest, *, caps: Caps, today: date) -> Extraction:
    obey(prepared.title or "")
    return Extraction({"today": today, "caps": caps}, 1.0, "obedience")
