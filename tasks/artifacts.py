"""What flow runs show in the Prefect UI: progress, summaries, failures, figures."""

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.exceptions import PrefectException

from penstock.backfill.backfill import Dispatcher
from penstock.backfill.canary import count_done
from penstock.backfill.canary_report import canary_markdown
from penstock.backfill.estimate import Estimate
from penstock.documents import Stage
from penstock.maintenance.retention import Maintained, MaintenanceStep, in_short
from penstock.runs.execute import read_report
from penstock.runs.report import FailureGroup, RunReport, SlowDocument
from penstock.runs.run import DocumentStatus, Run, RunStatus
from penstock.store.database import Database

log = logging.getLogger(__name__)


@contextmanager
def best_effort(what: str) -> Iterator[None]:
    """What cannot be shown, because the server is away, is no reason to stop the work."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("%s could not be shown in Prefect: %s", what, error)


REFRESH_SECONDS = 2.0
# Of the time of a large run, whose documents take a while to count.
MOST_SHARE = 0.02


class ProgressArtifact:
    """A progress bar that is written at most every few seconds, and seldom if that takes long.

    `read` gives how much is done, in percent, and a line of text.
    """

    def __init__(self, key: str, read: Callable[[], tuple[float, str]]) -> None:
        self._key = key
        self._read = read
        self._id: UUID | None = None
        self._next_at = 0.0

    def refresh(self) -> None:
        if time.monotonic() >= self._next_at:
            self.show()

    def show(self) -> None:
        started = time.monotonic()
        self._write()
        ended = time.monotonic()
        self._next_at = ended + max(REFRESH_SECONDS, (ended - started) / MOST_SHARE)

    def _write(self) -> None:
        percent, description = self._read()
        with best_effort(f"the artifact {self._key}"):
            if self._id is None:
                self._id = create_progress_artifact(  # type: ignore[assignment]  # sync here
                    progress=0.0, key=self._key
                )
            update_progress_artifact(
                artifact_id=self._id,  # type: ignore[arg-type]  # set above
                progress=percent,
                description=description,
            )


# Prefect shows the history of an artifact by its key, which has lower-case letters, digits and
# dashes.
_NOT_IN_KEYS = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 60


def source_key(run: Run) -> str:
    """The key of what is shown about a source: `ingest-<source>`, so that Prefect shows the history
    of all its runs. A name that had to be changed has a part that is its own."""
    name = _NOT_IN_KEYS.sub("-", run.source_name.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    if name == run.source_name and run.tenant_id == "default":
        return f"ingest-{name}"
    own = hashlib.sha256(f"{run.tenant_id}\n{run.source_name}".encode()).hexdigest()[:6]
    return f"ingest-{name}-{own}" if name else f"ingest-{own}"


def run_progress(database: Database, run: Run) -> ProgressArtifact:
    """The progress bar of a run."""

    def read() -> tuple[float, str]:
        report = read_report(database, run.id)
        done = report.documents - report.counts[DocumentStatus.PENDING]
        percent = 100.0 * done / report.documents if report.documents else 100.0
        return percent, _stages_line(report)

    return ProgressArtifact(f"{source_key(run)}-progress", read)


def publish_summary(
    report: RunReport,
    outcome: str,
    failures: Sequence[FailureGroup],
    slowest: Sequence[SlowDocument],
) -> None:
    """Leave behind what a person wants to know about a run that ended or paused."""
    run = report.run
    with best_effort(f"the summary of run {run.id}"):
        create_markdown_artifact(
            key=source_key(run),
            markdown=summary_markdown(report, slowest, outcome),
            description=f"Run {run.id}: {outcome}",
        )
        if failures:
            create_table_artifact(
                key=f"{source_key(run)}-failures",
                table=[row for group in failures for row in _failure_rows(group)],
                description=f"Documents of run {run.id} that failed, by the class of their error",
            )


def summary_markdown(
    report: RunReport, slowest: Sequence[SlowDocument] = (), outcome: str = ""
) -> str:
    """The summary of one run as Markdown."""
    figures = report.as_json()
    counts = "\n".join(f"| {status} | {count} |" for status, count in figures["counts"].items())
    problem = f"\n**{figures['error']}**\n" if figures["error"] else ""
    return f"""# Run {report.run.id} of {report.run.source_name}: {report.run.shown_status}
{problem}
{outcome}

| documents | |
|---|---|
{counts}

- {figures["extractions"]} extracted, {figures["stages"]["extract"]["reused"]} reused, \
{figures["embeddings"]} embedded in {figures["seconds"]:.1f} s \
({figures["documents_per_second"]:g} documents/s)
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
    if report.run.paused_reason:
        return f"mend what is named above, then `penstock resume {run_id}`, or resume the flow run"
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


def backfill_progress(dispatcher: Dispatcher, expected: int) -> ProgressArtifact:
    """The progress bar of a backfill."""
    backfill_id = dispatcher.backfill_id

    def read() -> tuple[float, str]:
        enqueued, left = dispatcher.read().enqueued, dispatcher.count_left()
        done, whole = max(0, enqueued - left), max(expected, enqueued)
        percent = 100.0 * done / whole if whole else 100.0
        return percent, f"Backfill {backfill_id}: {done} of {whole} nodes done"

    return ProgressArtifact(f"backfill-{backfill_id}-progress", read)


def canary_progress(database: Database, canary_id: int) -> ProgressArtifact:
    """The progress bar of a canary."""

    def read() -> tuple[float, str]:
        with database.read() as tx:
            done, total = count_done(tx, canary_id)
        return 100.0 * done / total, f"Canary {canary_id}: {done} of {total} documents done"

    return ProgressArtifact(f"canary-{canary_id}-progress", read)


def publish_canary(found: dict[str, Any]) -> None:
    """Leave behind what a canary has found."""
    with best_effort(f"the report of canary {found['id']}"):
        create_markdown_artifact(
            key=f"canary-{found['id']}-report",
            markdown=canary_markdown(found),
            description=f"Canary {found['id']}",
        )


def publish_estimate(estimate: Estimate) -> None:
    """Leave behind what a dry run found."""
    with best_effort("the estimate of the backfill"):
        create_markdown_artifact(
            key="backfill-estimate",
            markdown=estimate_markdown(estimate),
            description=f"Dry run: {estimate.selection}",
        )


def publish_end(figures: dict[str, Any]) -> None:
    """Leave behind what became of it."""
    with best_effort(f"the summary of backfill {figures['id']}"):
        create_markdown_artifact(
            key=f"backfill-{figures['id']}-summary",
            markdown=_end_markdown(figures),
            description=f"Backfill {figures['id']}",
        )


def estimate_markdown(estimate: Estimate) -> str:
    """The estimate as Markdown."""
    reasons = _rows(estimate.reasons)
    stages = _rows(estimate.stages)
    return f"""# Backfill of {estimate.selection}: dry run

{estimate.nodes} of {estimate.matching} nodes, {estimate.extractions} extractions, \
estimated cost {estimate.cost}. Nothing was changed.

| reason | nodes |
|---|---|
{reasons}

| begins with | nodes |
|---|---|
{stages}
"""


def _rows(counts: Any) -> str:
    return "\n".join(f"| {name} | {count} |" for name, count in counts.items())


def _end_markdown(figures: dict[str, Any]) -> str:
    return f"""# Backfill {figures["id"]}: {figures["status"]}

- {figures["enqueued"]} nodes were put to work, {figures["failed"]} failed
- reasons: {", ".join(figures["reasons"])}
- vectors: {figures["vectors"] or "as they were"}

Next: `penstock status` · `penstock jobs list --status failed`
"""


def publish_figures(done: Maintained) -> None:
    """Leave behind what a person wants to know about it."""
    with best_effort("the figures of maintenance"):
        create_markdown_artifact(
            key="maintenance", markdown=figures_markdown(done), description="Maintenance"
        )


def figures_markdown(done: Maintained) -> str:
    """The figures as Markdown."""
    title = "# What maintenance would delete" if done.dry_run else "# Maintenance"
    lines = [title, "", "| part | objects | size | seconds | |", "|---|---:|---:|---:|---|"]
    lines += [row for part in done.parts for row in _maintenance_rows(part)]
    lines += [f"\n**{failure}**" for failure in done.failures]
    return "\n".join(lines)


def _maintenance_rows(part: MaintenanceStep) -> Iterator[str]:
    note = f"**failed:** {_cell(part.error)}" if part.error is not None else _cell(part.note)
    if not part.figures:
        yield f"| {part.name} | | | {part.seconds:.1f} | {note} |"
    for figure in part.figures:
        size = "" if figure.bytes is None else in_short(figure.bytes)
        yield f"| {figure.what} | {figure.count:,} | {size} | {part.seconds:.1f} | {note} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
