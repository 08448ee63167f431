"""What a run has done so far, or did: the figures that people, artifacts and `--json` show."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.runs.figures import StageProgress, read_figures
from penstock.runs.lifecycle import (
    count_column,
    count_documents,
    read_run,
    run_from,
    select_runs,
)
from penstock.runs.spending import Spending, run_spending
from penstock.runs.vocabulary import Change, DocumentStatus, Run
from penstock.store.database import Tx
from penstock.store.schema import run_documents, runs


@dataclass(frozen=True, slots=True)
class RunReport:
    """The whole picture of one run at one moment."""

    run: Run
    counts: dict[DocumentStatus, int]
    stages: dict[Stage, StageProgress]
    changes: dict[Change, int]
    spending: Spending
    seconds: float
    listed: bool
    """Whether all its documents are known, so that one can say how much is left."""

    @property
    def documents(self) -> int:
        return sum(self.counts.values())

    @property
    def eta_seconds(self) -> float | None:
        """How long the rest will take at the pace so far; None when nobody can tell."""
        rate, pending = self.documents_per_second, self.counts[DocumentStatus.PENDING]
        if not self.run.status.active or not self.listed or not rate:
            return None
        return round(pending / rate, 1)

    @property
    def documents_per_second(self) -> float:
        done = self.documents - self.counts[DocumentStatus.PENDING]
        return round(done / self.seconds, 2) if self.seconds else 0.0

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
            "changes": {str(change): count for change, count in self.changes.items()},
            "stages": {str(stage): asdict(done) for stage, done in self.stages.items()},
            "sources": [self._source_line()],
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

    def _source_line(self) -> dict[str, Any]:
        return {
            "name": self.run.source_name,
            "kind": self.run.source_kind,
            "location": self.run.location,
            "listed": self.listed,
            "documents": self.documents,
            "done": self.documents - self.counts[DocumentStatus.PENDING],
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
        return {
            "error_class": self.error_class,
            "documents": self.documents,
            "examples": shown,
        }


def report_run(tx: Tx, run_id: int, tenant_id: str | None = None) -> RunReport:
    """Everything about a run; for a finished one the counts are those it was finalized with."""
    run = read_run(tx, run_id, tenant_id)
    (report,) = _report(tx, select_runs().where(runs.c.id == run.id))
    return report


def list_reports(tx: Tx, tenant_id: str, limit: int, before: int | None = None) -> list[RunReport]:
    """The newest runs of a tenant; `before` only those with smaller ids: where a page ended."""
    newest = select_runs().where(runs.c.tenant_id == tenant_id).order_by(runs.c.id.desc())
    if before is not None:
        newest = newest.where(runs.c.id < before)
    return _report(tx, newest.limit(limit))


def _report(tx: Tx, chosen: sa.Select[Any]) -> list[RunReport]:
    """Each thing is asked once for all of them, but for documents of runs that go on."""
    rows = tx.execute(chosen).all()
    ids = [row.id for row in rows]
    figures, spending = read_figures(tx, ids), run_spending(tx, ids)
    return [
        RunReport(
            run=run,
            counts=count_documents(tx, run.id) if run.status.active else _final_counts(row),
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
    failures_first = sa.case((run_documents.c.status == DocumentStatus.ERROR, 0), else_=1)
    ordered = select_documents(run_id).order_by(failures_first, run_documents.c.external_id)
    return [DocumentLine(**row._mapping) for row in tx.execute(ordered.limit(limit))]


def group_failures(tx: Tx, run_id: int, examples: int = 3) -> list[FailureGroup]:
    """The failures of a run by class, the most frequent first."""
    c = run_documents.c
    number = sa.func.row_number().over(partition_by=c.error_class, order_by=c.external_id)
    together = sa.func.count().over(partition_by=c.error_class)
    columns = [c[name] for name in DocumentLine.__dataclass_fields__]
    failed = sa.select(*columns, number.label("number"), together.label("together")).where(
        c.run_id == run_id, c.status == DocumentStatus.ERROR
    )
    some = failed.subquery()
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


def select_documents(run_id: int) -> sa.Select[Any]:
    columns = [run_documents.c[name] for name in DocumentLine.__dataclass_fields__]
    return sa.select(*columns).where(run_documents.c.run_id == run_id)


def _final_counts(row: sa.Row[Any]) -> dict[DocumentStatus, int]:
    return {status: getattr(row, count_column(status)) or 0 for status in DocumentStatus}


def _seconds(started_at: datetime | None, until: datetime) -> float:
    return 0.0 if started_at is None else max((until - started_at).total_seconds(), 0.0)


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
