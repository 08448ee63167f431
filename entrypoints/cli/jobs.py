"""`penstock jobs`: the work items behind the queues, one by one or many at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from entrypoints.cli.output import (
    LARGEST_ID,
    Json,
    Tenant,
    console,
    print_json,
    print_pairs,
    print_table,
)
from penstock.app import App, open_app
from penstock.documents import Stage
from penstock.errors import ErrorClass, NotFound, UsageError
from penstock.operations.jobs import (
    Bulk,
    JobFilter,
    cancel_jobs,
    count_jobs,
    delete_job,
    list_jobs,
    retry_jobs,
    show_job,
)
from penstock.operations.status import count_processing, stuck_jobs
from penstock.queue.items import ItemStatus
from penstock.search.nodes import valid_node_id
from penstock.settings import load_settings

JobId = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="From `penstock jobs list`.")]
JobIds = Annotated[
    list[int] | None, typer.Argument(min=1, max=LARGEST_ID, help="From `penstock jobs list`.")
]
OfStage = Annotated[Stage | None, typer.Option("--stage", help="Only this stage.")]
OfStatus = Annotated[ItemStatus | None, typer.Option("--status", help="Only this status.")]
OfRun = Annotated[
    int | None, typer.Option("--run", min=1, max=LARGEST_ID, help="Only jobs of this run.")
]
OfNode = Annotated[str | None, typer.Option("--node", help="Only jobs of this node.")]
OfClass = Annotated[
    ErrorClass | None,
    typer.Option("--error-class", help="Only jobs whose last error is of this class."),
]
All = Annotated[bool, typer.Option("--all", help="All jobs that match the filters.")]
Most = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, max=2000, help="With --all: only the newest, at most this many."
    ),
]


def build_filter(
    tenant_id: str,
    stage: Stage | None,
    status: ItemStatus | None,
    run: int | None,
    node: str | None,
    error_class: ErrorClass | None,
) -> "JobFilter":
    try:
        node_id = None if node is None else valid_node_id(node)
    except NotFound as error:
        raise UsageError(f"--node: {error}") from None
    return JobFilter(tenant_id, (stage,) if stage else (), status, node_id, run, error_class)


def check_choice(command: str, ids: list[int] | None, everything: bool) -> None:
    if bool(ids) == everything:
        raise UsageError(
            f"name jobs (penstock jobs {command} 7 8), or else choose them by filters and --all "
            f"(penstock jobs {command} --stage extract --all)"
        )


def do_in_pages(
    do: Callable[..., "Bulk"],
    opened: App,
    wanted: "JobFilter",
    ids: list[int] | None,
    limit: int | None,
) -> "Bulk":
    """Those that are named, or all that a filter finds, so many in one transaction."""
    if ids or limit is not None:
        chosen = {"ids": ids} if ids else {"limit": limit}
        return do(opened.database, opened.queue, wanted, **chosen)
    done = do(opened.database, opened.queue, wanted)
    while done.next_before is not None:
        done += do(opened.database, opened.queue, replace(wanted, before=done.next_before))
    return done


app = typer.Typer(
    no_args_is_help=True, help="List, show, retry, cancel and delete jobs; find stuck ones."
)
LONGEST_SECONDS = 10 * 365 * 86_400

Inactive = Annotated[
    int,
    typer.Option(
        "--inactive",
        min=0,
        max=LONGEST_SECONDS,
        metavar="SECONDS",
        help="Only jobs whose worker sent no heartbeat for this long.",
    ),
]
Running = Annotated[
    int,
    typer.Option(
        "--running",
        min=0,
        max=LONGEST_SECONDS,
        metavar="SECONDS",
        help="Only jobs that have run for this long.",
    ),
]


@app.command("list")
def list_(
    stage: OfStage = None,
    status: OfStatus = None,
    run: OfRun = None,
    node: OfNode = None,
    error_class: OfClass = None,
    limit: Annotated[int, typer.Option(min=1, max=2000, help="How many.")] = 50,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=LARGEST_ID, help="Only smaller ids: the next page."),
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List jobs of all stages, newest first."""
    settings = load_settings()
    wanted = build_filter(tenant or settings.tenant, stage, status, run, node, error_class)
    with open_app(settings) as opened, opened.database.read() as tx:
        found = list_jobs(tx, replace(wanted, before=before), limit)
    if json:
        print_json(found)
        return
    if not found:
        console.print("no matching jobs", highlight=False)
        return
    columns = ("id", "stage", "status", "attempts", "run_id", "node_id", "error_class")
    rows = [[*[job[name] for name in columns], _first_line(job["error_message"])] for job in found]
    print_table(("job", "stage", "status", "attempts", "run", "node", "class", "why"), rows)
    if len(found) == limit:
        console.print(f"there may be more: --before {found[-1]['id']}", highlight=False)


@app.command()
def show(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one job, with the history of its failed attempts."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        job = show_job(tx, tenant or settings.tenant, job_id)
    if json:
        print_json(job)
        return
    print_pairs((name, value) for name, value in job.items() if name != "history")
    columns = ("attempt", "failed_at", "owner", "error_class", "message")
    rows = [[one[name] for name in columns] for one in job["history"]]
    print_table(("attempt", "failed at", "worker", "class", "why"), rows, title="history")


@app.command()
def retry(
    ids: JobIds = None,
    stage: OfStage = None,
    status: OfStatus = None,
    run: OfRun = None,
    node: OfNode = None,
    error_class: OfClass = None,
    everything: All = False,
    limit: Most = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Restart jobs that are processing or failed, with full retry budgets. A worker that holds one
    can no longer write. Without --status, filters select failed jobs."""
    settings = load_settings()
    wanted = build_filter(tenant or settings.tenant, stage, status, run, node, error_class)
    check_choice("retry", ids, everything)
    with open_app(settings) as opened:
        done = do_in_pages(retry_jobs, opened, wanted, ids, limit)
    _print_result("retried", done, named=bool(ids), json=json)


@app.command()
def cancel(
    ids: JobIds = None,
    stage: OfStage = None,
    status: OfStatus = None,
    run: OfRun = None,
    node: OfNode = None,
    error_class: OfClass = None,
    everything: All = False,
    limit: Most = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Cancel jobs that have not ended. In a run, their documents count as errors. Without --status,
    filters select all jobs that have not ended."""
    settings = load_settings()
    wanted = build_filter(tenant or settings.tenant, stage, status, run, node, error_class)
    check_choice("cancel", ids, everything)
    with open_app(settings) as opened:
        done = do_in_pages(cancel_jobs, opened, wanted, ids, limit)
    _print_result("cancelled", done, named=bool(ids), json=json)


@app.command()
def delete(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Delete an ended job and its history. Its document stays."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.write() as tx:
        delete_job(tx, tenant or settings.tenant, job_id)
    if json:
        print_json({"deleted": job_id})
    else:
        console.print(f"job {job_id} is deleted", highlight=False)


@app.command()
def stuck(
    stage: OfStage = None,
    inactive: Inactive = 0,
    running: Running = 0,
    limit: Annotated[int, typer.Option(min=1, max=2000, help="How many.")] = 500,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Jobs of every tenant.")
    ] = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show jobs in processing, oldest first, with their workers and how long they have run."""
    settings = load_settings()
    chosen = None if all_tenants else tenant or settings.tenant
    with open_app(settings) as opened, opened.database.read() as tx:
        found = stuck_jobs(
            tx,
            chosen,
            stage=stage,
            min_inactive_seconds=inactive,
            min_running_seconds=running,
            limit=limit,
        )
        processing = count_processing(tx, chosen, stage)
    if json:
        print_json(found)
    elif found:
        _print_stuck(found, processing)
    else:
        console.print(_all_clear(processing), highlight=False)


@app.command()
def stats(tenant: Tenant = None, json: Json = False) -> None:
    """Count jobs by stage and status."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        counted = count_jobs(tx, tenant or settings.tenant)
    if json:
        print_json(counted)
        return
    rows = [[stage, *counts.values()] for stage, counts in counted.items()]
    print_table(("stage", *ItemStatus), rows)


def _print_result(verb: str, done: "Bulk", *, named: bool, json: bool) -> None:
    if json:
        print_json(done.as_json(verb))
    else:
        console.print(
            f"{done.done} of {done.requested} {verb}, {len(done.refused)} refused", highlight=False
        )
        if done.refused:
            print_table(("job", "why not"), done.refused.items())
    # What a filter finds may change meanwhile; a job that is named must not be refused.
    raise typer.Exit(1 if named and done.refused else 0)


def _print_stuck(found: list[dict[str, Any]], processing: int) -> None:
    rows = [
        (
            job["id"],
            job["tenant_id"],
            job["stage"],
            job["run_id"],
            job["node_id"],
            job["owner"],
            f"{job['running_seconds']:.0f}",
            f"{job['inactive_seconds']:.0f}",
            "expired" if job["expired"] else job["lease_expires_at"][:19],
            job["rescues"],
            job["attempts"],
        )
        for job in found
    ]
    columns = ("job", "tenant", "stage", "run", "node", "worker", "running s", "silent s")
    print_table((*columns, "lease until (UTC)", "rescues", "attempts"), rows)
    console.print(f"shown: {len(found)} of {processing} in processing", highlight=False)


def _all_clear(processing: int) -> str:
    if not processing:
        return "all clear: no job is processing"
    return f"all clear: {processing} in processing, none for that long"


def _first_line(message: str | None) -> str | None:
    return message.partition("\n")[0] if message else None
