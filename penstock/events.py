"""The log of a run: events written in the transaction they belong to, read in sequence."""

import logging
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, get_args

import sqlalchemy as sa

from penstock.errors import UsageError
from penstock.store.bulk import BulkStatement
from penstock.store.columns import storable
from penstock.store.database import Tx
from penstock.store.schema import events
from penstock.terminal import as_text

EventStage = Literal["ING", "CRL", "TXT", "LLM", "EMB"]
Level = Literal["INFO", "WARNING", "ERROR"]

# Two loggers, so that a run's own lines can be shown without those of its documents.
run_log = logging.getLogger("penstock.events.run")
document_log = logging.getLogger("penstock.events.document")

STAGES: tuple[str, ...] = get_args(EventStage)
LEVELS: tuple[str, ...] = get_args(Level)
PAGE = 1000
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
    """Append events when the transaction commits, and log them afterwards."""
    if happened:
        tx.before_commit(_insert, happened)
        tx.after_commit(_log, happened)


def _insert(tx: Tx, happened: Sequence[Event]) -> None:
    """Lines of one log get their numbers in the order in which they are committed.

    Otherwise a reader that remembers the last number would never see a line that got its number
    early and was committed late. The lock is taken right before the commit, so that it is short;
    SQLite has one writer at a time anyway.
    """
    if tx.is_postgres:
        lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCK_SPACE, sa.bindparam("stream")))
        for stream in sorted({_stream_of(event) for event in happened}):
            tx.execute(lock, {"stream": stream})
    _INSERT.execute(tx, [_row(event) | {"at": tx.now} for event in happened])


_INSERT = BulkStatement(lambda tx: tx.insert(events))
_NAMES = tuple(Event.__dataclass_fields__)
_read_values = attrgetter(*_NAMES)


def _row(event: Event) -> dict[str, Any]:
    return dict(zip(_NAMES, _read_values(event), strict=True))


def _stream_of(event: Event) -> int:
    if event.run_id is not None:
        return event.run_id % (1 << 31)
    return zlib.crc32(event.tenant_id.encode()) >> 1


def _log(happened: Sequence[Event]) -> None:
    """Log lines end on terminals, so these are cleaned; what is stored is not."""
    levels = logging.getLevelNamesMapping()
    for event in happened:
        run = "" if event.run_id is None else f"run {event.run_id}: "
        if event.document is None:
            run_log.log(levels[event.level], "%s%s", run, as_text(event.message))
        else:
            about = as_text(f"{event.document}: {event.message}")
            document_log.log(levels[event.level], "%s%s", run, about)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One event as it is read; `seq` is where the next page begins."""

    seq: int
    at: datetime
    stage: str
    level: str
    message: str
    run_id: int | None
    source: str | None
    document: str | None
    node_id: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"at": self.at.isoformat()}


_SELECT = sa.select(*[events.c[name] for name in LogLine.__dataclass_fields__])


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines of a log; all of them by default."""

    stages: tuple[str, ...] = ()
    level: str | None = None
    """Less serious lines are left out."""
    text: str | None = None
    """Part of the message, the document or the source, in any case."""

    def __post_init__(self) -> None:
        """Refuse unknown stages and levels, and write the rest as the store holds it."""
        (level,) = _known([self.level], LEVELS, "level") if self.level else (None,)
        object.__setattr__(self, "stages", tuple(_known(self.stages, STAGES, "stage")))
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "text", storable(self.text) or None)

    @property
    def levels(self) -> tuple[str, ...]:
        return LEVELS if self.level is None else LEVELS[LEVELS.index(self.level) :]

    def conditions(self, tx: Tx) -> list[sa.ColumnElement[bool]]:
        c = events.c
        found: list[sa.ColumnElement[bool]] = []
        if self.stages:
            found.append(c.stage.in_(self.stages))
        if self.level is not None:
            found.append(c.level.in_(self.levels))
        if self.text is not None:
            found.append(any_holds(tx, (c.message, c.document, c.source), self.text))
        return found


def read_log(
    tx: Tx,
    run_id: int,
    *,
    after: int = 0,
    stages: Collection[str] = (),
    level: str | None = None,
    text: str | None = None,
    limit: int = PAGE,
) -> list[LogLine]:
    """The next lines of this run; `level` leaves less serious ones out."""
    wanted = LogFilter(tuple(stages), level, text)
    next_ones = [events.c.seq > after, *_wanted(tx, run_id, wanted)]
    return _lines(tx, _SELECT.where(*next_ones).order_by(events.c.seq).limit(limit))


def newest_seq(tx: Tx, run_id: int) -> int:
    """The number of the run's last line so far; 0 if it has none."""
    newest = sa.select(sa.func.max(events.c.seq)).where(events.c.run_id == run_id)
    return int(tx.execute(newest).scalar() or 0)


def page_log(
    tx: Tx, run_id: int, wanted: LogFilter, *, offset: int, limit: int, upto: int | None = None
) -> list[LogLine]:
    """Lines of this run from place `offset` among those that are wanted, in sequence; none that was
    written after line `upto`."""
    seq = events.c.seq
    # Lines are skipped by their numbers alone, from the index; only those that are shown are read.
    page = sa.select(seq).where(*_wanted(tx, run_id, wanted, upto)).order_by(seq)
    shown = seq.in_(page.offset(offset).limit(limit))
    return _lines(tx, _SELECT.where(shown).order_by(seq))


def count_log(tx: Tx, run_id: int, wanted: LogFilter, *, upto: int | None = None) -> int:
    counted = sa.select(sa.func.count()).where(*_wanted(tx, run_id, wanted, upto))
    return int(tx.execute(counted).scalar_one())


def any_holds(
    tx: Tx, columns: Iterable[sa.ColumnElement[Any]], text: str
) -> sa.ColumnElement[bool]:
    """Whether one of these columns contains the text, in any case."""
    # SQLite's own LIKE ignores the case of ASCII letters, and is many times as quick as `lower`.
    if not tx.is_postgres and text.isascii():
        return sa.or_(*[column.contains(text, autoescape=True) for column in columns])
    return sa.or_(*[column.icontains(text, autoescape=True) for column in columns])


def _wanted(
    tx: Tx, run_id: int, wanted: LogFilter, upto: int | None = None
) -> list[sa.ColumnElement[bool]]:
    written = [] if upto is None else [events.c.seq <= upto]
    return [events.c.run_id == run_id, *written, *wanted.conditions(tx)]


def _lines(tx: Tx, query: sa.Select[Any]) -> list[LogLine]:
    return [LogLine(*row) for row in tx.execute(query)]


def _known(given: Collection[str], known: tuple[str, ...], what: str) -> list[str]:
    upper = [one.upper() for one in given]
    for one in upper:
        if one not in known:
            raise UsageError(f"there is no {what} {one}: use {', '.join(known)}")
    return upper
