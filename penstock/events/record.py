"""Writing events: the one place that the store's log, Python's logging and Prefect's feed from."""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import events

EventStage = Literal["ING", "CRL", "TXT", "LLM", "EMB"]
Level = Literal["INFO", "WARNING", "ERROR"]

# Apart, so that whoever shows a run's own lines need not show one for each of its documents.
run_log = logging.getLogger("penstock.events.run")
document_log = logging.getLogger("penstock.events.document")

_LOCK_SPACE = 0x70656E


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a run's log."""

    tenant_id: str
    stage: EventStage
    message: str
    level: Level = "INFO"
    run_id: int | None = None
    node_id: str | None = None
    source: str | None = None
    document: str | None = None
    """The external id of the document that this is about, if it is about one."""


def record(tx: Tx, *happened: Event) -> None:
    """Append events when the transaction commits, and tell Python's logging afterwards."""
    if happened:
        tx.last(_insert, happened)
        tx.afterwards(_log, happened)


def _insert(tx: Tx, happened: Sequence[Event]) -> None:
    _wait_for_turn(tx, happened)
    tx.execute(sa.insert(events), [_row(tx, event) for event in happened])


def _wait_for_turn(tx: Tx, happened: Sequence[Event]) -> None:
    """Let lines of one log get their numbers in the order in which they can be seen.

    Otherwise a reader that remembers the last number would never see a line that got its number
    early and was committed late. It is done last, so nobody waits for anything while in turn.
    SQLite has one writer at a time anyway.
    """
    if tx.connection.dialect.name != "postgresql":
        return
    wait = sa.select(sa.func.pg_advisory_xact_lock(_LOCK_SPACE, sa.bindparam("stream")))
    for stream in sorted({_stream_of(event) for event in happened}):
        tx.execute(wait, {"stream": stream})


def _stream_of(event: Event) -> int:
    if event.run_id is not None:
        return event.run_id % (1 << 31)
    return zlib.crc32(event.tenant_id.encode()) >> 1


def _row(tx: Tx, event: Event) -> dict[str, Any]:
    return {
        "tenant_id": event.tenant_id,
        "run_id": event.run_id,
        "node_id": event.node_id,
        "source": event.source,
        "document": event.document,
        "stage": event.stage,
        "level": event.level,
        "message": event.message,
        "at": tx.now,
    }


def _log(happened: Sequence[Event]) -> None:
    levels = logging.getLevelNamesMapping()
    for event in happened:
        if event.document is None:
            run_log.log(levels[event.level], "%s%s", _run_prefix(event), event.message)
        else:
            document_log.log(
                levels[event.level], "%s%s: %s", _run_prefix(event), event.document, event.message
            )


def _run_prefix(event: Event) -> str:
    return "" if event.run_id is None else f"run {event.run_id}: "
