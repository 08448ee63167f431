"""`penstock backfill`: brings old documents up to date, after everything that is fresh."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entrypoints.cli.interrupts import Interruption
from entrypoints.cli.output import (
    LARGEST_ID,
    Json,
    Tenant,
    console,
    errors,
    print_error,
    print_json,
    print_pairs,
    print_table,
)
from penstock.app import open_app
from penstock.backfill.selection import LONGEST_DAYS, choose_nodes
from penstock.errors import PenstockError, UsageError
from penstock.runs.up_to_date import Reason
from penstock.settings import Settings, load_settings

if TYPE_CHECKING:
    from penstock.backfill.estimate import Estimate
    from penstock.backfill.selection import Selection
    from penstock.evaluation.gold import GoldRecord
    from penstock.store.database import Database

app = typer.Typer(
    invoke_without_command=True,
    help="Bring old documents up to date, behind all new work; try a sample first.",
)
MOST_EXAMPLES = 20
MOST_CHARS = 60
_INTERRUPTED = "interrupted; the same command goes on where it stopped, and workers with what waits"
CanaryId = Annotated[
    int, typer.Argument(min=1, max=LARGEST_ID, help="From `penstock backfill list`.")
]
Gold = Annotated[
    str | None,
    typer.Option(
        help="JSONL file of labelled documents, by which a canary is scored: their ids are those "
        "of nodes, or the names or addresses that sources know them by."
    ),
]
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
    canary: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LARGEST_ID,
            help="Extract a sample of this many documents beside their records, and show what "
            "would change; then `promote` or `discard` it.",
        ),
    ] = None,
    gold: Gold = None,
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
    if gold and canary is None:
        raise UsageError("--gold is for a canary: give --canary too")
    if dry_run and canary is not None:
        raise UsageError("--dry-run and --canary exclude each other: give one of them")
    if canary is not None:
        _run_canary(settings, wanted, canary, gold, json)
    elif dry_run:
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


@app.command()
def show(
    canary_id: CanaryId,
    gold: Gold = None,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    json: Json = False,
) -> None:
    """Show what a canary has found: fields that would change, scores, and the price of it all."""
    settings = load_settings()
    _show_canary(settings, canary_id, _whose(settings, tenant, all_tenants), gold, json)


@app.command()
def promote(
    canary_id: CanaryId,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    json: Json = False,
) -> None:
    """Take over what a canary has found, and go on with all other documents."""
    from penstock.backfill.canary import promote_canary

    settings = load_settings()
    with open_app(settings) as opened:
        whose = _whose(settings, tenant, all_tenants)
        chosen = promote_canary(opened, canary_id, whose).selection
    wanted = {
        "tenant": chosen.tenant_id,
        "all_tenants": chosen.tenant_id is None,
        "source": chosen.source,
        "reasons": [*chosen.reasons],
        "stale_days": chosen.stale_days,
        "limit": chosen.limit,
    }
    _run(settings, wanted, json)


@app.command()
def discard(
    canary_id: CanaryId,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    json: Json = False,
) -> None:
    """Forget what a canary has found. No document was changed."""
    from penstock.backfill.canary import discard_canary

    settings = load_settings()
    with open_app(settings) as opened:
        discard_canary(opened.database, canary_id, _whose(settings, tenant, all_tenants))
    if json:
        print_json({"discarded": canary_id})
    else:
        console.print(f"canary {canary_id} is discarded; no document was changed", highlight=False)


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
    _print_undecided(settings, wanted["tenant"])


def _print_undecided(settings: Settings, tenant: str | None) -> None:
    """Outdated documents wait for a canary."""
    from penstock.backfill.backfill import undecided_canaries, waiting_for

    with open_app(settings) as opened, opened.database.read() as tx:
        for one in undecided_canaries(tx, tenant):
            errors.print(waiting_for(one.id), highlight=False)


def _summary(found: "Estimate") -> str:
    limited = f" of {found.matching}" if found.nodes < found.matching else ""
    return (
        f"{found.nodes}{limited} documents, {found.extractions} extractions, "
        f"estimated cost {found.cost}; nothing was changed"
    )


def _run(settings: Settings, wanted: dict[str, Any], json: bool) -> None:
    from entrypoints.cli.progress import shown_backfill

    began = time.monotonic()
    figures = _run_shown(settings, wanted, shown_backfill, json)
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
    _print_undecided(settings, wanted["tenant"])


def _run_canary(
    settings: Settings, wanted: dict[str, Any], size: int, gold: str | None, json: bool
) -> None:
    from entrypoints.cli.progress import shown_canary

    if gold is not None:
        _read_gold(gold)  # whatever is wrong with it, before the first document
    figures = _run_shown(settings, wanted, shown_canary, json, canary=size)
    _show_canary(settings, figures["id"], wanted["tenant"], gold, json)


def _read_gold(gold: str | None) -> list["GoldRecord"]:
    from penstock.evaluation.gold import read_gold

    return [] if gold is None else [one for found in read_gold([gold]) for one in found.records]


def _show_canary(
    settings: Settings, canary_id: int, whose: str | None, gold: str | None, json: bool
) -> None:
    from penstock.backfill.backfill import read_backfill
    from penstock.backfill.canary_report import report_canary

    with open_app(settings) as opened, opened.database.read() as tx:
        canary = read_backfill(tx, canary_id, whose)
        if canary.canary is None:
            raise UsageError(f"backfill {canary_id} is not a canary: see `penstock backfill list`")
        ended = canary.canary.get("report")
        found = ended and canary.as_json() | ended
        found = found or report_canary(tx, canary, _read_gold(gold)).as_json()
    if json:
        print_json(found)
    else:
        _print_canary(found)


def _print_canary(found: dict[str, Any]) -> None:
    from penstock.backfill.canary_report import FIELD_COLUMNS, price_line

    sure = found["confidence"]
    console.print(
        f"canary {found['id']}, {found['status']}: {found['done']} of "
        f"{found['canary']['documents']} documents done, {found['changed']} would change, "
        f"{found['failed']} failed, {found['skipped']} were skipped",
        highlight=False,
    )
    for profile, fields in found["fields"].items():
        rows = [[name, *one.values()] for name, one in fields.items()]
        print_table(FIELD_COLUMNS, rows, title=profile)
    examples = [
        [one["title"], name, *map(_in_short, sides)]
        for one in found.get("examples", ())
        for name, sides in one["fields"].items()
    ]
    if examples:
        print_table(("document", "field", "as it is", "as it would be"), examples[:MOST_EXAMPLES])
    if found.get("scores"):
        _print_scores(found["scores"])
    print_pairs([("confidence now", sure["before"]), ("confidence then", sure["after"])])
    console.print(price_line(found), highlight=False)
    if found["status"] == "canary":
        number = found["id"]
        console.print(
            f"next: `penstock backfill promote {number}` or `penstock backfill discard {number}`",
            highlight=False,
        )


def _in_short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "–")
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 1]}…"


def _print_scores(scores: dict[str, Any]) -> None:
    from penstock.evaluation import page

    for profile, rows in page.side_by_side(scores["before"], scores["after"]).items():
        print_table(page.SIDE_COLUMNS, rows, title=f"{profile}, by the labelled documents")
    console.print(page.describe_changes(scores["changes"]), highlight=False)


def _run_shown(
    settings: Settings,
    wanted: dict[str, Any],
    shown: "Callable[[Database, Selection], AbstractContextManager[None]]",
    json: bool,
    **parameters: Any,
) -> dict[str, Any]:
    """Run the flow, with its progress."""
    from entrypoints.cli.local_servers import connect_prefect
    from penstock.backfill.backfill import interrupt_backfills, leave_backfills

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
                with shown(opened.database, selection):
                    figures = _run_flow(settings, wanted | parameters)
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
    return figures


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
