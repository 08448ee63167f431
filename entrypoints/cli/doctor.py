"""`penstock doctor` and `penstock config`: what is wrong, and the settings in effect."""

import os
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from entrypoints.cli.migrate import opened_database
from entrypoints.cli.output import Json, console, errors, print_json, print_table
from penstock.doctor import Finding, diagnose
from penstock.settings import (
    Settings,
    effective_values,
    load_settings,
    mask_url,
    masked,
    retired_model_warnings,
)
from penstock.store.migration import migrate_when_idle

ANSWER_SECONDS = 5.0
_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="Bring the database to this version's schema.")
    ] = False,
    json: Json = False,
) -> None:
    """Check database, migrations, Redis, models, Prefect API and disk."""
    settings = load_settings()
    if fix:
        with opened_database(settings) as database:
            migrate_when_idle(database, lease_seconds=settings.lease_seconds)
    findings = list(diagnose(settings, prefect=lambda: _check_prefect(settings)))
    healthy = all(finding.verdict != "failed" for finding in findings)
    if json:
        print_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    raise typer.Exit(0 if healthy else 1)


def _check_prefect(settings: Settings) -> Finding:
    from penstock.local.joining import prefect_server, sign_in

    named = os.environ.get("PREFECT_API_URL")
    if named:
        sign_in(settings, named)
        # It writes the address of our own server as credentials may be sent to it.
        return _ask(os.environ["PREFECT_API_URL"])
    address = prefect_server(settings).find()
    if address is None:
        return Finding("Prefect API", "ok", "not running; a local server starts when it is needed")
    return Finding("Prefect API", "ok", f"{address.api_url} (local)")


def _ask(api_url: str) -> Finding:
    try:
        with urllib.request.urlopen(f"{api_url}/health", timeout=ANSWER_SECONDS):
            return _check_credentials(api_url)
    except (OSError, ValueError) as error:
        advice = "start it, correct PREFECT_API_URL, or unset it to use a local server"
        return Finding("Prefect API", "failed", f"{mask_url(api_url)}: {error}", advice)


def _check_credentials(api_url: str) -> Finding:
    """/health answers without credentials; this asks whether ours are accepted."""
    request = urllib.request.Request(f"{api_url}/admin/version", headers=_credentials())
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (401, 403):
            advice = "set PREFECT_API_AUTH_STRING (for Prefect Cloud PREFECT_API_KEY)"
            return Finding("Prefect API", "failed", f"{mask_url(api_url)}: {error}", advice)
    return Finding("Prefect API", "ok", mask_url(api_url))


def _credentials() -> dict[str, str]:
    auth_string = os.environ.get("PREFECT_API_AUTH_STRING")
    if auth_string:
        return {"Authorization": f"Basic {b64encode(auth_string.encode()).decode()}"}
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        line = Text.assemble(_SIGNS[finding.verdict], f" {finding.what}: {finding.detail}")
        console.print(line, highlight=False)
        if finding.advice:
            console.print(f"  → {finding.advice}", highlight=False)


def config(json: Json = False) -> None:
    """Print the settings in effect, with secrets masked."""
    settings = load_settings()
    if json:
        print_json(masked(settings))
        return
    rows: list[tuple[str, Any, str]] = effective_values(settings)
    print_table(("setting", "value", "what it does"), rows)
    for warning in retired_model_warnings(settings):
        errors.print(f"[yellow]warning:[/] {warning}", highlight=False, markup=True)
