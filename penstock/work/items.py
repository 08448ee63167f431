"""What a work item is: the states it may be in and the values that travel with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from penstock.documents import Fault, Stage


class ItemStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    RETRY_PENDING = "retry_pending"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE_STATUSES = (ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_PENDING)


class Outcome(StrEnum):
    """How a completed item was completed."""

    DONE = "done"
    REUSED = "reused"
    """The store already held this very result."""
    UNCHANGED = "unchanged"
    """What would be embedded is what was embedded before."""
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class NewItem:
    """Work to be recorded."""

    tenant_id: str
    node_id: str
    stage: Stage
    run_id: int | None = None
    priority: int = 0
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Work as it was claimed."""

    id: int
    tenant_id: str
    node_id: str
    stage: Stage
    run_id: int | None
    priority: int
    attempts: int
    rescues: int
    payload: Mapping[str, Any]
    enqueued_at: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """Items under one lease. Whoever shows the token may write; nobody else."""

    token: str
    owner: str
    items: tuple[WorkItem, ...]

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def ids(self) -> list[int]:
        return [item.id for item in self.items]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a failed item: tried again later, or dead."""

    item: WorkItem
    fault: Fault
    dead: bool
