"""`penstock demo`: the whole way, on a small corpus that comes with the package."""

import os
import shlex
import time
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from entrypoints.cli.documents import Mode, find, print_hits
from entrypoints.cli.ingest import IngestResult, run_ingest
from entrypoints.cli.output import Json, console, print_error, print_json, print_table
from penstock.app import open_app
from penstock.documents import Stage
from penstock.home import make_private_folder
from penstock.runs.report import DocumentLine, RunReport, list_documents
from penstock.runs.run import DocumentStatus
from penstock.search.nodes import list_nodes
from penstock.search.query import Filters
from penstock.settings import Settings, load_settings

CORPUS = Path(__file__).parent.parent / "demo" / "corpus"
SEARCHES = (("hydrology data pipelines in Python", Mode.HYBRID), ("project management", Mode.TEXT))
_STYLES = {"ready": "green", "skipped": "dim", "error": "red", "expired": "yellow"}


def demo(json: Json = False) -> None:
    """Ingest a bundled careers site and a folder of résumés, then search them."""
    started = time.monotonic()
    # The demo's own site is on this machine, where the crawler otherwise does not go.
    settings = load_settings(allow_private_addresses=True, crawl_delay_seconds=0.0)
    os.environ["PENSTOCK_ALLOW_PRIVATE_ADDRESSES"] = "true"
    os.environ["PENSTOCK_CRAWL_DELAY_SECONDS"] = "0"
    if not json:
        _say("Ingesting a careers site (served on this machine) and a folder of résumés.")
    results = _ingest_both(settings)
    if json:
        print_json(_as_json(settings, results))
    else:
        _show(settings, results, started)
    raise typer.Exit(max(result.exit_code(strict=False) for result in results.values()))


def _show(settings: Settings, results: dict[str, IngestResult], started: float) -> None:
    for title, result in results.items():
        _print_documents(settings, title, result.report)
        if result.problem:
            print_error(result.problem)
    _print_figures([result.report for result in results.values()], time.monotonic() - started)
    _print_searches(settings)
    _print_next(settings)


def _ingest_both(settings: Settings) -> dict[str, IngestResult]:
    from entrypoints.demo.site import DemoSite

    port_file = settings.home / "demo" / "site-port"
    make_private_folder(port_file.parent)
    with DemoSite(CORPUS / "site", port_file) as site:
        postings = run_ingest(settings, site.url, settings.tenant, profile="job_posting")
    if postings.interrupted:
        print_error(postings.problem or "interrupted")
        raise typer.Exit(postings.exit_code(strict=False))
    folder = str(CORPUS / "resumes")
    resumes = run_ingest(settings, folder, settings.tenant, profile="resume")
    return {"careers site": postings, "résumés": resumes}


def _print_documents(settings: Settings, title: str, report: RunReport) -> None:
    with open_app(settings) as app, app.database.read() as tx:
        lines = list_documents(tx, report.run.id)
        nodes = {node["id"]: node for node in list_nodes(tx, settings.tenant, run_id=report.run.id)}
    rows = [
        (
            _short(line.external_id),
            Text(line.status, style=_STYLES.get(line.status, "")),
            _why(line, nodes.get(line.node_id or "")),
        )
        for line in lines
    ]
    print_table(("document", "became", "why"), rows, title=f"run {report.run.id}: {title}")


def _why(line: DocumentLine, node: dict[str, Any] | None) -> str:
    if line.status != DocumentStatus.READY or node is None:
        return line.reason or ""
    if node["extraction_status"] == "skipped":
        made = f"indexed, not extracted ({node['extraction_reason']})"
    else:
        made = f"{node['profile']}, confidence {node['extraction_confidence']:.2f}"
    if not line.reason:
        return made
    kind, _, other = line.reason.rpartition(" ")
    return f"{made}; {kind} {_short(other)}"


def _print_figures(reports: list[RunReport], seconds: float) -> None:
    extracted = sum(report.stages[Stage.EXTRACT].worked for report in reports)
    embedded = sum(report.stages[Stage.EMBED].worked for report in reports)
    reused = sum(report.stages[Stage.EXTRACT].reused for report in reports)
    calls = sum(report.spending.llm_calls for report in reports)
    cost = sum(report.spending.cost_usd for report in reports)
    fallbacks = sum(report.spending.fallbacks for report in reports)
    rate = fallbacks / extracted if extracted else 0.0
    if not extracted and not embedded:
        _say("Nothing has changed since the last run: nothing was extracted or embedded.")
    _say(
        f"{extracted} extracted ({reused} more reused), {embedded} embedded, "
        f"in {seconds:.1f} s altogether"
    )
    _say(
        f"{calls} model calls, fallback rate {rate:.0%}, cost ${cost:.4f}"
        + (" (extracted by offline rules, without a model)" if calls == 0 else "")
    )


def _print_searches(settings: Settings) -> None:
    with open_app(settings) as app:
        for query, mode in SEARCHES:
            heading = f"\n[bold]penstock search[/] {query!r} --mode {mode}"
            console.print(heading, highlight=False, markup=True)
            print_hits(find(app, query, Filters(settings.tenant), mode, 3))


def _print_next(settings: Settings) -> None:
    from penstock.local.joining import prefect_server

    server = prefect_server(settings)
    address = server.find()
    console.print("\n[bold]Where to look next[/]", markup=True)
    if address is not None:
        _say(f"  {address.ui_url}  the Prefect UI: flow runs, artifacts, logs")
        _say(f"  cat {shlex.quote(str(server.auth_path))}   its password")
    _say("  penstock status, penstock runs, penstock nodes, penstock show NODE_ID")
    _say("  penstock serve           the dashboard, at http://127.0.0.1:8000/ui")
    _say("  penstock ingest FOLDER   your own documents")
    _say("  from flows.ingest import ingest   the same from Python")
    _say("  README.md and docs/      what it does, how it works, how to run it for real")
    _say("  penstock down            stops the Prefect server (it also stops when idle)")


def _as_json(settings: Settings, results: dict[str, IngestResult]) -> dict[str, Any]:
    with open_app(settings) as app:
        searches = {
            query: [hit.as_json() for hit in find(app, query, Filters(settings.tenant), mode, 3)]
            for query, mode in SEARCHES
        }
    return {"runs": [result.as_json() for result in results.values()], "searches": searches}


def _short(external_id: str) -> str:
    return external_id.partition("://")[2].partition("/")[2] or external_id


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False)
