"""`penstock backfill`: brings old documents up to date, after everything that is fresh."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entrypoints.cli.interrupts import Interruption
from entrypoints.cli.output import (
    LARGEST_ID,
    Json,
    Tenant,
    console,
    print_error,
    print_json,
    print_table,
)
from penstock.app import open_app
from penstock.backfill.selection import LONGEST_DAYS, choose_nodes
from penstock.errors import PenstockError, UsageError
from penstock.runs.up_to_date import Reason
from penstock.settings import Settings, load_settings

if TYPE_CHECKING:
    from penstock.backfill.estimate import Estimate

app = typer.Typer(
    invoke_without_command=True,
    help="Bring old documents up to date, behind all new work; list or abort backfills.",
)
_INTERRUPTED = "interrupted; the same command goes on where it stopped, and workers with what waits"
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="All tenants instead of one.")]


@app.callback()
def backfill(
    context: typer.Context,
    reason: Annotated[
        list[Reason] | None,
        typer.Option(
            help="Why documents need work; may be given several times. Default: all but "
            "extractor, stale only with --stale-days."
        ),
    ] = None,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    source: Annotated[str | None, typer.Option(help="Only documents of this source.")] = None,
    stale_days: Annotated[
        float | None,
        typer.Option(
            min=0, max=LONGEST_DAYS, help="Documents processed longer ago than this are stale."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=LARGEST_ID, help="At most this many documents; run again for the next ones."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count, estimate the cost, and change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Reprocess documents that are outdated, unextracted, failed, or have no vector.

    The same command resumes an interrupted backfill.
    """
    if context.invoked_subcommand is not None:
        return
    settings = load_settings()
    wanted: dict[str, Any] = {
        "tenant": _whose(settings, tenant, all_tenants),
        "all_tenants": all_tenants,
        "source": source,
        "reasons": reason,
        "stale_days": stale_days,
        "limit": limit,
    }
    if dry_run:
        _print_estimate(settings, wanted, json)
    else:
        _run(settings, wanted, json)


@app.command("list")
def list_(
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    limit: Annotated[int, typer.Option(min=1, max=2000, help="How many.")] = 20,
    json: Json = False,
) -> None:
    """List backfills, newest first."""
    from penstock.backfill.backfill import list_backfills

    settings = load_settings()
    whose = _whose(settings, tenant, all_tenants)
    with open_app(settings) as opened, opened.database.read() as tx:
        found = [one.as_json() for one in list_backfills(tx, whose, limit)]
    if json:
        print_json(found)
        return
    columns = ("id", "status", "tenant", "source", "reasons", "enqueued", "created_at")
    print_table(columns, [[_cell(one[name]) for name in columns] for one in found])


@app.command()
def abort(
    backfill_id: Annotated[
        int, typer.Argument(min=1, max=LARGEST_ID, help="From `penstock backfill list`.")
    ],
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    json: Json = False,
) -> None:
    """Abort a backfill. Waiting jobs are cancelled; running jobs finish."""
    from penstock.backfill.backfill import abort_backfill

    settings = load_settings()
    whose = _whose(settings, tenant, all_tenants)
    with open_app(settings) as opened:
        cancelled = abort_backfill(opened.database, opened.queue, backfill_id, whose)
    if json:
        print_json({"aborted": backfill_id, "cancelled": cancelled})
    else:
        console.print(
            f"backfill {backfill_id} is aborted, {cancelled} jobs are cancelled", highlight=False
        )


def _whose(settings: Settings, tenant: str | None, all_tenants: bool) -> str | None:
    if all_tenants and tenant:
        raise UsageError("--tenant and --all-tenants exclude each other: give one of them")
    return None if all_tenants else tenant or settings.tenant


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _print_estimate(settings: Settings, wanted: dict[str, Any], json: bool) -> None:
    from penstock.backfill.estimate import estimate

    with open_app(settings) as opened:
        found = estimate(opened, choose_nodes(opened, **wanted))
    if json:
        print_json(found.as_json() | {"dry_run": True})
        return
    print_table(("reason", "documents"), found.reasons.items())
    print_table(("begins with", "documents"), found.stages.items())
    console.print(_summary(found), highlight=False)


def _summary(found: "Estimate") -> str:
    limited = f" of {found.matching}" if found.nodes < found.matching else ""
    return (
        f"{found.nodes}{limited} documents, {found.extractions} extractions, "
        f"estimated cost {found.cost}; nothing was changed"
    )


def _run(settings: Settings, wanted: dict[str, Any], json: bool) -> None:
    from entrypoints.cli.local_servers import connect_prefect
    from entrypoints.cli.progress import shown_backfill
    from penstock.backfill.backfill import interrupt_backfills, leave_backfills

    began = time.monotonic()

    def leave(_: int) -> None:
        leave_backfills()
        _print_interrupted(json)

    with open_app(settings) as opened:
        # Before a server is started for it: whatever is wrong with the selection.
        selection = choose_nodes(opened, **wanted)
        figures: dict[str, Any] | None = None
        failure: Exception | None = None
        with Interruption(interrupt_backfills, leave) as interruption:
            try:
                connect_prefect(settings)
                with shown_backfill(opened.database, selection):
                    figures = _run_flow(settings, wanted)
            except KeyboardInterrupt:
                pass
            except Exception as error:
                failure = error
    if interruption.exit_code is not None:
        _print_interrupted(json)
        raise typer.Exit(interruption.exit_code)
    if failure is not None:
        raise failure
    assert figures is not None, "an interrupt has a signal"
    if json:
        print_json(figures)
        return
    console.print(
        f"backfill {figures['id']} {figures['status']}: {figures['enqueued']} documents, "
        f"{figures['failed']} failed in {time.monotonic() - began:.1f} s",
        highlight=False,
    )
    if figures["vectors"]:
        console.print(f"vectors: {figures['vectors']}", highlight=False)


def _print_interrupted(json: bool) -> None:
    if json:
        print_json({"error": _INTERRUPTED})
    else:
        print_error(_INTERRUPTED)


def _run_flow(settings: Settings, wanted: dict[str, Any]) -> dict[str, Any]:
    from entrypoints.cli.local_servers import explain_crash, explain_refusal, without_heartbeats
    from flows.backfill import backfill as backfill_flow

    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        with without_heartbeats():
            figures: dict[str, Any] = backfill_flow(**given)
    except PenstockError:
        raise
    except Exception as error:
        refusal = explain_refusal(settings, error)
        raise PenstockError(
            refusal or explain_crash(settings.home, "the backfill", error)
        ) from error
    return figures
