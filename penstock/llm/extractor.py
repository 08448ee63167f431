"""What every extractor promises, and the rules that hold whichever model answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.documents import Extraction, ExtractionRequest, ExtractionSkipped, Fault
from penstock.errors import ErrorClass, UsageError
from penstock.llm.cleaning import mend_text
from penstock.llm.profiles import Profile, profile_named

MIN_TEXT_CHARS = 100
MAX_INPUT_CHARS = 12_000
MAX_TITLE_CHARS = 300
# Marks an answer that was made from the beginning of a longer text.
INPUT_CUT = "input_cut"

Outcome = Extraction | ExtractionSkipped | Fault

_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*(?=\s)|[。！？\n]")


class Extractor(Protocol):
    """Fills the fields of a profile for a batch of texts."""

    @property
    def identity(self) -> str:
        """The model chain's name: answers under one identity can stand for each other."""

    def extract(self, requests: Sequence[ExtractionRequest]) -> list[Outcome]:
        """One outcome per request, in order; a fault of one is no fault of its neighbours."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request that is worth asking: its profile known, its text long enough and cut to size."""

    profile: Profile
    text: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    """What the answer has to be marked with."""


def prepare_question(
    request: ExtractionRequest, max_input_chars: int = MAX_INPUT_CHARS
) -> Question | ExtractionSkipped | Fault:
    """The question to ask, or why none is asked."""
    if len(request.text.strip()) < MIN_TEXT_CHARS:
        return ExtractionSkipped("insufficient_text")
    try:
        profile = profile_named(request.profile)
    except UsageError as error:
        return Fault(ErrorClass.UNSUPPORTED, str(error))
    whole = mend_text(request.text.strip())
    text = cut_text(whole, max_input_chars)
    marks = (INPUT_CUT,) if len(text) < len(whole) else ()
    return Question(profile, text, _tidy_title(request.title), request.metadata, marks)


def cut_text(text: str, max_chars: int) -> str:
    """The start of the text, ended where a sentence ends if one does in its last quarter."""
    if len(text) <= max_chars:
        return text
    ends = _SENTENCE_END.finditer(text, max_chars * 3 // 4, max_chars + 1)
    last = max((end.end() for end in ends if end.end() <= max_chars), default=0)
    return text[: last or _word_end(text, max_chars)].rstrip()


def _tidy_title(title: str | None) -> str | None:
    return mend_text(" ".join((title or "").split()))[:MAX_TITLE_CHARS] or None


def _word_end(text: str, max_chars: int) -> int:
    space = text.rfind(" ", max_chars * 3 // 4, max_chars + 1)
    return space if space > 0 else max_chars
