"""The environment variables of a local Prefect server and of the processes that talk to it."""

import os
from pathlib import Path

from penstock.launcher.ports import LOOPBACK

# The second is what Prefect's client library looks at.
_TELEMETRY_OFF = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}


def api_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}/api"


def ui_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def server_environment(folder: Path, port: int, database_url: str | None) -> dict[str, str]:
    """The caller's environment with Prefect's settings replaced by those of this server."""
    return {
        **_without_prefect_settings(),
        **_TELEMETRY_OFF,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_DATABASE_CONNECTION_URL": database_url or sqlite_url(folder),
        "PREFECT_SERVER_UI_API_URL": api_url(port),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_COLORS": "false",
        "PREFECT_CLI_COLORS": "false",
        "PREFECT_CLI_PROMPT": "false",
        "PYTHONUNBUFFERED": "1",
    }


def client_environment(folder: Path, port: int) -> dict[str, str]:
    """What a process sets before it imports prefect, so that it talks to this server alone."""
    return {**_TELEMETRY_OFF, "PREFECT_HOME": str(folder), "PREFECT_API_URL": api_url(port)}


def sqlite_url(folder: Path) -> str:
    return f"sqlite+aiosqlite:///{sqlite_file(folder)}"


def sqlite_file(folder: Path) -> Path:
    return folder / "prefect.db"


def _without_prefect_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
