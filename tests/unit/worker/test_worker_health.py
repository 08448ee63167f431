"""A worker's health endpoint tells the truth, and never stands in the worker's way."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoints.cli.health import HealthServer

pytestmark = pytest.mark.full_suite


@pytest.fixture
def faults() -> list[str]:
    """What is wrong with the worker, if anything."""
    return []


@pytest.fixture
def server(faults: list[str]) -> Iterator[HealthServer]:
    with HealthServer(0, lambda: faults[0] if faults else None, host="127.0.0.1") as server:
        yield server


def ask(server: HealthServer, path: str = "/health") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_healthy_worker_answers_with_exactly_these_bytes(server: HealthServer) -> None:
    assert ask(server) == (200, b'{"status":"healthy","service":"extraction-worker"}')


def test_an_unhealthy_worker_says_why_and_recovers(server: HealthServer, faults: list[str]) -> None:
    faults.append("the database is away")
    status, body = ask(server)
    assert status == 503
    assert json.loads(body) == {
        "status": "unhealthy",
        "service": "extraction-worker",
        "reason": "the database is away",
    }
    faults.clear()
    assert ask(server)[0] == 200


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raw bytes cannot be stored: /srv/pen stock/raw/x: no room", "…: no room"),
        ("[Errno 13] Permission denied: '/etc/keys/groq'", "Permission denied: '…'"),
        ("no table in sqlite:////srv/pen/penstock.db", "no table in sqlite:…"),
        ("cannot reach postgresql://ada:hunter2@db/x", "postgresql://ada:********@db/x"),
    ],
)
def test_the_reason_names_no_paths_and_no_secrets(fault: str, told: str) -> None:
    home = Path("/srv/pen stock")
    with HealthServer(0, lambda: fault, host="127.0.0.1", folders=[home]) as server:
        reason = json.loads(ask(server)[1])["reason"]
    assert told in reason
    for hidden in ("/srv", "stock/", "/etc", "groq", "penstock.db", "hunter2"):
        assert hidden not in reason


def test_other_paths_are_not_found(server: HealthServer) -> None:
    assert ask(server, "/")[0] == 404


def test_a_port_that_is_taken_costs_a_warning_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with HealthServer(port, lambda: None, host="127.0.0.1") as server:
            assert server.port is None
    assert f"port {port} cannot be used" in caplog.text
    assert "EXTRACTION_HEALTHCHECK_PORT" in caplog.text
