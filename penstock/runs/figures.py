"""What became of a run's documents, by stage and by change: counted, or kept from when it was."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.runs.vocabulary import ENDED_STATUSES, Change
from penstock.store.database import Database, Tx
from penstock.store.schema import run_documents, runs, work_items
from penstock.work.items import ItemStatus, Outcome

_ENDED = runs.c.status.in_(ENDED_STATUSES)


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Items of one stage of one run."""

    total: int = 0
    done: int = 0
    failed: int = 0
    reused: int = 0
    worked: int = 0
    """Completed by really doing it: not skipped, not reused, not unchanged."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Every stage and every change is there."""

    stages: dict[Stage, StageProgress]
    changes: dict[Change, int]

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        return cls(
            {stage: StageProgress(**kept["stages"][stage]) for stage in Stage},
            {change: kept["changes"][change] for change in Change},
        )

    def as_json(self) -> dict[str, Any]:
        stages = {str(stage): asdict(progress) for stage, progress in self.stages.items()}
        return {"stages": stages, "changes": {str(one): n for one, n in self.changes.items()}}


def read_figures(tx: Tx, run_ids: Iterable[int]) -> dict[int, RunFigures]:
    """Those that were kept, if any were: what they were counted from may be gone."""
    ids = set(run_ids)
    kept = sa.select(runs.c.id, runs.c.figures).where(
        tx.among(runs.c.id, ids), runs.c.figures.is_not(None)
    )
    found = {row.id: RunFigures.from_json(row.figures) for row in tx.execute(kept)}
    unkept = ids - found.keys()
    return found | _count_figures(tx, unkept) if unkept else found


def keep_figures(database: Database, run_ids: Iterable[int]) -> None:
    """Write down the figures of ended runs, once: before anything that they count is forgotten."""
    with database.read() as tx:
        unkept = sa.select(runs.c.id).where(runs.c.figures.is_(None), _ENDED)
        ids = tx.execute(unkept.where(tx.among(runs.c.id, set(run_ids)))).scalars().all()
    for run_id in ids:
        with database.read() as tx:
            found = read_figures(tx, [run_id])[run_id]
        with database.write() as tx:
            # Whoever was first has counted everything.
            first = sa.update(runs).where(runs.c.id == run_id, runs.c.figures.is_(None))
            tx.execute(first.values(figures=found.as_json()))


def _count_figures(tx: Tx, run_ids: Collection[int]) -> dict[int, RunFigures]:
    changes, items = _changes(tx, run_ids), _items(tx, run_ids)
    return {
        run_id: RunFigures(
            {stage: _progress(items[run_id, stage]) for stage in Stage},
            {change: changes.get((run_id, change), 0) for change in Change},
        )
        for run_id in run_ids
    }


def _changes(tx: Tx, run_ids: Collection[int]) -> dict[tuple[int, str], int]:
    c = run_documents.c
    counted = sa.select(c.run_id, c.change, sa.func.count()).where(tx.among(c.run_id, run_ids))
    return {(row[0], row[1]): row[2] for row in tx.execute(counted.group_by(c.run_id, c.change))}


def _items(tx: Tx, run_ids: Collection[int]) -> defaultdict[tuple[int, str], list[sa.Row[Any]]]:
    c = work_items.c
    each = (c.run_id, c.stage, c.status, c.outcome)
    counted = sa.select(*each, sa.func.count().label("items")).where(tx.among(c.run_id, run_ids))
    found: defaultdict[tuple[int, str], list[sa.Row[Any]]] = defaultdict(list)
    for row in tx.execute(counted.group_by(*each)):
        found[row.run_id, row.stage].append(row)
    return found


def _progress(rows: list[sa.Row[Any]]) -> StageProgress:
    def count(**wanted: str) -> int:
        return sum(
            row.items for row in rows if all(getattr(row, k) == v for k, v in wanted.items())
        )

    return StageProgress(
        total=count(),
        done=count(status=ItemStatus.COMPLETE),
        failed=count(status=ItemStatus.FAILED),
        reused=count(outcome=Outcome.REUSED),
        worked=count(outcome=Outcome.DONE),
    )
