"""Reading a run's log: exact, in sequence, from where a reader stopped, or a page out of it."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, get_args

import sqlalchemy as sa

from penstock.errors import UsageError
from penstock.events.record import EventStage, Level
from penstock.store.columns import storable
from penstock.store.database import Tx
from penstock.store.schema import events

STAGES: tuple[str, ...] = get_args(EventStage)
LEVELS: tuple[str, ...] = get_args(Level)
PAGE = 1000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One event as it is read; `seq` is where to go on from."""

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
    """Which lines of a log; whatever is left open takes them all."""

    stages: tuple[str, ...] = ()
    level: str | None = None
    """Less serious lines are left out."""
    text: str | None = None
    """Somewhere in the message, the document or the source; case does not matter."""

    def __post_init__(self) -> None:
        """Words that no line has are refused at once, and the rest is as the store holds it."""
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
    """The next lines of this run and no other; `level` leaves less serious ones out."""
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
    """Lines of this run by their place among those that are wanted, in sequence; none that was
    written after line `upto`."""
    seq = events.c.seq
    # Numbers alone are counted off, from the index if they can be; whole lines only if shown.
    page = sa.select(seq).where(*_wanted(tx, run_id, wanted, upto)).order_by(seq)
    shown = seq.in_(page.offset(offset).limit(limit))
    return _lines(tx, _SELECT.where(shown).order_by(seq))


def count_log(tx: Tx, run_id: int, wanted: LogFilter, *, upto: int | None = None) -> int:
    counted = sa.select(sa.func.count()).where(*_wanted(tx, run_id, wanted, upto))
    return int(tx.execute(counted).scalar_one())


def any_holds(
    tx: Tx, columns: Iterable[sa.ColumnElement[Any]], text: str
) -> sa.ColumnElement[bool]:
    """Whether one of these columns has the text somewhere in it, whatever the case."""
    # SQLite's own LIKE knows both cases of English letters, and is many times as quick as `lower`.
    if tx.connection.dialect.name == "sqlite" and text.isascii():
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
