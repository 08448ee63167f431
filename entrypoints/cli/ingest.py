"""`penstock ingest`: one source, from its listing to searchable records."""

from typing import Annotated, Any

import typer

from entrypoints.cli.output import Json, Tenant, console, errors, print_json, print_table
from penstock.bootstrap import App, open_app
from penstock.errors import PenstockError, RunRefused
from penstock.runs.report import RunReport, list_failures, report_run
from penstock.runs.vocabulary import DocumentStatus, RunStatus
from penstock.settings import Settings, load_settings

FAILURES_SHOWN = 20


def ingest(
    source: Annotated[
        str, typer.Argument(help="A folder, a file, a file of URLs, or the URL of a site.")
    ],
    tenant: Tenant = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Fields to extract: resume, job_posting, document. Default: by content."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Process unchanged documents too.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any document failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Crawl, extract, embed and index a source. Unchanged documents are skipped."""
    settings = load_settings()
    try:
        report = run_ingest(settings, source, tenant or settings.tenant, profile, force)
    except RunRefused as refused:
        if not json:
            raise
        print_json(_refused(refused))
        raise typer.Exit(1) from None
    if json:
        print_json(report.as_json())
    else:
        print_report(settings, report)
    raise typer.Exit(exit_code(report, strict))


def run_ingest(
    settings: Settings, source: str, tenant: str, profile: str | None, force: bool
) -> RunReport:
    """Record a run, have the flow do it, and report what became of it."""
    from entrypoints.cli.local_prefect import connect_prefect
    from entrypoints.cli.progress import shown_progress

    with open_app(settings) as app:
        run_id = _open_run(app, source, tenant, profile, force)
        try:
            connect_prefect(settings)
            with shown_progress(app.database, run_id, f"run {run_id}"):
                _run_flow(run_id, source, tenant)
        except PenstockError:
            # Whatever ended the flow has left the run in a state that tells of it.
            _abort_if_never_taken(app, run_id)
        with app.database.read() as tx:
            return report_run(tx, run_id)


def print_report(settings: Settings, report: RunReport) -> None:
    """What a person wants to know about a run that ended."""
    counts = {str(status): count for status, count in report.counts.items() if count}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no documents"
    console.print(
        f"run {report.run.id} {report.run.status}: {summary} in {report.seconds:.1f} s",
        highlight=False,
    )
    problem = report.run.error or report.run.paused_reason
    if problem:
        errors.print(f"[bold red]error:[/] {problem}", highlight=False)
    _print_failures(settings, report)


def exit_code(report: RunReport, strict: bool) -> int:
    if report.run.status is not RunStatus.FINISHED:
        return 1
    return 1 if strict and report.counts[DocumentStatus.ERROR] else 0


def _open_run(app: App, source: str, tenant: str, profile: str | None, force: bool) -> int:
    from penstock.crawl.source import recognise_source
    from penstock.llm.profiles import profile_named
    from penstock.runs.lifecycle import open_run
    from penstock.runs.vocabulary import SourceSpec

    if profile is not None:
        profile_named(profile)
    listing = recognise_source(source, app.fetcher)
    spec = SourceSpec(tenant, listing.name, listing.kind, listing.location)
    return open_run(app.database, spec, profile=profile, force=force).id


def _run_flow(run_id: int, source: str, tenant: str) -> None:
    from prefect import tags

    from flows.ingest import ingest as ingest_flow

    with tags(f"tenant:{tenant}"):
        ingest_flow(source=source, tenant=tenant, run_id=run_id)


def _abort_if_never_taken(app: App, run_id: int) -> None:
    from penstock.runs.lifecycle import abort_run, read_run

    with app.database.read() as tx:
        run = read_run(tx, run_id)
    if run.status is RunStatus.PENDING:
        abort_run(app.database, app.queue, run_id, reason="it could not be started")


def _print_failures(settings: Settings, report: RunReport) -> None:
    if not report.counts[DocumentStatus.ERROR]:
        return
    with open_app(settings) as app, app.database.read() as tx:
        failures = list_failures(tx, report.run.id)
    rows = [(line.external_id, line.error_class, line.reason) for line in failures]
    print_table(("document", "class", "reason"), rows[:FAILURES_SHOWN], title="failed documents")
    if len(failures) > FAILURES_SHOWN:
        more = len(failures) - FAILURES_SHOWN
        console.print(f"… and {more} more: penstock run {report.run.id}", highlight=False)


def _refused(refused: RunRefused) -> dict[str, Any]:
    """A refusal in the shape of a report, for programs that read its keys."""
    return {
        "run_id": refused.active_run_id,
        "status": "refused",
        "counts": dict.fromkeys(DocumentStatus, 0),
        "llm_calls": 0,
        "tokens": 0,
        "cost_usd": 0.0,
        "seconds": 0.0,
        "documents_per_second": 0.0,
        "error": str(refused),
    }
