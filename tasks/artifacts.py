"""What a run shows in the Prefect UI: a live progress bar, a summary and a table of failures."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from penstock.documents import Stage
from penstock.runs.report import FailureGroup, RunReport
from penstock.runs.slowest import SlowDocument
from penstock.runs.vocabulary import DocumentStatus, RunStatus
from tasks.best_effort import best_effort

REFRESH_SECONDS = 2.0


class ProgressArtifact:
    """A progress bar that is written at most every few seconds."""

    def __init__(self, run_id: int) -> None:
        self._run_id = run_id
        self._id: UUID | None = None
        self._written_at = 0.0

    def due(self) -> bool:
        return time.monotonic() - self._written_at >= REFRESH_SECONDS

    def show(self, report: RunReport) -> None:
        self._written_at = time.monotonic()
        with best_effort(f"the progress of run {self._run_id}"):
            self._draw(report)

    def _draw(self, report: RunReport) -> None:
        if self._id is None:
            self._id = create_progress_artifact(  # type: ignore[assignment]  # sync here
                progress=0.0, key=f"run-{self._run_id}-progress"
            )
        done = report.documents - report.counts[DocumentStatus.PENDING]
        percent = 100.0 * done / report.documents if report.documents else 100.0
        update_progress_artifact(
            artifact_id=self._id,  # type: ignore[arg-type]  # set above
            progress=percent,
            description=_stages_line(report),
        )


def publish_summary(
    report: RunReport, failures: Sequence[FailureGroup], slowest: Sequence[SlowDocument]
) -> None:
    """Leave behind what a person wants to know about a run that ended."""
    with best_effort(f"the summary of run {report.run.id}"):
        _publish_summary(report, failures, slowest)


def _publish_summary(
    report: RunReport, failures: Sequence[FailureGroup], slowest: Sequence[SlowDocument]
) -> None:
    run_id = report.run.id
    create_markdown_artifact(
        key=f"run-{run_id}-summary",
        markdown=summary_markdown(report, slowest),
        description=f"Run {run_id}",
    )
    if failures:
        create_table_artifact(
            key=f"run-{run_id}-failures",
            table=[row for group in failures for row in _failure_rows(group)],
            description=f"Documents of run {run_id} that failed, by the class of their error",
        )


def summary_markdown(report: RunReport, slowest: Sequence[SlowDocument] = ()) -> str:
    """The summary of one run as Markdown."""
    figures = report.as_json()
    counts = "\n".join(f"| {status} | {count} |" for status, count in figures["counts"].items())
    problem = f"\n**{figures['error']}**\n" if figures["error"] else ""
    return f"""# Run {report.run.id} of {report.run.source_name}: {report.run.status}
{problem}
| documents | |
|---|---|
{counts}

- {figures["extractions"]} extracted, {figures["embeddings"]} embedded \
in {figures["seconds"]:.1f} s ({figures["documents_per_second"]:g} documents/s)
- {figures["llm_calls"]} model calls, {figures["tokens"]} tokens, ${figures["cost_usd"]:.4f}, \
fallback rate {figures["fallback_rate"]:.0%}
{_slowest_lines(slowest)}
Next: {_next_commands(report)}
"""


def _slowest_lines(slowest: Sequence[SlowDocument]) -> str:
    if not slowest:
        return ""
    lines = [f"| `{one.external_id}` | {one.seconds:.1f} s |" for one in slowest]
    return "\n".join(["\n| slowest documents | |", "|---|---|", *lines, ""])


def _next_commands(report: RunReport) -> str:
    run_id = report.run.id
    if report.run.status is not RunStatus.FINISHED:
        return f"`penstock logs {run_id} --level ERROR`, then start the same source again"
    if report.counts[DocumentStatus.ERROR]:
        return f"`penstock run {run_id}` · `penstock jobs retry --run {run_id} --all`"
    return f'`penstock run {run_id}` · `penstock search "…"`'


def _stages_line(report: RunReport) -> str:
    stages = [
        f"{stage} {report.stages[stage].done}/{report.stages[stage].total}" for stage in Stage
    ]
    failed = report.counts[DocumentStatus.ERROR]
    notes = [f"{failed} failed"] if failed else []
    if report.eta_seconds:
        notes.append(f"about {report.eta_seconds:.0f} s to go")
    return f"Run {report.run.id}: " + " · ".join([*stages, *notes])


def _failure_rows(group: FailureGroup) -> list[dict[str, Any]]:
    """One line for the class, with how many there are, and one for each of its examples."""
    return [
        {
            "class": group.error_class,
            "documents": group.documents if number == 0 else "",
            "example": line.external_id,
            "reason": line.reason,
            "link": line.url or "",
            "show": f"penstock show {line.node_id}" if line.node_id else "",
        }
        for number, line in enumerate(group.examples)
    ]
