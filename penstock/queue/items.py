"""A work item: its states, the values that travel with it, and its row in the database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, Protocol, Self

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.store.database import Tx
from penstock.store.schema import (
    CANCELLED_ITEM,
    COMPLETE_ITEM,
    DEAD_ITEM,
    LEASED_ITEM,
    WAITING_ITEM,
    attempts,
    work_items,
)


class ItemStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    RETRY_PENDING = "retry_pending"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING_STATUSES = (ItemStatus.PENDING, ItemStatus.RETRY_PENDING)
ACTIVE_STATUSES = (ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_PENDING)


class Outcome(StrEnum):
    """How a completed item was completed."""

    DONE = "done"
    REUSED = "reused"
    """The store already held this result."""
    UNCHANGED = "unchanged"
    """The text to be embedded is the one that was embedded before."""
    SKIPPED = "skipped"


class StageOrder(StrEnum):
    """Which stages follow a document's text."""

    EXTRACT_FIRST = "extract_first"
    PARALLEL = "beside"
    """Embedded at once, extracted beside it, and embedded again if that changed the text."""
    EMBED_ONLY = "embed_only"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that are due at once when the text is there."""
        if self is StageOrder.EXTRACT_FIRST:
            return (Stage.EXTRACT,)
        return (Stage.EMBED, Stage.EXTRACT) if self is StageOrder.PARALLEL else (Stage.EMBED,)


@dataclass(frozen=True, slots=True)
class StageFailure:
    """The failure of an earlier stage; the stage that closes the document reports it."""

    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class ItemPayload:
    """The document of an item and how to process it; handed on from stage to stage."""

    external_id: str | None = None
    source: str | None = None
    profile: str | None = None
    raw_key: str | None = None
    file: str | None = None
    """URI of a user's own file, read in place; then there is no raw key."""
    payload_ref: str | None = None
    """Reference from which the text stage fetches the bytes."""
    size: int | None = None
    media_type: str | None = None
    content_hash: str | None = None
    simhash: int | None = None
    """Signed, as the database stores it."""
    etag: str | None = None
    last_modified: str | None = None
    order: StageOrder | None = None
    last_stage: Stage | None = None
    """The stage after which the document is closed; None: after the last there is."""
    refresh: bool = False
    """Results that the store already holds are not reused."""
    failed: StageFailure | None = None
    backfill: int | None = None
    attachment_id: int | None = None
    unknown: Mapping[str, Any] | None = None
    """Keys written by a newer version; kept, so that they reach the next stage."""

    def to_json(self) -> dict[str, Any]:
        """What is set, as it is stored."""
        if self is NO_PAYLOAD:
            return {}
        values = zip(_KEYS, _read_values(self), strict=True)
        found = {name: value for name, value in values if value is not None and value is not False}
        if self.failed is not None:
            found["failed"] = {
                "error_class": self.failed.error_class,
                "message": self.failed.message,
            }
        return {**self.unknown, **found} if self.unknown else found

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        known = dict(stored)
        unknown = {name: known.pop(name) for name in known.keys() - _KEYS}
        for name, read in _READERS:
            if known.get(name):
                try:
                    known[name] = read(known[name])
                except (KeyError, TypeError, ValueError):
                    # One row of a newer version must not keep its batch from being claimed.
                    unknown[name] = known.pop(name)
        return cls(**known, unknown=unknown or None)


_READERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("order", StageOrder),
    ("last_stage", Stage),
    ("failed", lambda stored: StageFailure(stored["error_class"], stored["message"])),
)
_KEYS = tuple(one.name for one in fields(ItemPayload) if one.name != "unknown")
_read_values = attrgetter(*_KEYS)
NO_PAYLOAD = ItemPayload()


def payload_value(name: str) -> sa.ColumnElement[Any]:
    """A field of the payload, as an SQL expression to be cast with `as_string()` and the like."""
    assert name in _KEYS, name
    return sa.type_coerce(work_items.c.payload, sa.JSON())[name]


@dataclass(frozen=True, slots=True)
class NewItem:
    """Work to be recorded."""

    tenant_id: str
    node_id: str
    stage: Stage
    run_id: int | None = None
    priority: int = 0
    payload: ItemPayload = NO_PAYLOAD
    requires: str | None = None
    """The key of the configuration that must do it; None: any worker."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Work as it was claimed or recorded."""

    id: int
    tenant_id: str
    node_id: str
    stage: Stage
    run_id: int | None
    priority: int
    attempts: int
    rescues: int
    payload: ItemPayload
    enqueued_at: datetime
    requires: str | None = None

    @property
    def document(self) -> str:
        """The name of its document in events and messages."""
        return self.payload.external_id or self.node_id


@dataclass(frozen=True, slots=True)
class Claim:
    """Items under one lease. Only its token allows to write them."""

    token: str
    owner: str
    items: tuple[WorkItem, ...]
    started: frozenset[int] = frozenset()
    """Ids of items that were started in the transaction of the claim."""
    on_trial: bool = False
    """Whether its one item has no rescue left: if the process dies of anything else meanwhile, the
    item would be taken for the cause."""

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def ids(self) -> list[int]:
        return [item.id for item in self.items]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a failed item: retried later, or dead."""

    item: WorkItem
    fault: Fault
    dead: bool


NO_LEASE: dict[str, Any] = {
    "lease_owner": None,
    "lease_token": None,
    "lease_expires_at": None,
    "claimed_at": None,
    "started_at": None,
}

# Stated as a literal beside the status, so that the small partial index of such items is used.
# Complete items, which are nearly all there are, need none.
_INDEXED = {
    ItemStatus.PENDING: WAITING_ITEM,
    ItemStatus.RETRY_PENDING: WAITING_ITEM,
    ItemStatus.PROCESSING: LEASED_ITEM,
    ItemStatus.FAILED: DEAD_ITEM,
    ItemStatus.CANCELLED: CANCELLED_ITEM,
}


def part_of(status: ItemStatus) -> sa.TextClause:
    """The condition of the index that items of this status are in."""
    return _INDEXED.get(status, COMPLETE_ITEM)


def has_status(status: ItemStatus) -> sa.ColumnElement[bool]:
    """Whether an item has this status; for statements in which only items have a `status`."""
    same = work_items.c.status == status
    return sa.and_(same, _INDEXED[status]) if status in _INDEXED else same


def item_columns() -> list[sa.ColumnElement[Any]]:
    """What `item_from` needs of a row."""
    names = (
        "id tenant_id node_id run_id stage priority attempts rescues payload created_at requires"
    )
    return [work_items.c[name] for name in names.split()]


def item_from(row: sa.Row[Any]) -> WorkItem:
    """The item of a row that begins with `item_columns`."""
    # By position, which is quicker than by name: a claim reads many.
    number, tenant_id, node_id, run_id, stage, priority, attempts, rescues, payload, at = row[:10]
    requires = row[10]
    return WorkItem(
        number,
        tenant_id,
        node_id,
        _STAGES[stage],
        run_id,
        priority,
        attempts,
        rescues,
        ItemPayload.from_json(payload) if payload else NO_PAYLOAD,
        at,
        requires,
    )


_STAGES = {str(stage): stage for stage in Stage}


def record_attempt(tx: Tx, item: WorkItem, attempt: int, owner: str | None, fault: Fault) -> None:
    """Append a failed attempt to the item's history."""
    tx.execute(
        sa.insert(attempts).values(
            item_id=item.id,
            attempt=attempt,
            owner=owner,
            error_class=fault.kind,
            message=fault.message,
            failed_at=tx.now,
        )
    )


@dataclass(frozen=True, slots=True)
class StatusChange:
    """An item and its new status."""

    item: WorkItem
    status: ItemStatus
    at: datetime
    """By the database's clock: of two changes the later one holds."""
    run_at: datetime | None = None
    """When it is due, while it waits for a retry."""
    fault: Fault | None = None
    """Why it failed."""


class QueueMirror(Protocol):
    """Gets changes after they are committed. It must not raise: the work goes on without it."""

    def apply(self, changes: Sequence[StatusChange]) -> None: ...
