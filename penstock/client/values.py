"""What the client gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class _Value:
    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """From an answer; what a newer server says beside is left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in answer.items() if name in known})


@dataclass(frozen=True, slots=True)
class AddedNode(_Value):
    """A node that was accepted, and the jobs that work on it."""

    id: str
    embedding_status: str
    job_id: int | None = None
    extraction_status: str | None = None
    extraction_job_id: int | None = None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a batch: nodes by their place in it, and what was wrong with the others."""

    nodes: Mapping[int, AddedNode]
    errors: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Node(_Value):
    """A node as it stands."""

    id: str
    tenant_id: str
    title: str | None
    text: str
    props: Mapping[str, Any]
    metadata: Mapping[str, Any]
    classes: list[str] = field(default_factory=list)
    profile: str | None = None
    url: str | None = None
    source: str | None = None
    extraction_status: str | None = None
    extraction_error: str | None = None
    embedding_status: str | None = None
    embedding_error: str | None = None
    has_embedding: bool = False

    @property
    def settled(self) -> bool:
        """Whether nothing is under way for it any more."""
        return {self.extraction_status, self.embedding_status}.isdisjoint(_UNDER_WAY)


_UNDER_WAY = {"queued", "processing", "pending_extraction"}


@dataclass(frozen=True, slots=True)
class SearchHit(_Value):
    """One result; hits stand between <mark> and </mark> in the snippet."""

    id: str
    title: str
    url: str | None
    score: float
    snippet: str
