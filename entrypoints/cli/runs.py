"""`penstock runs` and `penstock run`."""

from typing import Annotated, Any

import typer

from entrypoints.cli.output import (
    Json,
    Tenant,
    console,
    print_error,
    print_json,
    print_pairs,
    print_table,
)
from penstock.bootstrap import App, open_app
from penstock.errors import UsageError
from penstock.runs.lifecycle import abort_run, read_run
from penstock.runs.report import (
    FailureGroup,
    RunReport,
    group_failures,
    list_documents,
    list_reports,
    report_run,
)
from penstock.runs.vocabulary import RunStatus
from penstock.settings import load_settings

app = typer.Typer(invoke_without_command=True, help="List runs, newest first; abort or watch one.")


@app.callback()
def runs(
    context: typer.Context,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    if context.invoked_subcommand is not None:
        return
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        reports = list_reports(tx, tenant or settings.tenant, limit)
    if json:
        print_json([report.as_json() for report in reports])
        return
    columns = ("run", "status", "source", "ready", "skipped", "error", "expired", "pending", "s")
    print_table(columns, [_row(report) for report in reports])


@app.command()
def abort(
    run_id: Annotated[int, typer.Argument(help="The run to end.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """End a run now. What it had not done is taken up by the source's next run."""
    settings = load_settings()
    with open_app(settings) as opened:
        with opened.database.read() as tx:
            read_run(tx, run_id, tenant or settings.tenant)
        abort_run(opened.database, opened.queue, run_id, reason="aborted by hand")
        with opened.database.read() as tx:
            report = report_run(tx, run_id)
    if json:
        print_json(report.as_json())
    else:
        console.print(f"run {run_id} is aborted", highlight=False)


@app.command()
def watch(
    run_id: Annotated[
        int | None, typer.Argument(help="The run to watch; default: the newest active one.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Watch a run until it ends, wherever it is being worked on."""
    from entrypoints.cli.progress import watch_progress

    settings = load_settings()
    with open_app(settings) as opened:
        chosen = _to_watch(opened, run_id, tenant or settings.tenant)
        watch_progress(opened.database, chosen, f"run {chosen}")
        with opened.database.read() as tx:
            report = report_run(tx, chosen)
            failures = group_failures(tx, chosen)
    if json:
        print_json(report.as_json())
    else:
        _print_end(report)
        print_failures(failures)
    raise typer.Exit(0 if report.run.status is RunStatus.FINISHED else 1)


def _to_watch(opened: App, run_id: int | None, tenant_id: str) -> int:
    with opened.database.read() as tx:
        if run_id is not None:
            return read_run(tx, run_id, tenant_id).id
        newest = list_reports(tx, tenant_id, 50)
    active = [report.run.id for report in newest if report.run.status.active]
    if not active:
        raise UsageError("no run is active; `penstock runs` lists those that were")
    return active[0]


def run(
    run_id: Annotated[int, typer.Argument(help="The run to show.")],
    limit: Annotated[
        int | None, typer.Option(min=0, help="How many documents; failures come first.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show one run: progress by source and stage, failures by class, and each document."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        report = report_run(tx, run_id, tenant or settings.tenant)
        documents = list_documents(tx, run_id, limit)
        failures = group_failures(tx, run_id)
    if json:
        lines = [line.as_json() for line in documents]
        groups = [group.as_json() for group in failures]
        print_json(report.as_json() | {"failures": groups, "documents": lines})
        return
    _print_report(report)
    print_failures(failures)
    rows = [(line.external_id, line.status, line.change, line.reason) for line in documents]
    print_table(("document", "status", "change", "why"), rows)


def _print_report(report: RunReport) -> None:
    figures = report.as_json()
    tables = ("counts", "stages", "sources", "changes", "models", "rejections")
    print_pairs((name, value) for name, value in figures.items() if name not in tables)
    print_table(
        ("source", "kind", "listed", "documents", "done", *figures["changes"]),
        [[*_source_row(source), *figures["changes"].values()] for source in figures["sources"]],
    )
    print_table(
        ("stage", "items", "done", "failed", "reused"),
        [(stage, s.total, s.done, s.failed, s.reused) for stage, s in report.stages.items()],
    )


def _source_row(source: dict[str, Any]) -> list[Any]:
    listed = "yes" if source["listed"] else "not yet"
    return [source["name"], source["kind"], listed, source["documents"], source["done"]]


def _print_end(report: RunReport) -> None:
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items() if count)
    run = report.run
    console.print(
        f"run {run.id} {run.status}: {counts or 'no documents'} in {report.seconds:.1f} s",
        highlight=False,
    )
    if run.error:
        print_error(run.error)


def print_failures(groups: list[FailureGroup]) -> None:
    """Failures by class, each with a few documents as examples."""
    if not groups:
        return
    rows = [
        (group.error_class if first else "", group.documents if first else "", *example)
        for group in groups
        for first, *example in _examples(group)
    ]
    print_table(("class", "documents", "for example", "why"), rows, title="failures")


def _examples(group: FailureGroup) -> list[tuple[bool, str, str | None]]:
    return [(n == 0, line.external_id, line.reason) for n, line in enumerate(group.examples)]


def _row(report: RunReport) -> list[object]:
    counts = {str(status): count for status, count in report.counts.items()}
    names = ("ready", "skipped", "error", "expired", "pending")
    run = report.run
    return [
        run.id,
        run.status,
        run.source_name,
        *[counts[name] for name in names],
        f"{report.seconds:.1f}",
    ]
