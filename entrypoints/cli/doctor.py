"""`penstock doctor`: what is wrong, and what to do about it."""

import os
import urllib.request
from dataclasses import asdict
from typing import Annotated

import typer

from entrypoints.cli.output import Json, console, print_json
from penstock.diagnosis import Finding, diagnose
from penstock.settings import Settings, load_settings, mask_url

ANSWER_SECONDS = 5.0
_SIGNS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]"}


def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="Bring the database to this version's schema.")
    ] = False,
    json: Json = False,
) -> None:
    """Check database, migrations, Redis, models, Prefect API and disk."""
    settings = load_settings()
    if fix:
        _migrate(settings)
    findings = list(diagnose(settings, prefect=lambda: _check_prefect(settings)))
    healthy = all(finding.verdict != "failed" for finding in findings)
    if json:
        print_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    raise typer.Exit(0 if healthy else 1)


def _migrate(settings: Settings) -> None:
    from penstock.store.database import Database
    from penstock.store.migration import migrate

    database = Database(settings.database_url)
    try:
        migrate(database)
    finally:
        database.close()


def _check_prefect(settings: Settings) -> Finding:
    from entrypoints.cli.local_prefect import prefect_server

    named = os.environ.get("PREFECT_API_URL")
    if named:
        return _ask(named)
    address = prefect_server(settings).find()
    if address is None:
        return Finding("Prefect API", "ok", "not running; a local server starts when it is needed")
    return Finding("Prefect API", "ok", f"{address.api_url} (local)")


def _ask(api_url: str) -> Finding:
    try:
        with urllib.request.urlopen(f"{api_url}/health", timeout=ANSWER_SECONDS):
            return Finding("Prefect API", "ok", mask_url(api_url))
    except (OSError, ValueError) as error:
        advice = "start it, mend PREFECT_API_URL, or unset it to have a local server started"
        return Finding("Prefect API", "failed", f"{mask_url(api_url)}: {error}", advice)


def _print(findings: list[Finding]) -> None:
    from rich.markup import escape

    for finding in findings:
        console.print(
            f"{_SIGNS[finding.verdict]} {finding.what}: {escape(finding.detail)}", highlight=False
        )
        if finding.advice:
            console.print(f"  → {escape(finding.advice)}", highlight=False)
