"""A run and its states, and the states of a document in a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class RunStatus(StrEnum):
    PENDING = "pending"
    INITIALIZING = "initializing"
    INGESTING = "ingesting"
    FINISHED = "finished"
    ERROR = "error"
    ABORTED = "aborted"

    @property
    def active(self) -> bool:
        return self in (RunStatus.PENDING, RunStatus.INITIALIZING, RunStatus.INGESTING)


ENDED_STATUSES = tuple(status for status in RunStatus if not status.active)


class DocumentStatus(StrEnum):
    PENDING = "pending"
    READY = "ready"
    SKIPPED = "skipped"
    ERROR = "error"
    EXPIRED = "expired"


class Change(StrEnum):
    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source to ingest, and its tenant."""

    tenant_id: str
    name: str
    kind: str
    location: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is recorded."""

    id: int
    tenant_id: str
    source_id: int
    source_name: str
    source_kind: str
    location: str
    settings: Mapping[str, Any]
    """The settings of its source."""
    profile: str | None
    force: bool
    forced: Sequence[str] | None
    """Documents to process even if unchanged."""
    status: RunStatus
    configuration: str | None
    """The key of what does its work; None before a flow has taken the run."""
    paused_reason: str | None
    error: str | None
    flow_run_id: str | None
    """Prefect's id; None before a flow has taken the run, and without Prefect."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def shown_status(self) -> str:
        """What people are told: a paused run is still recorded as `ingesting`."""
        return "paused" if self.paused_reason else str(self.status)


@dataclass(frozen=True, slots=True)
class RunLease:
    """The right to write to a run, until it expires or the run ends."""

    run: Run
    token: str
