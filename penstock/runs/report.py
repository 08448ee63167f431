"""What a run has done so far, or did: the figures that people, artifacts and `--json` show."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.runs.lifecycle import count_column, count_documents, read_run
from penstock.runs.spending import Spending, run_spending
from penstock.runs.vocabulary import DocumentStatus, Run
from penstock.store.database import Tx
from penstock.store.schema import run_documents, runs, work_items
from penstock.work.items import ItemStatus, Outcome


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
class RunReport:
    """The whole picture of one run at one moment."""

    run: Run
    counts: dict[DocumentStatus, int]
    stages: dict[Stage, StageProgress]
    spending: Spending
    seconds: float

    @property
    def documents(self) -> int:
        return sum(self.counts.values())

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
            "counts": {str(status): count for status, count in self.counts.items()},
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


def report_run(tx: Tx, run_id: int, tenant_id: str | None = None) -> RunReport:
    """Everything about a run; for a finished one the counts are those it was finalized with."""
    run = read_run(tx, run_id, tenant_id)
    times = tx.execute(sa.select(runs).where(runs.c.id == run_id)).one()
    return RunReport(
        run=run,
        counts=count_documents(tx, run_id) if run.status.active else _final_counts(times),
        stages=_stages(tx, run_id),
        spending=run_spending(tx, run_id),
        seconds=_seconds(times.started_at, times.finished_at or tx.now),
    )


def list_reports(tx: Tx, tenant_id: str, limit: int) -> list[RunReport]:
    """The newest runs of a tenant."""
    newest = sa.select(runs.c.id).where(runs.c.tenant_id == tenant_id).order_by(runs.c.id.desc())
    return [report_run(tx, run_id) for run_id in tx.execute(newest.limit(limit)).scalars().all()]


def list_documents(tx: Tx, run_id: int, limit: int | None = None) -> list[DocumentLine]:
    """The documents of a run, failures first."""
    failures_first = sa.case((run_documents.c.status == DocumentStatus.ERROR, 0), else_=1)
    ordered = _select_documents(run_id).order_by(failures_first, run_documents.c.external_id)
    return [DocumentLine(**row._mapping) for row in tx.execute(ordered.limit(limit))]


def list_failures(tx: Tx, run_id: int) -> list[DocumentLine]:
    """The documents of a run that failed."""
    failed = _select_documents(run_id).where(run_documents.c.status == DocumentStatus.ERROR)
    rows = tx.execute(failed.order_by(run_documents.c.external_id))
    return [DocumentLine(**row._mapping) for row in rows]


def _select_documents(run_id: int) -> sa.Select[Any]:
    columns = [run_documents.c[name] for name in DocumentLine.__dataclass_fields__]
    return sa.select(*columns).where(run_documents.c.run_id == run_id)


def _final_counts(row: sa.Row[Any]) -> dict[DocumentStatus, int]:
    return {status: getattr(row, count_column(status)) or 0 for status in DocumentStatus}


def _seconds(started_at: datetime | None, until: datetime) -> float:
    return 0.0 if started_at is None else max((until - started_at).total_seconds(), 0.0)


def _stages(tx: Tx, run_id: int) -> dict[Stage, StageProgress]:
    c = work_items.c
    query = (
        sa.select(c.stage, c.status, c.outcome, sa.func.count().label("items"))
        .where(c.run_id == run_id)
        .group_by(c.stage, c.status, c.outcome)
    )
    rows = tx.execute(query).all()
    return {stage: _progress([row for row in rows if row.stage == stage]) for stage in Stage}


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
