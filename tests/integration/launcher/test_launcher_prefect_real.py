"""The real Prefect server, started once for all of these."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.launcher.prefect_server import PrefectServer, ServerAddress
from penstock.launcher.processes import wait_until
from tests.together import quickest

CALL_THE_SERVER = """
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    print(client.api_url, client.hello().json())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    server = PrefectServer(tmp_path_factory.mktemp("home of prefect"), idle_seconds=120)
    try:
        server.ensure()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def address(server: PrefectServer) -> ServerAddress:
    return server.ensure()


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def fetch_json(url: str) -> Any:
    return json.loads(fetch(url))


def connections_of(address: ServerAddress) -> list[Any]:
    import psutil

    tcp = psutil.Process(address.pid).net_connections("tcp")
    return [each for each in tcp if each.status == psutil.CONN_ESTABLISHED]


def test_it_is_found_quickly(server: PrefectServer, address: ServerAddress) -> None:
    assert quickest(lambda: server.find() == address) < 2


def test_its_interface_is_served_and_talks_to_its_own_port(address: ServerAddress) -> None:
    assert b"<html" in fetch(address.ui_url)
    assert fetch_json(f"{address.ui_url}/ui-settings")["api_url"] == address.api_url


def test_it_sends_no_usage_statistics(address: ServerAddress) -> None:
    settings = fetch_json(f"{address.api_url}/admin/settings")
    assert settings["server"]["analytics_enabled"] is False


def test_its_catalogue_of_workers_comes_from_its_own_copy(address: ServerAddress) -> None:
    began = time.monotonic()
    catalogue = fetch_json(f"{address.api_url}/collections/views/aggregate-worker-metadata")
    assert "process" in catalogue["prefect"]
    assert time.monotonic() - began < 30


def test_it_has_no_connection_while_nobody_uses_it(address: ServerAddress) -> None:
    assert wait_until(lambda: not connections_of(address), timeout_seconds=30)
    assert not wait_until(lambda: bool(connections_of(address)), timeout_seconds=5)


def test_a_client_with_its_environment_reaches_it(
    server: PrefectServer, address: ServerAddress
) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", CALL_THE_SERVER],
        env={**os.environ, **server.client_environment(address)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert address.api_url in answer.stdout


def test_its_files_stay_in_its_home(server: PrefectServer) -> None:
    names = {path.name for path in Path(server.log_path).parent.iterdir()}
    assert {"prefect.db", "server.json", "server.lock", "server.log"} <= names
