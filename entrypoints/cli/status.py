"""`penstock status` and `penstock workers`: what is there and what is going on."""

import os
from typing import Annotated, Any

import typer
from rich.text import Text

from entrypoints.cli.output import (
    Json,
    Tenant,
    console,
    errors,
    print_error,
    print_json,
    print_pairs,
    print_table,
)
from penstock.app import App, open_app
from penstock.errors import ConfigurationError, StoreError
from penstock.local.joining import installation_home, prefect_server
from penstock.local.state import PartState
from penstock.queue.stats import by_status, count_items, count_nodes
from penstock.rules.extractor import IDENTITY as RULES_IDENTITY
from penstock.runs.costs import tenant_spending
from penstock.runs.report import list_reports
from penstock.settings import Settings, load_settings, mask_url, told_database
from penstock.store.database import Tx

_CONNECT_SECONDS = "5"


def status(tenant: Tenant = None, json: Json = False) -> None:
    """Show documents, work and runs of a tenant, and the servers of this home."""
    settings = load_settings()
    tenant_id = tenant or settings.tenant
    servers = _servers(settings)
    if settings.waits_for_postgres:
        _show_servers_only(servers, servers["database"], json)
        raise typer.Exit(1)
    # A host that is away would be waited for, for minutes.
    os.environ["PGCONNECT_TIMEOUT"] = os.environ.get("PGCONNECT_TIMEOUT") or _CONNECT_SECONDS
    try:
        found = servers | {"prefect": _prefect(settings)} | _contents(settings, tenant_id)
    except StoreError as error:
        _show_servers_only(servers, str(error), json)
        raise typer.Exit(1) from None
    if json:
        print_json(found)
        return
    _print(found)


def _contents(settings: Settings, tenant_id: str) -> dict[str, Any]:
    with open_app(settings) as app, app.database.read() as tx:
        return {
            "extractor": _extractor(app),
            "embedder": settings.embedding.backend,
            "vectors": _vectors(app, tx),
            "undecided_canaries": _undecided(tx, tenant_id),
            "tenant": tenant_id,
            **count_nodes(tx, tenant_id),
            "work": by_status(count_items(tx, tenant_id=tenant_id)),
            "spending": tenant_spending(tx, tenant_id).as_json(),
            "runs": [report.as_json() for report in list_reports(tx, tenant_id, 5)],
        }


def _servers(settings: Settings) -> dict[str, Any]:
    home = installation_home(settings)
    state = home.read()
    return {
        "home": str(settings.home.absolute()),
        "database": told_database(settings),
        "up": home.find() is not None,
        "parts": [_describe_part(part) for part in state.parts] if state else [],
    }


def _describe_part(part: PartState) -> dict[str, Any]:
    return {
        "name": part.name,
        "running": part.is_running,
        "pid": part.process.pid if part.process and part.is_running else None,
        "address": mask_url(part.address) if part.address else None,
        "log": part.log_path,
        "given_by": part.given_by,
    }


def _show_servers_only(servers: dict[str, Any], reason: str, json: bool) -> None:
    """Of use above all when the database does not answer."""
    if json:
        print_json({**servers, "error": reason})
        return
    print_pairs([("home", servers["home"]), ("database", servers["database"])])
    _print_parts(servers)
    if reason != servers["database"]:
        print_error(reason)


def _print_parts(found: dict[str, Any]) -> None:
    rows = [
        [Text(str(cell or "–"), overflow="fold") for cell in _part_row(part)]
        for part in found["parts"]
    ]
    if rows:
        print_table(("part", "", "pid", "address", "log"), rows, title="penstock up")


def _part_row(part: dict[str, Any]) -> tuple[Any, ...]:
    return (part["name"], _running(part), part["pid"], part["address"], part["log"])


def _running(part: dict[str, Any]) -> str:
    if part["given_by"]:
        return f"given by {part['given_by']}"
    return "running" if part["running"] else "not running"


def _extractor(app: App) -> str:
    if not app.settings.asks_models:
        # Building the extractor would import every parser.
        return RULES_IDENTITY
    try:
        return app.extractor.identity
    except ConfigurationError as error:
        return f"not usable: {error}"


def _vectors(app: App, tx: Tx) -> dict[str, Any] | None:
    """Whether search uses the vectors that are made now, or waits for them to be complete."""
    from penstock.search.vectors import look_at_switch

    try:
        found = look_at_switch(tx, app.embedder.identity)
    except ConfigurationError:
        return None
    return found.as_json() | {"text": str(found)}


def _undecided(tx: Tx, tenant_id: str) -> dict[int, str]:
    """Canaries for which outdated documents wait, and what to do about each."""
    from penstock.backfill.backfill import undecided_canaries, waiting_for

    return {one.id: waiting_for(one.id) for one in undecided_canaries(tx, tenant_id)}


def _prefect(settings: Settings) -> dict[str, Any]:
    named = os.environ.get("PREFECT_API_URL")
    address = prefect_server(settings).find()
    if named and (address is None or address.api_url != named):
        return {"running": None, "api_url": mask_url(named), "ui_url": None}
    if address is None:
        return {"running": False, "api_url": None, "ui_url": None}
    return {"running": True, "api_url": address.api_url, "ui_url": address.ui_url}


def _print(found: dict[str, Any]) -> None:
    prefect = found["prefect"]
    server = prefect["ui_url"] or prefect["api_url"] or "not running (starts when needed)"
    print_pairs(
        [
            ("home", found["home"]),
            ("penstock up", "running" if found["up"] else "not running"),
            ("database", found["database"]),
            ("Prefect", server),
            ("extractor", found["extractor"]),
            ("embedder", found["embedder"]),
            ("documents", found["nodes"]),
            ("extraction", _counts(found["extraction"])),
            ("embedding", _counts(found["embedding"])),
            ("needs review", found["needs_review"]),
            ("work", _counts(found["work"])),
            ("models", _spent(found["spending"])),
        ]
    )
    _print_parts(found)
    rows = [
        (
            run["run_id"],
            _status(run),
            run["source"],
            _counts(run["counts"]),
        )
        for run in found["runs"]
    ]
    if found["vectors"] and found["vectors"]["pending"]:
        advice = "penstock backfill --reason vectors --all-tenants"
        print_error(f"{found['vectors']['text']} ({advice})")
    for waiting in found["undecided_canaries"].values():
        errors.print(waiting, highlight=False)
    for run in found["runs"]:
        if run["paused_reason"]:
            print_error(f"run {run['run_id']} is paused: {run['paused_reason']}")
    if rows:
        print_table(("run", "status", "source", "documents"), rows, title="latest runs")
    else:
        console.print("no runs yet: penstock ingest SOURCE, or penstock demo", highlight=False)


def _status(run: dict[str, Any]) -> str:
    return "paused" if run["paused_reason"] else str(run["status"])


def _spent(spending: dict[str, Any]) -> str:
    if not spending["llm_calls"]:
        return "no calls"
    calls, tokens = spending["llm_calls"], spending["tokens"]
    return f"{calls} calls, {tokens} tokens, ${spending['cost_usd']:.4f}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


# How many jobs of one worker the table names; JSON has them all.
NAMED_JOBS = 5


def workers(
    everyone: Annotated[
        bool, typer.Option("--all", help="Include stopped workers and those lost long ago.")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only workers with jobs of this tenant.")
    ] = None,
    json: Json = False,
) -> None:
    """List workers. One is lost if its last heartbeat is older than a lease."""
    from penstock.operations.status import list_workers

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
        print_table(columns, [_worker_row(worker) for worker in found])


def _worker_row(worker: dict[str, Any]) -> list[Any]:
    return [
        worker["id"],
        worker["version"],
        worker["status"],
        f"{worker['heartbeat_age']:.0f} s ago",
        _short_list(worker["job_ids"]),
        worker["completed"],
        worker["failed"],
        f"{worker['started_at'][:19]} UTC",
    ]


def _short_list(job_ids: list[int]) -> str:
    if not job_ids:
        return "none"
    more = ", …" if len(job_ids) > NAMED_JOBS else ""
    return f"{len(job_ids)}: {', '.join(map(str, job_ids[:NAMED_JOBS]))}{more}"
