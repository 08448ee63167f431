"""Flows called from a Python program that names no server: it finds one, or starts it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.local.prefect_server import PrefectServer
from tests.e2e.commands import CommandLine

ROOT = Path(__file__).parent.parent.parent
PLAIN = """
from flows.ingest import ingest

print(ingest({folder!r})["counts"]["ready"])
"""
# Prefect is imported first, and the flow of the program begins before any of ours.
OWN_FLOW = """
from prefect import flow, task
from flows.ingest import ingest
from flows.process import process

@task
def name_folder() -> str:
    return {folder!r}

@flow
def nightly() -> int:
    ready = ingest(name_folder.submit().result(), force=True)["counts"]["ready"]
    return ready + process()

print(nightly())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Without any server; the one that is started in it is stopped in the end."""
    command = CommandLine(
        tmp_path_factory.mktemp("python") / "home", settings={"EMBEDDING_BACKEND": "hash"}
    )
    yield command
    command.run("down")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for number in range(2):
        (folder / f"{number}.txt").write_text(f"Mill {number}. " + "It grinds corn. " * 20)
    return folder


def run(home: CommandLine, program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-c", program.format(folder=str(folder))],
        env={**home.environment(), "PYTHONPATH": str(ROOT)},
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def flow_runs(home: CommandLine) -> list[dict[str, Any]]:
    address = PrefectServer(home.home).find()
    assert address is not None
    user, _, password = address.auth_string.partition(":")
    answer = httpx.post(
        f"{address.api_url}/flow_runs/filter",
        json={"sort": "START_TIME_ASC"},
        auth=(user, password),
        timeout=60,
    )
    found: list[dict[str, Any]] = json.loads(answer.text)
    return found


def test_a_flow_of_ones_own_with_ours_in_it_starts_the_server_of_the_home_which_stays(
    home: CommandLine, folder: Path
) -> None:
    done = run(home, OWN_FLOW, folder)
    assert done.stdout.splitlines()[-1] == "2"
    assert "starting the Prefect server" in done.stderr
    assert "temporary server" not in done.stderr
    mine, *parts = flow_runs(home)
    assert [part["state_name"] for part in parts] == ["Completed", "Completed"]
    assert all(part["parent_task_run_id"] for part in parts)
    assert mine["state_name"] == "Completed"


def test_a_flow_called_alone_finds_it(home: CommandLine, folder: Path) -> None:
    before = len(flow_runs(home))
    done = run(home, PLAIN, folder)
    assert done.stdout.splitlines()[-1] == "0", "nothing has changed"
    assert "starting the Prefect server" not in done.stderr
    assert len(flow_runs(home)) == before + 1
