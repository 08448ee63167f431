"""What a run has done so far: counts, failures, documents, slowest ones."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Self

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.events import any_holds
from penstock.queue.items import ItemStatus, Outcome
from penstock.queue.stats import count_run_items
from penstock.runs.costs import Spending, run_spending
from penstock.runs.lifecycle import (
    count_column,
    count_documents,
    count_for_review,
    name_outcome,
    read_run,
    run_from,
    select_runs,
)
from penstock.runs.run import ENDED_STATUSES, Change, DocumentStatus, Run
from penstock.store.columns import storable
from penstock.store.database import Database, Tx
from penstock.store.schema import nodes, run_documents, runs, work_items

_ENDED = runs.c.status.in_(ENDED_STATUSES)


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Items of one stage of one run."""

    total: int = 0
    done: int = 0
    failed: int = 0
    reused: int = 0
    worked: int = 0
    """Completed by doing the work: not skipped, not reused, not unchanged."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Counts of one run; every stage and every change is there."""

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
    """The kept figures of these runs, since the rows they were counted from may be deleted; those
    without are counted."""
    ids = set(run_ids)
    kept = sa.select(runs.c.id, runs.c.figures).where(
        tx.among(runs.c.id, ids), runs.c.figures.is_not(None)
    )
    found = {row.id: RunFigures.from_json(row.figures) for row in tx.execute(kept)}
    unkept = ids - found.keys()
    return found | _count_figures(tx, unkept) if unkept else found


def keep_figures(database: Database, run_ids: Iterable[int]) -> None:
    """Keep the figures of ended runs, once, before the rows they are counted from are deleted."""
    with database.read() as tx:
        unkept = sa.select(runs.c.id).where(runs.c.figures.is_(None), _ENDED)
        ids = tx.execute(unkept.where(tx.among(runs.c.id, set(run_ids)))).scalars().all()
    for run_id in ids:
        with database.read() as tx:
            found = read_figures(tx, [run_id])[run_id]
        with database.write() as tx:
            # The first to keep them has counted everything.
            first = sa.update(runs).where(runs.c.id == run_id, runs.c.figures.is_(None))
            tx.execute(first.values(figures=found.as_json()))


def _count_figures(tx: Tx, run_ids: Collection[int]) -> dict[int, RunFigures]:
    c = run_documents.c
    counted = sa.select(c.run_id, c.change, sa.func.count()).where(tx.among(c.run_id, run_ids))
    by_change = tx.execute(counted.group_by(c.run_id, c.change))
    changes = {(row[0], row[1]): row[2] for row in by_change}
    items: defaultdict[tuple[int, str], list[sa.Row[Any]]] = defaultdict(list)
    for row in count_run_items(tx, run_ids):
        items[row.run_id, row.stage].append(row)
    return {
        run_id: RunFigures(
            {stage: _progress(items[run_id, stage]) for stage in Stage},
            {change: changes.get((run_id, change), 0) for change in Change},
        )
        for run_id in run_ids
    }


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


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run at one moment: documents, stages, changes and cost."""

    run: Run
    counts: dict[DocumentStatus, int]
    stages: dict[Stage, StageProgress]
    changes: dict[Change, int]
    spending: Spending
    seconds: float
    listed: bool
    """Whether all its documents are known, so that the rest can be estimated."""
    needs_review: int = 0
    """Of those that are ready."""

    @property
    def documents(self) -> int:
        return sum(self.counts.values())

    @property
    def confident(self) -> int:
        """Documents that are ready and need no review."""
        return self.counts[DocumentStatus.READY] - self.needs_review

    @property
    def eta_seconds(self) -> float | None:
        """How long the rest will take at the pace so far; None when that is unknown."""
        rate, pending = self.documents_per_second, self.counts[DocumentStatus.PENDING]
        if not self.run.status.active or not self.listed or not rate:
            return None
        return round(pending / rate, 1)

    @property
    def done(self) -> int:
        return self.documents - self.counts[DocumentStatus.PENDING]

    @property
    def documents_per_second(self) -> float:
        return round(self.done / self.seconds, 2) if self.seconds else 0.0

    @property
    def fallback_rate(self) -> float:
        extracted = self.stages[Stage.EXTRACT].worked
        return self.spending.fallbacks / extracted if extracted else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run.id,
            "status": self.run.status,
            "source": self.run.source_name,
            "tenant": self.run.tenant_id,
            "flow_run_id": self.run.flow_run_id,
            "created_at": self.run.created_at.isoformat(),
            "started_at": _iso(self.run.started_at),
            "finished_at": _iso(self.run.finished_at),
            "counts": {str(status): count for status, count in self.counts.items()},
            "needs_review": self.needs_review,
            "changes": {str(change): count for change, count in self.changes.items()},
            "stages": {str(stage): asdict(done) for stage, done in self.stages.items()},
            "sources": [
                {
                    "name": self.run.source_name,
                    "kind": self.run.source_kind,
                    "location": self.run.location,
                    "listed": self.listed,
                    "documents": self.documents,
                    "done": self.done,
                }
            ],
            "listed": self.listed,
            "eta_seconds": self.eta_seconds,
            **self.spending.as_json(),
            "fallback_rate": round(self.fallback_rate, 4),
            "extractions": self.stages[Stage.EXTRACT].worked,
            "embeddings": self.stages[Stage.EMBED].worked,
            "seconds": round(self.seconds, 3),
            "documents_per_second": self.documents_per_second,
            "paused_reason": self.run.paused_reason,
            "error": self.run.error or self.run.paused_reason,
        }


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """One document of a run, for a table."""

    external_id: str
    node_id: str | None
    url: str | None
    status: DocumentStatus
    change: str
    reason: str | None
    error_class: str | None
    needs_review: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Documents of a run that failed for the same reason, with a few examples."""

    error_class: str
    documents: int
    examples: tuple[DocumentLine, ...]

    def as_json(self) -> dict[str, Any]:
        shown = [{"document": one.external_id, "reason": one.reason} for one in self.examples]
        return {"error_class": self.error_class, "documents": self.documents, "examples": shown}


def report_run(tx: Tx, run_id: int, tenant_id: str | None = None) -> RunReport:
    """Everything about a run; for a finished one the counts are those it was finalized with."""
    read_run(tx, run_id, tenant_id)
    (report,) = _report(tx, select_runs().where(runs.c.id == run_id))
    return report


def list_reports(tx: Tx, tenant_id: str, limit: int, before: int | None = None) -> list[RunReport]:
    """The newest runs of a tenant; `before` only those with smaller ids: where a page ended."""
    newest = select_runs().where(runs.c.tenant_id == tenant_id).order_by(runs.c.id.desc())
    if before is not None:
        newest = newest.where(runs.c.id < before)
    return _report(tx, newest.limit(limit))


def _report(tx: Tx, chosen: sa.Select[Any]) -> list[RunReport]:
    """One query of a kind for all of them, but for the documents of active runs."""
    rows = tx.execute(chosen).all()
    ids = [row.id for row in rows]
    figures, spending = read_figures(tx, ids), run_spending(tx, ids)
    return [
        RunReport(
            run=run,
            counts=count_documents(tx, run.id)
            if run.status.active
            else {status: getattr(row, count_column(status)) or 0 for status in DocumentStatus},
            needs_review=count_for_review(tx, run.id)
            if run.status.active
            else row.needs_review or 0,
            stages=figures[run.id].stages,
            changes=figures[run.id].changes,
            spending=spending[run.id],
            seconds=_seconds(run.started_at, run.finished_at or tx.now),
            listed=row.listed_at is not None,
        )
        for run, row in ((run_from(row), row) for row in rows)
    ]


def list_documents(tx: Tx, run_id: int, limit: int | None = None) -> list[DocumentLine]:
    """The documents of a run, failures first."""
    is_error = run_documents.c.status == DocumentStatus.ERROR
    # Apart, so that each comes in the order of an index and no whole run is sorted for a page; in
    # one statement, so that a document whose status changes meanwhile is shown once.
    apart = [
        select_documents(run_id)
        .add_columns(sa.literal(place, sa.Integer).label("place"))
        .where(condition)
        .order_by(run_documents.c.external_id)
        .limit(limit)
        .subquery()
        for place, condition in enumerate((is_error, ~is_error))
    ]
    found = sa.union_all(*[sa.select(one) for one in apart]).subquery()
    columns = [found.c[name] for name in DocumentLine.__dataclass_fields__]
    ordered = sa.select(*columns).order_by(found.c.place, found.c.external_id).limit(limit)
    return [DocumentLine(**row._mapping) for row in tx.execute(ordered)]


def group_failures(tx: Tx, run_id: int, examples: int = 3) -> list[FailureGroup]:
    """The failures of a run by class, the most frequent first."""
    c = run_documents.c
    number = sa.func.row_number().over(partition_by=c.error_class, order_by=c.external_id)
    together = sa.func.count().over(partition_by=c.error_class)
    failed = select_documents(run_id).where(c.status == DocumentStatus.ERROR)
    some = failed.add_columns(number.label("number"), together.label("together")).subquery()
    rows = tx.execute(
        sa.select(some)
        .where(some.c.number <= examples)
        .order_by(some.c.together.desc(), some.c.error_class, some.c.number)
    ).all()
    return [_group(found) for _, found in groupby(rows, key=lambda row: row.error_class)]


def _group(rows: Iterable[sa.Row[Any]]) -> FailureGroup:
    found = list(rows)
    names = DocumentLine.__dataclass_fields__
    lines = [DocumentLine(**{name: getattr(row, name) for name in names}) for row in found]
    return FailureGroup(found[0].error_class or "unknown", found[0].together, tuple(lines))


def name_documents(report: RunReport) -> str:
    """ "49 documents: 7 confident, 37 need review, 5 failed"."""
    doubtful = report.needs_review
    named = {
        "confident": report.confident,
        "needs review" if doubtful == 1 else "need review": doubtful,
        "failed": report.counts[DocumentStatus.ERROR],
        **{name: report.counts[status] for status, name in _OTHERS.items()},
    }
    parts = [f"{count:,} {name}" for name, count in named.items() if count]
    whole = report.documents
    return f"{whole:,} document{'s' * (whole != 1)}" + (f": {', '.join(parts)}" if parts else "")


_OTHERS = {
    DocumentStatus.SKIPPED: "unchanged",
    DocumentStatus.EXPIRED: "gone",
    DocumentStatus.PENDING: "not done",
}


def outcome_line(tx: Tx, report: RunReport) -> str:
    """What became of a run's documents, with those that need review and those that were reused."""
    return name_outcome(
        tx,
        report.run.id,
        report.counts,
        doubtful=report.needs_review,
        reused=report.stages[Stage.EXTRACT].reused,
    )


def select_documents(run_id: int) -> sa.Select[Any]:
    columns = [run_documents.c[name] for name in DocumentLine.__dataclass_fields__]
    return sa.select(*columns).where(run_documents.c.run_id == run_id)


def _seconds(started_at: datetime | None, until: datetime) -> float:
    return 0.0 if started_at is None else max((until - started_at).total_seconds(), 0.0)


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


@dataclass(frozen=True, slots=True)
class OutcomeFilter:
    """Which documents of a run."""

    run_id: int
    status: DocumentStatus | None = None
    change: Change | None = None
    error_class: str | None = None
    text: str | None = None
    """Part of the external id, the address or the reason, in any case."""
    after: str | None = None
    """Only documents behind this external id, with which the page before ended."""

    def conditions(self, tx: Tx) -> list[sa.ColumnElement[bool]]:
        c = run_documents.c
        exact = {name: getattr(self, name) for name in ("status", "change", "error_class")}
        found = [c[name] == value for name, value in exact.items() if value is not None]
        if self.text:
            found.append(any_holds(tx, (c.external_id, c.url, c.reason), storable(self.text)))
        if self.after is not None:
            found.append(c.external_id > self.after)
        return found


def page_documents(tx: Tx, wanted: OutcomeFilter, limit: int) -> list[DocumentLine]:
    """By external id, which is the order of the primary key: a page costs what it shows."""
    page = select_documents(wanted.run_id).where(*wanted.conditions(tx))
    rows = tx.execute(page.order_by(run_documents.c.external_id).limit(limit))
    return [DocumentLine(**row._mapping) for row in rows]


@dataclass(frozen=True, slots=True)
class SlowDocument:
    """How long the stages of one document took together."""

    external_id: str
    node_id: str
    seconds: float


def list_slowest(tx: Tx, run_id: int, limit: int = 5) -> list[SlowDocument]:
    """The documents whose stages took longest, without the time that they waited."""
    c = work_items.c
    took = seconds_between(tx, c.started_at, c.finished_at)
    # Names are looked up for the few that are shown: a run may have a hundred thousand documents.
    longest = (
        sa.select(c.node_id, sa.func.sum(took).label("seconds"))
        .where(c.run_id == run_id, c.status == ItemStatus.COMPLETE, c.started_at.is_not(None))
        .group_by(c.node_id)
        .order_by(sa.desc("seconds"), c.node_id)
        .limit(limit)
        .subquery()
    )
    query = (
        sa.select(nodes.c.external_id, longest.c.node_id, longest.c.seconds)
        .join(nodes, nodes.c.id == longest.c.node_id)
        .order_by(longest.c.seconds.desc(), nodes.c.external_id)
    )
    return [
        SlowDocument(row.external_id, str(row.node_id), max(0.0, float(row.seconds)))
        for row in tx.execute(query)
    ]


def seconds_between(
    tx: Tx, begun: sa.ColumnElement[Any], ended: sa.ColumnElement[Any]
) -> sa.ColumnElement[Any]:
    if tx.is_postgres:
        # A float at once: what EXTRACT gives is exact, and slow to compute with.
        return sa.func.date_part("epoch", ended - begun)
    days = sa.func.julianday(ended) - sa.func.julianday(begun)
    return days * 86400.0
