"""The values that pass between crawl, text, extraction, embedding and the store."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock.errors import DocumentFault, ErrorClass


class Stage(StrEnum):
    """What is done to a node, in this order."""

    TEXT = "text"
    EXTRACT = "extract"
    EMBED = "embed"


@dataclass(frozen=True, slots=True)
class RawDocument:
    """Bytes as they were fetched, with what their source said about them.

    Custom text extractors get one, and return an ExtractedText or raise DocumentFault.

    Args:
        name: File name or URL: a hint for the type, and what people see.
        content: The bytes.
        media_type: As the source declares it (an HTTP Content-Type header); never trusted alone.
        source: The name of the source (a company), for extractors made for one.
    """

    name: str
    content: bytes
    media_type: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """The bytes of a document in a file that every process of this machine can read."""

    name: str
    path: str
    size: int
    media_type: str | None = None
    source: str | None = None


PAGE_STARTS = "page_starts"
"""The metadata of a text that came in pages: where each begins."""

HEADINGS = "headings"
"""The metadata of a text with headings: where each line begins that is one, and its level."""

STRUCTURE = frozenset((PAGE_STARTS, HEADINGS))
"""Metadata that say where things are in a text, and nothing about the document."""


@dataclass(frozen=True, slots=True)
class RawReference:
    """Where a document's bytes are, and what its source said about them."""

    raw_key: str | None
    name: str
    size: int
    media_type: str | None
    source: str | None = None
    path: Path | None = None
    """A user's own file, read in place; then there is no key."""


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The readable text of one document, as a text extractor returns it.

    Args:
        text: What is searched, and what fields are extracted from.
        title: What people see; None: the file name, or the last part of the URL.
        media_type: What the bytes were, such as `application/pdf`.
        metadata: JSON values only: pages, author, and for job postings company, location and so on.
        headings: Level and words of each heading, in order; they are looked up in the text.

    Example:
        ExtractedText("Jane Doe\\nStaff engineer", title="Jane Doe", metadata={"pages": 1})
    """

    text: str
    title: str | None = None
    media_type: str = "text/plain"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    headings: tuple[tuple[int, str], ...] = ()


def hash_text(text: str) -> str:
    """By which a correction knows the text it was made for."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Passage(NamedTuple):
    """A part of a text: `text[start:end]`."""

    start: int
    end: int
    page: int | None = None
    """On which it begins, from 1; None where there are no pages."""
    heading: tuple[str, ...] = ()
    """The headings above it, the highest first."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one document, as a value that travels in a batch."""

    kind: ErrorClass
    message: str
    retry_after_seconds: float | None = None
    costs_nothing: bool = False
    """It is not the document's fault, which is tried again without limit."""

    @property
    def is_free(self) -> bool:
        """Whether it spends no attempt, as a rate limit."""
        return self.costs_nothing or self.kind is ErrorClass.RATE_LIMITED

    @classmethod
    def of(cls, error: DocumentFault) -> "Fault":
        return cls(error.kind, str(error), error.retry_after_seconds)

    def as_error(self) -> DocumentFault:
        return DocumentFault(self.kind, self.message, retry_after_seconds=self.retry_after_seconds)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call to a language model, and what it cost."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cost_usd: float
    outcome: str
    """`accepted`, or the reason why the answer was not good enough."""
    cached_tokens: int = 0
    """Tokens of the prompt that the provider had cached."""


class ProfileBasis(StrEnum):
    """Who chose the profile of a document, the strongest first."""

    ASKED = "asked"
    """The caller, the run or the source named it."""
    CLASS = "class"
    """Its classes, or the type that a page states about itself."""
    SETTING = "setting"
    """EXTRACTION_PROFILE."""
    DETECTED = "detected"
    """Its content."""


@dataclass(frozen=True, slots=True)
class ExtractionRequest:
    """A text, and the profile whose fields are to be extracted from it."""

    text: str
    profile: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    """The key under which the answer is stored and found again."""
    tenant_id: str = ""
    node_id: str = ""
    run_id: int | None = None
    profile_basis: ProfileBasis | None = None
    profile_reason: str | None = None


class Match(StrEnum):
    """How a value was found."""

    EXACT = "exact"
    NORMALISED = "normalised"
    """But for case, accents, punctuation, white space or the way a number is written."""
    FUZZY = "fuzzy"
    """Nearly: a spelling that differs, a word left out, most words of a long text."""
    DERIVED = "derived"
    """Worked out from the text; the place is that of the phrase, if it is known."""
    SOURCE = "source"
    """Not in the text but in what its source says of it: its title or its metadata."""
    CORRECTED = "corrected"
    """A person said so; the quote says who."""


class Evidence(NamedTuple):
    """What supports a value, and where it stands in the stored text."""

    match: Match
    start: int | None = None
    """The offset of its first character; None when no place is known."""
    end: int | None = None
    page: int | None = None
    """From 1, for formats that have pages."""
    quote: str | None = None
    """The words of the text, cut if they are many."""

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        return cls(Match(stored[0]), *stored[1:])

    def to_json(self) -> list[Any]:
        """Without what is unknown at the end."""
        values = [str(self.match), *self[1:]]
        while values[-1] is None:
            values.pop()
        return values


@dataclass(frozen=True, slots=True)
class FieldEvidence:
    """What supports the value of a field, and how likely the value is right."""

    confidence: float
    """0.9: nine of ten such values are right."""
    places: tuple[Evidence | None, ...] = ()
    """For each item of a list, else for the value; None: the text does not support it."""

    @property
    def unsupported(self) -> bool:
        """Whether the text does not support the value, or one of the values."""
        return None in self.places

    def first(self, items: int) -> "FieldEvidence":
        """Of a list that was cut to so many items."""
        return replace(self, places=self.places[:items])

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        places = (None if one is None else Evidence.from_json(one) for one in stored["places"])
        return cls(stored["confidence"], tuple(places))

    def to_json(self) -> dict[str, Any]:
        """Short: there is one for each field of each document."""
        places = [None if one is None else one.to_json() for one in self.places]
        return {"confidence": self.confidence, "places": places}


@dataclass(frozen=True, slots=True)
class Extraction:
    """The fields a model (or the rules) found in one text."""

    fields: Mapping[str, Any]
    confidence: float
    model: str
    calls: tuple[ModelCall, ...] = ()
    fallback_reason: str | None = None
    """Why the first model's answer was not good enough; it may be kept all the same."""
    marks: tuple[str, ...] = ()
    """Remarks on the fields: `input_cut`, `kept_primary`."""
    evidence: Mapping[str, FieldEvidence] = field(default_factory=dict)
    """Of each field that has a value."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one text, of unit length. Vectors of two identities are never compared."""

    identity: str
    """`maker/model@dimensions`"""
    values: tuple[float, ...]

    @classmethod
    def of(cls, identity: str, vector: bytes) -> "Embedding":
        """From little-endian 32-bit numbers, as embedders return them."""
        return cls(identity, struct.unpack(f"<{len(vector) // 4}f", vector))


@dataclass(frozen=True, slots=True)
class ExtractionSkipped:
    """No extraction was tried, and why (`insufficient_text`)."""

    reason: str
