"""The values that pass between crawl, text, extraction, embedding and the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.errors import DocumentFault, ErrorClass


class Stage(StrEnum):
    """What is done to a node, in this order."""

    TEXT = "text"
    EXTRACT = "extract"
    EMBED = "embed"


@dataclass(frozen=True, slots=True)
class RawDocument:
    """Bytes as they were found, with what their source said about them."""

    name: str
    """File name or URL: a hint for the type, and what people see."""
    content: bytes
    media_type: str | None = None
    """As declared by the source (an HTTP Content-Type header); never trusted alone."""
    source: str | None = None
    """The name of the source it came from (a company), for extractors made for one."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """Bytes that lie in a file which every process of this machine can read."""

    name: str
    path: str
    size: int
    media_type: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The readable text of one document."""

    text: str
    title: str | None = None
    media_type: str = "text/plain"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only: pages, author, and for job postings company, location and so on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one document, as a value that travels in a batch."""

    kind: ErrorClass
    message: str
    retry_after_seconds: float | None = None

    @classmethod
    def of(cls, error: DocumentFault) -> "Fault":
        return cls(error.kind, str(error), error.retry_after_seconds)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One question to a language model and what it cost."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cost_usd: float
    outcome: str
    """`accepted`, or the reason why the answer was not good enough."""
    cached_tokens: int = 0
    """Those of the prompt that the provider had from an earlier call."""


@dataclass(frozen=True, slots=True)
class ExtractionRequest:
    """A text, and the profile whose fields are wanted from it."""

    text: str
    profile: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    """Under which the answer is kept for ever."""
    tenant_id: str = ""
    node_id: str = ""
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """The fields a model (or the rules) found in one text."""

    fields: Mapping[str, Any]
    confidence: float
    model: str
    calls: tuple[ModelCall, ...] = ()
    fallback_reason: str | None = None
    """Why the first model's answer was not taken, or not good enough although it was."""
    marks: tuple[str, ...] = ()
    """What a reader of the fields should know: `input_cut`, `kept_primary`."""


@dataclass(frozen=True, slots=True)
class ExtractionSkipped:
    """No extraction was tried, and why (`insufficient_text`)."""

    reason: str
