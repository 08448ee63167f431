"""`penstock runs` and `penstock run`."""

from typing import Annotated

import typer

from entrypoints.cli.output import Json, Tenant, console, print_json, print_pairs, print_table
from penstock.bootstrap import open_app
from penstock.runs.report import RunReport, list_documents, list_reports, report_run
from penstock.settings import load_settings

app = typer.Typer(invoke_without_command=True, help="List runs, newest first; abort one.")


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
    from penstock.runs.lifecycle import abort_run, read_run

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


def run(
    run_id: Annotated[int, typer.Argument(help="The run to show.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show one run: its figures and what became of each document."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        report = report_run(tx, run_id, tenant or settings.tenant)
        documents = list_documents(tx, run_id)
    if json:
        lines = [
            {
                "external_id": line.external_id,
                "node_id": line.node_id,
                "url": line.url,
                "status": line.status,
                "change": line.change,
                "reason": line.reason,
                "error_class": line.error_class,
            }
            for line in documents
        ]
        print_json(report.as_json() | {"documents": lines})
        return
    print_pairs((name, value) for name, value in report.as_json().items() if name != "counts")
    rows = [(line.external_id, line.status, line.change, line.reason) for line in documents]
    print_table(("document", "status", "change", "why"), rows)


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
