"""`penstock ingest`: one source, from its listing to searchable records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from entrypoints.cli.output import (
    Json,
    Tenant,
    console,
    explain_crash,
    print_error,
    print_json,
)
from entrypoints.cli.runs import print_failures
from penstock.bootstrap import App, open_app
from penstock.errors import PenstockError, RunRefused, UsageError
from penstock.runs.lifecycle import read_run
from penstock.runs.report import RunReport, group_failures, report_run
from penstock.runs.vocabulary import DocumentStatus, Run, RunStatus
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
        typer.Option(help="Fields to extract: resume, job_posting, document. Default: by content."),
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
    wanted = {"profile": profile, "force": force, "documents": force_document or []}
    ends = [
        _ingest_one(settings, source, tenant_id, wanted, strict, json)
        for source in _named(settings, sources or [], every, tenant_id)
    ]
    if json:
        found = [end.shown for end in ends]
        print_json(found if every or len(ends) > 1 else found[0])
    raise typer.Exit(max(end.code for end in ends))


@dataclass(frozen=True, slots=True)
class _End:
    """How one of several sources ended: one that fails leaves the others alone."""

    code: int
    shown: dict[str, Any]


def _named(settings: Settings, sources: list[str], every: bool, tenant_id: str) -> list[str]:
    from penstock.sources.catalogue import list_sources

    if every == bool(sources):
        raise UsageError("name one or more sources to ingest, or --all of them")
    if sources:
        return sources
    with open_app(settings) as app, app.database.read() as tx:
        found = [source.name for source in list_sources(tx, tenant_id)]
    if not found:
        raise UsageError("there are no sources yet: penstock source add NAME LOCATION")
    return found


def _ingest_one(
    settings: Settings, source: str, tenant_id: str, wanted: Any, strict: bool, quiet: bool
) -> _End:
    try:
        result = run_ingest(settings, source, tenant_id, **wanted)
    except PenstockError as error:
        if not quiet:
            print_error(str(error))
        return _End(2 if isinstance(error, UsageError) else 1, _not_run(error))
    if not quiet:
        print_result(settings, result)
    return _End(result.exit_code(strict), result.as_json())


def resume(
    run_id: Annotated[int, typer.Argument(help="The run to take up.")],
    tenant: Tenant = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any document failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Go on with a run that was paused or interrupted, where it stopped."""
    settings = load_settings()
    with open_app(settings) as app, app.database.read() as tx:
        run = read_run(tx, run_id, tenant or settings.tenant)
    if not run.status.active:
        raise UsageError(
            f"run {run_id} is {run.status}: there is nothing to resume; "
            f"`penstock ingest {run.location}` starts a new one"
        )
    with open_app(settings) as app:
        result = _drive(settings, app, run)
    if json:
        print_json(result.as_json())
    else:
        print_result(settings, result)
    raise typer.Exit(result.exit_code(strict))


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of a run, and what its flow died of if it did not end by itself."""

    report: RunReport
    failure: str | None = None

    @property
    def problem(self) -> str | None:
        run = self.report.run
        failure = None if run.status is RunStatus.FINISHED else self.failure
        return run.error or run.paused_reason or failure

    def as_json(self) -> dict[str, Any]:
        return self.report.as_json() | {"error": self.problem}

    def exit_code(self, strict: bool) -> int:
        if self.report.run.status is not RunStatus.FINISHED:
            return 1
        return 1 if strict and self.report.counts[DocumentStatus.ERROR] else 0


def run_ingest(
    settings: Settings,
    source: str,
    tenant: str,
    *,
    profile: str | None = None,
    force: bool = False,
    documents: Sequence[str] = (),
) -> IngestResult:
    """Record a run, have the flow do it, and report what became of it."""
    with open_app(settings) as app:
        run = app.open_run(source, tenant, profile=profile, force=force, documents=documents)
        return _drive(settings, app, run)


def _drive(settings: Settings, app: App, run: Run) -> IngestResult:
    """Have the flow do a recorded run."""
    from entrypoints.cli.local_prefect import connect_prefect
    from entrypoints.cli.progress import shown_progress

    failure: str | None = None
    try:
        connect_prefect(settings)
        with shown_progress(app.database, run.id, f"run {run.id}"):
            _run_flow(run)
    except KeyboardInterrupt:
        failure = "interrupted"
    except Exception as error:
        # The run tells of its end in the database; what only we know is told here.
        failure = _explain(settings, run.id, error)
    _abort_if_never_taken(app, run.id, failure)
    with app.database.read() as tx:
        return IngestResult(report_run(tx, run.id), failure)


def print_result(settings: Settings, result: IngestResult) -> None:
    """What a person wants to know about a run that ended."""
    report = result.report
    counts = {str(status): count for status, count in report.counts.items() if count}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no documents"
    console.print(
        f"run {report.run.id} {report.run.status}: {summary} in {report.seconds:.1f} s",
        highlight=False,
    )
    _print_failures(settings, report)
    if result.problem:
        print_error(result.problem)


def _run_flow(run: Run) -> None:
    from entrypoints.cli.local_prefect import watched_by_a_person
    from flows.ingest import ingest as ingest_flow

    with watched_by_a_person():
        ingest_flow(source=run.location, tenant=run.tenant_id, run_id=run.id)


def _explain(settings: Settings, run_id: int, error: Exception) -> str:
    if isinstance(error, PenstockError):
        return str(error)
    return explain_crash(settings.home, f"run {run_id}", error)


def _abort_if_never_taken(app: App, run_id: int, failure: str | None) -> None:
    from penstock.runs.lifecycle import abort_run

    with app.database.read() as tx:
        run = read_run(tx, run_id)
    if run.status is RunStatus.PENDING:
        abort_run(app.database, app.queue, run_id, reason=failure or "it was not started")


def _print_failures(settings: Settings, report: RunReport) -> None:
    if not report.counts[DocumentStatus.ERROR]:
        return
    with open_app(settings) as app, app.database.read() as tx:
        print_failures(group_failures(tx, report.run.id))
    console.print(f"all of them: penstock run {report.run.id}", highlight=False)


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
