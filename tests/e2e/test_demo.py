"""The demo, as a newcomer runs it: nothing given, a Prefect server of its own, twice."""

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.local.prefect_server import PrefectServer, ServerAddress
from penstock.local.processes import wait_until
from tests.e2e.commands import CommandLine, Done
from tests.together import quickest

CALL_THE_SERVER = """
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    print(client.api_url, client.hello().json())
"""


@pytest.fixture(scope="module")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("demo") / "home")
    try:
        yield line
    finally:
        line.run("down")


@pytest.fixture(scope="module")
def first(command_line: CommandLine) -> Done:
    return command_line.run("demo")


@pytest.fixture(scope="module")
def second(command_line: CommandLine, first: Done) -> Done:
    del first
    return command_line.run("demo")


def test_the_first_demo_tells_what_became_of_each_document_and_why(first: Done) -> None:
    assert first.code == 0, first.err
    for told in (
        "near-duplicate of jobs/senior-python-engineer",
        "duplicate of haldane-cv-final-v2.pdf",
        "insufficient_text",
        "the file is empty (0 bytes)",
        "the PDF is broken",
        "fallback rate",
        "cost $0.0000",
        "penstock search",
        "the Prefect UI",
    ):
        assert told in first.out


def test_nothing_frightening_is_on_the_screen(first: Done, second: Done) -> None:
    for screen in (first.out + first.err, second.out + second.err):
        assert "Traceback" not in screen
        assert "warning" not in screen.lower()


def test_the_second_demo_says_that_nothing_changed_and_does_nothing(second: Done) -> None:
    assert second.code == 0, second.err
    assert (
        "Nothing has changed since the last run: nothing was extracted or embedded." in second.out
    )
    assert "0 extracted (0 more reused), 0 embedded" in second.out


def test_the_demo_speaks_json_and_finds_things(command_line: CommandLine, second: Done) -> None:
    del second
    told = command_line.run("demo", "--json").json

    assert [run["status"] for run in told["runs"]] == ["finished", "finished"]
    assert [run["extractions"] + run["embeddings"] for run in told["runs"]] == [0, 0]
    assert all(hits for hits in told["searches"].values())
    assert any("<mark>" in hit["snippet"] for hits in told["searches"].values() for hit in hits)


def test_all_state_is_in_the_home(command_line: CommandLine, first: Done) -> None:
    del first
    assert {path.name for path in command_line.home.parent.iterdir()} == {"home"}
    assert (command_line.home / "penstock.db").exists()


# The Prefect server that the first one has started


@pytest.fixture
def server(command_line: CommandLine, second: Done) -> PrefectServer:
    del second
    return PrefectServer(command_line.home)


@pytest.fixture
def address(server: PrefectServer) -> ServerAddress:
    found = server.find()
    assert found is not None
    return found


def fetch(url: str, auth_string: str | None = None) -> bytes:
    request = urllib.request.Request(url)
    if auth_string is not None:
        token = base64.b64encode(auth_string.encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def fetch_json(url: str, auth_string: str | None = None) -> Any:
    return json.loads(fetch(url, auth_string))


def ask(address: ServerAddress, path: str) -> Any:
    return fetch_json(f"{address.api_url}{path}", address.auth_string)


def connections_of(address: ServerAddress) -> list[Any]:
    tcp = psutil.Process(address.pid).net_connections("tcp")
    return [each for each in tcp if each.status == psutil.CONN_ESTABLISHED]


def test_it_is_found_quickly(server: PrefectServer, address: ServerAddress) -> None:
    assert quickest(lambda: server.find() == address) < 2


def test_its_interface_is_served_and_talks_to_its_own_port(address: ServerAddress) -> None:
    assert b"<html" in fetch(address.ui_url)
    assert fetch_json(f"{address.ui_url}/ui-settings")["api_url"] == address.api_url


def test_it_sends_no_usage_statistics(address: ServerAddress) -> None:
    settings = ask(address, "/admin/settings")
    assert settings["server"]["analytics_enabled"] is False


def test_its_catalogue_of_workers_comes_from_its_own_copy(address: ServerAddress) -> None:
    began = time.monotonic()
    catalogue = ask(address, "/collections/views/aggregate-worker-metadata")
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


def test_down_stops_the_server_and_says_so(command_line: CommandLine, second: Done) -> None:
    del second
    assert command_line.run("status", "--json").json["prefect"]["running"] is True
    assert command_line.run("down", "--json").json == {"stopped": True}
    assert command_line.run("status", "--json").json["prefect"]["running"] is False
    assert command_line.run("down", "--json").json == {"stopped": False}
