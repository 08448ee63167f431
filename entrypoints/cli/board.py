"""What people and programs are told about a running installation."""

from typing import Any

from entrypoints.cli.output import console, print_pairs
from penstock.launcher.installation_home import InstallationHome
from penstock.launcher.installation_state import InstallationState, PartState
from penstock.settings import mask_url


def describe(home: InstallationHome, state: InstallationState) -> dict[str, Any]:
    """The board for programs; passwords in addresses are hidden."""
    found = {part.name: part for part in state.parts}
    api = found["api"].address
    prefect = found["prefect"]
    return {
        "home": str(home.folder),
        "prefect_ui_url": None if prefect.given_by else prefect.address,
        "prefect_api_url": mask_url(state.environment["PREFECT_API_URL"]),
        "api_url": api,
        "docs_url": f"{api}/docs",
        "pages_url": f"{api}/ui",
        "database": mask_url(state.environment["PENSTOCK_DSN"]),
        "redis": mask_url(state.environment["REDIS_URL"]),
        "workers": sum(name.startswith("worker-") for name in found),
        "logs": str(home.logs),
        "notes": list(state.notes),
    }


def describe_parts(state: InstallationState | None) -> list[dict[str, Any]]:
    """Each part: whether it runs, where, and where its log is."""
    return [_describe_part(part) for part in state.parts] if state else []


def print_board(home: InstallationHome, state: InstallationState) -> None:
    """The board for people, with what to type next."""
    board = describe(home, state)
    console.print("\n[bold green]Penstock is up[/]")
    print_pairs(
        [
            ("Prefect UI", board["prefect_ui_url"] or f"of {board['prefect_api_url']}"),
            ("HTTP API", board["docs_url"]),
            ("its pages", board["pages_url"]),
            ("database", board["database"]),
            ("Redis", board["redis"]),
            ("workers", board["workers"]),
            ("home", board["home"]),
            ("logs", board["logs"]),
        ]
    )
    for note in board["notes"]:
        _say(f"note: {note}")
    _say("\nCtrl-C stops it; `penstock down` does from elsewhere. Next, in another terminal:")
    _say("  penstock ingest FOLDER            your own documents, here and now")
    _say('  penstock search "…"               what was found; penstock status shows what runs')
    # The one of a given server is known, and its password is hidden here.
    if board["prefect_ui_url"]:
        _say(f"  export PREFECT_API_URL={board['prefect_api_url']}")
    _say("  prefect deployment run 'ingest/ingest' -p source=FOLDER      by one of the workers")


def _describe_part(part: PartState) -> dict[str, Any]:
    return {
        "name": part.name,
        "running": part.is_running,
        "pid": part.process.pid if part.process and part.is_running else None,
        "address": mask_url(part.address) if part.address else None,
        "log": part.log_path,
        "given_by": part.given_by,
    }


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
