"""This process as a client of the tests' Prefect server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.prefect_server import PrefectServer, ServerAddress


@pytest.fixture
def prefect(
    prefect_server: ServerAddress, prefect_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServerAddress]:
    """This process, and the ones it starts, talk to the test's server."""
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_HOME,
        temporary_settings,
    )

    environment = PrefectServer(prefect_home).client_environment(prefect_server)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with temporary_settings(
        {
            PREFECT_API_URL: prefect_server.api_url,
            PREFECT_API_AUTH_STRING: prefect_server.auth_string,
            PREFECT_HOME: Path(environment["PREFECT_HOME"]),
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        }
    ):
        yield prefect_server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PENSTOCK_HOME of this test alone."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(folder))
    return folder
