"""Reading a run's log: exact, in sequence, from where a reader stopped."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, get_args

import sqlalchemy as sa

from penstock.errors import UsageError
from penstock.events.record import EventStage, Level
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


def read_log(
    tx: Tx,
    run_id: int,
    *,
    after: int = 0,
    stages: Collection[str] = (),
    level: str | None = None,
    limit: int = PAGE,
) -> list[LogLine]:
    """The next lines of this run and no other; `level` leaves less serious ones out."""
    c = events.c
    columns = [c[name] for name in LogLine.__dataclass_fields__]
    query = sa.select(*columns).where(c.run_id == run_id, c.seq > after)
    if stages:
        query = query.where(c.stage.in_(_known(stages, STAGES, "stage")))
    if level:
        (lowest,) = _known([level], LEVELS, "level")
        query = query.where(c.level.in_(LEVELS[LEVELS.index(lowest) :]))
    return [LogLine(*row) for row in tx.execute(query.order_by(c.seq).limit(limit))]


def _known(given: Collection[str], known: tuple[str, ...], what: str) -> list[str]:
    upper = [one.upper() for one in given]
    for one in upper:
        if one not in known:
            raise UsageError(f"there is no {what} {one}: use {', '.join(known)}")
    return upper
