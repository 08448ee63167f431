"""`penstock runs`, `penstock run` and `penstock logs`."""

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from entrypoints.cli.output import (
    ON_SCREEN,
    Json,
    Tenant,
    as_json,
    console,
    print_cut,
    print_error,
    print_json,
    print_pairs,
    print_table,
)
from entrypoints.cli.progress import watch_run
from penstock.app import App, open_app
from penstock.errors import UsageError
from penstock.events import LogLine, read_log
from penstock.runs.lifecycle import abort_run, read_run
from penstock.runs.report import (
    DocumentLine,
    FailureGroup,
    RunReport,
    group_failures,
    list_documents,
    list_reports,
    outcome_line,
    report_run,
)
from penstock.runs.run import RunStatus
from penstock.settings import load_settings
from penstock.terminal import as_text

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
    columns = (
        "run",
        "status",
        "source",
        "ready",
        "review",
        "skipped",
        "error",
        "expired",
        "pending",
        "s",
    )
    print_table(columns, [_row(report) for report in reports])


@app.command()
def abort(
    run_id: Annotated[int, typer.Argument(help="The run to abort.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Abort a run. The source's next run processes what is left."""
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
    """Watch a run until it ends, whichever process works on it."""
    settings = load_settings()
    with open_app(settings) as opened:
        chosen = _to_watch(opened, run_id, tenant or settings.tenant)
        watch_run(opened.database, chosen)
        with opened.database.read() as tx:
            report = report_run(tx, chosen)
            failures = group_failures(tx, chosen)
            outcome = outcome_line(tx, report)
    if json:
        print_json(report.as_json())
    else:
        print_end(report, outcome, report.run.error or report.run.paused_reason)
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
        int | None,
        typer.Option(
            min=0,
            help="How many documents, failures first; default: 100 on the screen, all with --json.",
        ),
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show one run: progress by source and stage, failures by class, and each document."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        report = report_run(tx, run_id, tenant or settings.tenant)
        most = ON_SCREEN if limit is None and not json else limit
        documents = list_documents(tx, run_id, most)
        failures = group_failures(tx, run_id)
    if json:
        lines = [line.as_json() for line in documents]
        groups = [group.as_json() for group in failures]
        print_json(report.as_json() | {"failures": groups, "documents": lines})
        return
    _print_report(report)
    print_failures(failures)
    rows = [(line.external_id, _outcome(line), line.change, line.reason) for line in documents]
    print_table(("document", "status", "change", "why"), rows)
    if limit is None and report.documents > len(rows):
        print_cut(len(rows), f"penstock run {run_id} --limit {report.documents}")


def _print_report(report: RunReport) -> None:
    figures = report.as_json()
    tables = ("counts", "stages", "sources", "changes", "models", "rejections")
    shown = figures | {"status": report.run.shown_status}
    print_pairs((name, value) for name, value in shown.items() if name not in tables)
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


def print_end(report: RunReport, outcome: str, problem: str | None) -> None:
    """How a run ended, after how long, what became of its documents, and why it did not finish."""
    run = report.run
    ended = {
        RunStatus.FINISHED: "finished in",
        RunStatus.ERROR: "failed after",
        RunStatus.ABORTED: "aborted after",
    }.get(run.status, "paused after" if run.paused_reason else "stopped after")
    line = f"Run {run.id} {ended} {report.seconds:.1f} s"
    if problem and not report.documents:
        print_error(f"{line}: {problem}")
        return
    console.print(f"{line}: {outcome}", highlight=False)
    if problem:
        print_error(problem)


def print_failures(groups: Sequence[FailureGroup]) -> None:
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


def _outcome(line: DocumentLine) -> str:
    return f"{line.status}, needs review" if line.needs_review else line.status


def _row(report: RunReport) -> list[object]:
    counts = {str(status): count for status, count in report.counts.items()}
    names = ("skipped", "error", "expired", "pending")
    run = report.run
    return [
        run.id,
        run.shown_status,
        run.source_name,
        counts["ready"],
        report.needs_review,
        *[counts[name] for name in names],
        f"{report.seconds:.1f}",
    ]


FOLLOW_SECONDS = 0.5
_STYLES = {"ING": "blue", "CRL": "cyan", "TXT": "green", "LLM": "magenta", "EMB": "yellow"}
_LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "bold red"}


def logs(
    run_id: Annotated[int, typer.Argument(help="The run.")],
    stage: Annotated[
        list[str] | None, typer.Option(help="Only this stage: ING, CRL, TXT, LLM, EMB.")
    ] = None,
    level: Annotated[str | None, typer.Option(help="Minimum level: INFO, WARNING, ERROR.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only lines after this sequence number.")] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the run ends.")
    ] = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show the log of a run; with --json one object a line."""
    settings = load_settings()
    with open_app(settings) as app:
        with app.database.read() as tx:
            read_run(tx, run_id, tenant or settings.tenant)
        for lines in _read_pages(app, run_id, after, stage or [], level, follow):
            _print_lines(lines, json)


def _print_lines(lines: "list[LogLine]", json: bool) -> None:
    # Many together, and in a file without rich: that takes longer than reading the lines does.
    if json:
        typer.echo("\n".join(as_json(line.as_json()) for line in lines))
    elif console.is_terminal:
        shown = Text("\n").join(Text.assemble(*_parts(line)) for line in lines)
        console.print(shown, highlight=False, soft_wrap=True)
    else:
        plain = ("".join(text for text, _ in _parts(line)) for line in lines)
        typer.echo(as_text("\n".join(plain)))


def _read_pages(
    app: App, run_id: int, after: int, stages: list[str], level: str | None, follow: bool
) -> "Iterator[list[LogLine]]":
    while True:
        with app.database.read() as tx:
            # Asked first: what is written before the run's end is found by the read after it.
            active = follow and read_run(tx, run_id).status.active
        with app.database.read() as tx:
            found = read_log(tx, run_id, after=after, stages=stages, level=level)
        if found:
            yield found
            after = found[-1].seq
        elif not active:
            return
        else:
            time.sleep(FOLLOW_SECONDS)


def _parts(line: "LogLine") -> list[tuple[str, str]]:
    """What is shown of a line, each part with its style."""
    about = f"{line.document}: " if line.document else ""
    return [
        (f"{line.at:%Y-%m-%d %H:%M:%S} ", "dim"),
        (f"{line.stage} ", _STYLES.get(line.stage, "")),
        (f"{line.level:<7} ", _LEVEL_STYLES.get(line.level, "dim")),
        (f"{about}{line.message}", ""),
    ]
