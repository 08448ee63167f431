"""`penstock ingest`: one source, from its listing to searchable records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import typer

from entrypoints.cli.interrupts import Interruption
from entrypoints.cli.output import Json, Tenant, console, print_error, print_json
from entrypoints.cli.runs import print_end, print_failures
from penstock.app import App, open_app
from penstock.errors import PenstockError, RunRefused, UsageError
from penstock.runs.execute import open_source_run
from penstock.runs.lifecycle import pause_unheld, read_run
from penstock.runs.report import (
    RunReport,
    group_failures,
    name_documents,
    outcome_line,
    report_run,
)
from penstock.runs.run import DocumentStatus, Run, RunStatus
from penstock.settings import Settings, load_settings


def ingest(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE…",
            help="The name of a source, a folder, a file, a file of URLs, the URL of a site, "
            "sitemap, feed or job board, or s3://bucket/prefix.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every source of the tenant.")] = False,
    tenant: Tenant = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Fields to extract: resume, job_posting, document. Default: found from each "
            "document's content."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Process unchanged documents too.")
    ] = False,
    force_document: Annotated[
        list[str] | None,
        typer.Option(help="Process this one although unchanged (id, URL or node id)."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any document failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Crawl, extract, embed and index sources. Unchanged documents are skipped."""
    settings = load_settings()
    tenant_id = tenant or settings.tenant
    chosen = _choose_sources(settings, sources or [], every, tenant_id)
    results = _Results(settings, strict, json, in_list=every or len(chosen) > 1)
    for source in chosen:
        try:
            result = run_ingest(
                settings,
                source,
                tenant_id,
                profile=profile,
                force=force,
                documents=force_document or [],
                on_interrupt=results.add_last,
            )
        except PenstockError as error:
            results.add_refusal(error)
            continue
        results.add(result)
        if result.interrupted:
            break
    results.print_json()
    raise typer.Exit(max(results.codes))


@dataclass(slots=True)
class _Results:
    """The results of one or several sources, printed as they come or, as JSON, together."""

    settings: Settings
    strict: bool
    json: bool
    in_list: bool
    codes: list[int] = field(default_factory=list)
    _shown: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: "IngestResult") -> None:
        if not self.json:
            print_result(self.settings, result)
        self.codes.append(result.exit_code(self.strict))
        self._shown.append(result.as_json())

    def add_refusal(self, error: PenstockError) -> None:
        if not self.json:
            print_error(str(error))
        self.codes.append(2 if isinstance(error, UsageError) else 1)
        self._shown.append(_not_run(error))

    def print_json(self) -> None:
        if self.json:
            print_json(self._shown if self.in_list else self._shown[0])

    def add_last(self, result: "IngestResult") -> None:
        """For the only result, or a command that ends before its flow has."""
        self.add(result)
        self.print_json()


def _choose_sources(
    settings: Settings, sources: list[str], every: bool, tenant_id: str
) -> list[str]:
    from penstock.sources.catalogue import list_sources

    if every == bool(sources):
        raise UsageError("name one or more sources to ingest, or use --all")
    if sources:
        return sources
    with open_app(settings) as app, app.database.read() as tx:
        found = [source.name for source in list_sources(tx, tenant_id)]
    if not found:
        raise UsageError("there are no sources yet: penstock source add NAME LOCATION")
    return found


def resume(
    run_id: Annotated[int, typer.Argument(help="The run to resume.")],
    tenant: Tenant = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any document failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Resume a paused or interrupted run where it stopped."""
    settings = load_settings()
    with open_app(settings) as app, app.database.read() as tx:
        run = read_run(tx, run_id, tenant or settings.tenant)
    if not run.status.active:
        raise UsageError(
            f"run {run_id} is {run.status}: there is nothing to resume; "
            f"`penstock ingest {run.location}` starts a new one"
        )
    results = _Results(settings, strict, json, in_list=False)
    with open_app(settings) as app:
        results.add_last(_run_to_end(settings, app, run, results.add_last))
    raise typer.Exit(max(results.codes))


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The report of a run, and the error of its flow if that failed."""

    report: RunReport
    outcome: str
    """What became of its documents."""
    failure: str | None = None
    interrupted_code: int | None = None
    """The exit code of a command that was interrupted."""

    @property
    def interrupted(self) -> bool:
        return self.interrupted_code is not None

    @property
    def problem(self) -> str | None:
        run = self.report.run
        failure = None if run.status is RunStatus.FINISHED else self.failure
        return run.error or run.paused_reason or failure

    def as_json(self) -> dict[str, Any]:
        return self.report.as_json() | {"error": self.problem}

    def exit_code(self, strict: bool) -> int:
        if self.interrupted_code is not None:
            return self.interrupted_code
        if self.report.run.status is not RunStatus.FINISHED:
            return 1
        return 1 if strict and self.report.counts[DocumentStatus.ERROR] else 0


OnInterrupt = Callable[[IngestResult], None]


def run_ingest(
    settings: Settings,
    source: str,
    tenant: str,
    *,
    profile: str | None = None,
    force: bool = False,
    documents: Sequence[str] = (),
    on_interrupt: OnInterrupt | None = None,
) -> IngestResult:
    """Record a run, run its flow, and return the result.

    `on_interrupt` is called instead if this process has to end before the flow has.
    """
    with open_app(settings) as app:
        run = open_source_run(
            app.sources, source, tenant, profile=profile, force=force, documents=documents
        )
        return _run_to_end(settings, app, run, on_interrupt or partial(print_result, settings))


def _run_to_end(settings: Settings, app: App, run: Run, on_interrupt: OnInterrupt) -> IngestResult:
    """Run the flow of a recorded run, and handle interrupts and errors."""
    from penstock.runs.execute import interrupt_runs, leave_runs

    failure: str | None = None

    def leave(exit_code: int) -> None:
        leave_runs()
        pause_unheld(app.database, run.id)
        on_interrupt(_result(app, run.id, "interrupted", exit_code))

    with Interruption(interrupt_runs, leave) as interruption:
        try:
            _run_flow_shown(settings, app, run)
        except KeyboardInterrupt:
            failure = "interrupted"
        except Exception as error:
            # The end of the run is in the database; this error is known only here.
            failure = _explain(settings, run.id, error)
    if interruption.number is not None:
        pause_unheld(app.database, run.id)
    else:
        _abort_unstarted(app, run.id, failure)
    return _result(app, run.id, failure, interruption.exit_code)


def _result(
    app: App, run_id: int, failure: str | None, interrupted_code: int | None
) -> IngestResult:
    with app.database.read() as tx:
        report = report_run(tx, run_id)
        outcome = outcome_line(tx, report)
    return IngestResult(report, outcome, failure, interrupted_code)


def _run_flow_shown(settings: Settings, app: App, run: Run) -> None:
    from entrypoints.cli.local_servers import connect_prefect
    from entrypoints.cli.progress import shown_run

    app.warm_up()
    connect_prefect(settings)
    with shown_run(app.database, run.id):
        _run_flow(run)


def print_result(settings: Settings, result: IngestResult) -> None:
    """Print the outcome of a run, its failures, and why it did not finish."""
    report = result.report
    print_end(report, result.outcome, result.problem)
    if report.counts[DocumentStatus.ERROR]:
        with open_app(settings) as app, app.database.read() as tx:
            print_failures(group_failures(tx, report.run.id))
    if report.documents:
        console.print(name_documents(report), highlight=False)
    if report.run.status is RunStatus.FINISHED and (advice := _next_command(report)):
        console.print(f"next: {advice}", highlight=False)


def _next_command(report: RunReport) -> str | None:
    """What a person most likely does next."""
    if report.needs_review:
        return f"penstock nodes --run {report.run.id} --needs-review"
    if report.counts[DocumentStatus.ERROR]:
        return f"penstock run {report.run.id}"
    return 'penstock search "…"' if report.counts[DocumentStatus.READY] else None


def _run_flow(run: Run) -> None:
    from entrypoints.cli.local_servers import without_heartbeats
    from flows.ingest import ingest as ingest_flow

    with without_heartbeats():
        ingest_flow(source=run.location, tenant=run.tenant_id, run_id=run.id)


def _explain(settings: Settings, run_id: int, error: Exception) -> str:
    if isinstance(error, PenstockError):
        return str(error)
    from entrypoints.cli.local_servers import explain_crash, explain_refusal

    return explain_refusal(settings, error) or explain_crash(settings.home, f"run {run_id}", error)


def _abort_unstarted(app: App, run_id: int, failure: str | None) -> None:
    from penstock.runs.lifecycle import abort_run

    with app.database.read() as tx:
        run = read_run(tx, run_id)
    if run.status is RunStatus.PENDING:
        abort_run(app.database, app.queue, run_id, reason=failure or "it was not started")


def _not_run(error: PenstockError) -> dict[str, Any]:
    """Why there was no run, in the shape of a report, for programs that read its keys."""
    refused = isinstance(error, RunRefused)
    return {
        "run_id": error.active_run_id if isinstance(error, RunRefused) else None,
        "status": "refused" if refused else "error",
        "counts": dict.fromkeys(DocumentStatus, 0),
        "llm_calls": 0,
        "tokens": 0,
        "cost_usd": 0.0,
        "seconds": 0.0,
        "documents_per_second": 0.0,
        "error": str(error),
    }
