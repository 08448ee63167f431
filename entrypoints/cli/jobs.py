"""`penstock jobs`: the work items behind the queues, one by one or many at once."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entrypoints.cli.job_choice import (
    LARGEST_ID,
    All,
    JobId,
    JobIds,
    Most,
    OfClass,
    OfNode,
    OfRun,
    OfStage,
    OfStatus,
    build_filter,
    check_choice,
    do_in_pages,
)
from entrypoints.cli.output import Json, Tenant, console, print_json, print_pairs, print_table
from penstock.bootstrap import open_app
from penstock.settings import load_settings
from penstock.work.items import ItemStatus

if TYPE_CHECKING:
    from penstock.operations.bulk import Bulk

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
        help="Only jobs whose worker was not heard of for so long.",
    ),
]
Running = Annotated[
    int,
    typer.Option(
        "--running",
        min=0,
        max=LONGEST_SECONDS,
        metavar="SECONDS",
        help="Only jobs that have been under way for so long.",
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
    from penstock.operations.jobs import list_jobs

    settings = load_settings()
    wanted = build_filter(tenant or settings.tenant, stage, status, run, node, error_class)
    with open_app(settings) as opened, opened.database.read() as tx:
        found = list_jobs(tx, replace(wanted, before=before), limit)
    if json:
        print_json(found)
        return
    if not found:
        console.print("there are no such jobs", highlight=False)
        return
    columns = ("id", "stage", "status", "attempts", "run_id", "node_id", "error_class")
    rows = [[*[job[name] for name in columns], _first_line(job["error_message"])] for job in found]
    print_table(("job", "stage", "status", "attempts", "run", "node", "class", "why"), rows)
    if len(found) == limit:
        console.print(f"there may be more: --before {found[-1]['id']}", highlight=False)


@app.command()
def show(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one job, with the history of its failed attempts."""
    from penstock.operations.jobs import show_job

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
    """Start jobs over that are processing or failed, with full budgets. A worker that is at one
    can no longer write. Filters that name no status find what failed."""
    from penstock.operations.bulk import retry_jobs

    settings = load_settings()
    wanted = build_filter(tenant or settings.tenant, stage, status, run, node, error_class)
    check_choice("retry", ids, everything)
    with open_app(settings) as opened:
        done = do_in_pages(retry_jobs, opened, wanted, ids, limit)
    _tell("retried", done, named=bool(ids), json=json)


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
    """Cancel jobs that have not ended. Their documents are errors of their run, if they are in
    one. Filters that name no status find what has not ended."""
    from penstock.operations.bulk import cancel_jobs

    settings = load_settings()
    wanted = build_filter(tenant or settings.tenant, stage, status, run, node, error_class)
    check_choice("cancel", ids, everything)
    with open_app(settings) as opened:
        done = do_in_pages(cancel_jobs, opened, wanted, ids, limit)
    _tell("cancelled", done, named=bool(ids), json=json)


@app.command()
def delete(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Forget a job that has ended, with its history. Its document stays as it is."""
    from penstock.operations.jobs import delete_job

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
    """Show jobs that workers are at, the oldest first: who holds them, and for how long."""
    from penstock.operations.stuck import count_processing, stuck_jobs

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
    from penstock.operations.jobs import count_jobs

    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        counted = count_jobs(tx, tenant or settings.tenant)
    if json:
        print_json(counted)
        return
    rows = [[stage, *counts.values()] for stage, counts in counted.items()]
    print_table(("stage", *ItemStatus), rows)


def _tell(verb: str, done: "Bulk", *, named: bool, json: bool) -> None:
    if json:
        print_json(done.as_json(verb))
    else:
        console.print(
            f"{done.done} of {done.requested} {verb}, {len(done.refused)} refused", highlight=False
        )
        if done.refused:
            print_table(("job", "why not"), done.refused.items())
    # What a filter finds may change meanwhile; whoever names a job means that very one.
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
            "has run out" if job["expired"] else job["lease_expires_at"][:19],
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
    return f"all clear: {processing} in processing, none of them for so long"


def _first_line(message: str | None) -> str | None:
    return message.partition("\n")[0] if message else None
