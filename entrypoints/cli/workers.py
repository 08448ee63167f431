"""`penstock workers`: who works, who was lost, and what each of them is at."""

from typing import Annotated, Any

import typer

from entrypoints.cli.output import Json, console, print_json, print_table
from penstock.bootstrap import open_app
from penstock.settings import load_settings

# How many jobs of one worker the table names; JSON has them all.
NAMED = 5


def workers(
    everyone: Annotated[
        bool, typer.Option("--all", help="Also those that have stopped, or were lost long ago.")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only workers that are at jobs of this tenant.")
    ] = None,
    json: Json = False,
) -> None:
    """List workers: alive, or lost, which is to say not heard of for as long as a lease lasts."""
    from penstock.operations.workers import list_workers

    settings = load_settings()
    with open_app(settings) as app, app.database.read() as tx:
        found = list_workers(
            tx,
            lease_seconds=settings.lease_seconds,
            tenant_id=tenant,
            include_all=everyone,
        )
    if json:
        print_json(found)
    elif not found:
        console.print("no workers: `penstock worker` starts one", highlight=False)
    else:
        columns = ("worker", "version", "status", "heartbeat", "jobs", "done", "failed", "since")
        print_table(columns, [_row(worker) for worker in found])


def _row(worker: dict[str, Any]) -> list[Any]:
    return [
        worker["id"],
        worker["version"],
        worker["status"],
        f"{worker['heartbeat_age']:.0f} s ago",
        _in_short(worker["job_ids"]),
        worker["completed"],
        worker["failed"],
        f"{worker['started_at'][:19]} UTC",
    ]


def _in_short(job_ids: list[int]) -> str:
    if not job_ids:
        return "none"
    more = ", …" if len(job_ids) > NAMED else ""
    return f"{len(job_ids)}: {', '.join(map(str, job_ids[:NAMED]))}{more}"
