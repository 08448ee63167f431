"""How a run went over time: what was completed when, and how long it took."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.queue.items import ItemStatus
from penstock.runs.report import seconds_between
from penstock.store.database import Tx
from penstock.store.schema import runs, work_items

# Latencies are those of about so many items, drawn evenly from the whole run.
SAMPLE = 3000
QUANTILES = (0.5, 0.95)
_SHORTEST_SLICE = 0.001


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was completed in each slice of a run; every stage is there."""

    begun: datetime
    ended: datetime
    """When the run was finished; while it goes on, now."""
    slice_seconds: float
    done: dict[Stage, list[int]]
    latency_seconds: dict[Stage, dict[float, float]]
    median_seconds: dict[Stage, list[float | None]]
    """Half of a slice's items took no longer; None where nothing was completed."""


def run_timeline(tx: Tx, run_id: int, slices: int = 60) -> Timeline | None:
    """None while nothing is completed, and when its items were deleted."""
    run = tx.execute(sa.select(runs).where(runs.c.id == run_id)).first()
    if run is None or run.started_at is None:
        return None
    begun, ended = run.started_at, run.finished_at or tx.now
    seconds = max((ended - begun).total_seconds() / slices, _SHORTEST_SLICE)
    c = work_items.c
    # What was retried by hand after the run had ended is not the run's.
    completed = sa.and_(c.run_id == run_id, c.status == ItemStatus.COMPLETE, c.finished_at <= ended)
    done = _done(tx, completed, begun, seconds, slices)
    total = sum(map(sum, done.values()))
    if not total:
        return None
    took = _took(tx, completed, total)
    return Timeline(
        begun,
        ended,
        seconds,
        done,
        {stage: quantiles([one for _, one in took[stage]], QUANTILES) for stage in Stage},
        {stage: _medians(took[stage], begun, seconds, slices) for stage in Stage},
    )


def quantiles(values: Sequence[float], wanted: Sequence[float]) -> dict[float, float]:
    """Each is one of the values; without values they are 0."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(wanted, 0.0)
    return {q: ordered[min(int(q * len(ordered)), len(ordered) - 1)] for q in wanted}


def took_seconds(row: sa.Row[Any]) -> float:
    """How long an item took; never negative, since the clocks of two processes may differ."""
    return max(0.0, float((row.finished_at - row.started_at).total_seconds()))


def _done(
    tx: Tx, completed: sa.ColumnElement[bool], begun: datetime, slice_seconds: float, slices: int
) -> dict[Stage, list[int]]:
    c = work_items.c
    since = seconds_between(tx, sa.literal(begun, c.finished_at.type), c.finished_at)
    slice_number = since / slice_seconds
    # SQLite, which may come without `floor`, rounds down when it casts.
    whole = sa.func.floor(slice_number) if tx.is_postgres else slice_number
    number = sa.cast(whole, sa.Integer).label("number")
    # By its name: written out twice, a value that is bound makes two expressions of it.
    counted = sa.select(c.stage, number, sa.func.count()).group_by(c.stage, "number")
    done = {stage: [0] * slices for stage in Stage}
    for stage, place, items in tx.execute(counted.where(completed)):
        # The very last moment belongs to the last slice.
        done[Stage(stage)][min(max(place, 0), slices - 1)] += items
    return done


def _took(
    tx: Tx, completed: sa.ColumnElement[bool], total: int
) -> dict[Stage, list[tuple[datetime, float]]]:
    """When some of the items were completed, and how long each of them took."""
    c = work_items.c
    # Odd, since items come in batches of a power of two: every place in a batch is drawn.
    every = (total // SAMPLE) | 1
    drawn = sa.and_(completed, c.started_at.is_not(None), c.id % every == 0)
    took: dict[Stage, list[tuple[datetime, float]]] = {stage: [] for stage in Stage}
    for row in tx.execute(sa.select(c.stage, c.started_at, c.finished_at).where(drawn)):
        took[Stage(row.stage)].append((row.finished_at, took_seconds(row)))
    return took


def _medians(
    took: Sequence[tuple[datetime, float]], begun: datetime, slice_seconds: float, slices: int
) -> list[float | None]:
    sorted_in: list[list[float]] = [[] for _ in range(slices)]
    for finished_at, seconds in took:
        number = int((finished_at - begun).total_seconds() / slice_seconds)
        sorted_in[min(max(number, 0), slices - 1)].append(seconds)
    return [quantiles(found, (0.5,))[0.5] if found else None for found in sorted_in]
