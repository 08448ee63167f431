"""`penstock up`: a whole installation in one command, its end, and its next life."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from penstock.local.postgres import PostgresServer
from penstock.local.processes import wait_until
from penstock.local.valkey import ValkeyServer
from tests.e2e.commands import CommandLine, end

pytestmark = pytest.mark.timeout(600)
QUICK = {"EMBEDDING_BACKEND": "hash", "PREFECT_WORKER_QUERY_SECONDS": "3"}
START_SECONDS = 180
PATIENCE_SECONDS = 60
ROOT = Path(__file__).parent.parent.parent
OURS = ["postgres", "valkey", "prefect", "standby", "worker-1", "worker-2", "api"]


@dataclass
class Life:
    """One folder, and the `penstock up` that runs there, if it does."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def command(self) -> CommandLine:
        return CommandLine(self.folder / "home", settings=QUICK | self.settings)

    def up(self, *options: str) -> dict[str, Any]:
        """Start it and wait for the board."""
        command = [sys.executable, "-m", "entrypoints.cli.main", "up", "--json", "--port", "0"]
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [*command, *options],
                env=self.command.environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        assert wait_until(lambda: self.has_ended() or bool(self.board()), START_SECONDS)
        assert not self.has_ended(), self.said()
        return self.board()

    def board(self) -> dict[str, Any]:
        with suppress(ValueError, FileNotFoundError):
            board: dict[str, Any] = json.loads((self.folder / "out").read_text())
            return board
        return {}

    def said(self) -> str:
        return (self.folder / "err").read_text()

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def send(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=120)

    def end(self) -> None:
        """Whatever a test that failed has left, also what `down` cannot end."""
        try:
            self.command.run("down")
        finally:
            if not self.has_ended():
                self.send(signal.SIGKILL)
            for process in self.find_processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def parts(self) -> dict[str, dict[str, Any]]:
        status = self.command.run("status", "--json")
        assert status.code == 0, status.err
        return {part["name"]: part for part in status.json["parts"]}

    def processes(self) -> list[str]:
        """All that has to do with this folder, whoever started it."""
        found = []
        for process in self.find_processes():
            with suppress(psutil.NoSuchProcess):
                found.append(f"{process.pid} {process.cmdline()}")
        return found

    def find_processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                words = [*process.cmdline(), *process.environ().values()]
                if any(str(self.folder) in word for word in words):
                    found.append(process)
        return found

    def write_documents(self, name: str, text: str) -> Path:
        source = self.folder / name
        source.mkdir()
        for number in range(3):
            words = f"{text} number {number}. " + "It grinds corn for the town. " * 20
            (source / f"{number}.txt").write_text(words)
        return source


def open_life() -> Iterator[Life]:
    """Directly below the temporary folder: pytest's own are closed to Postgres's account."""
    with tempfile.TemporaryDirectory(prefix="penstock-up-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        life = Life(folder)
        try:
            yield life
        finally:
            life.end()


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    yield from open_life()


@pytest.fixture
def another_life() -> Iterator[Life]:
    yield from open_life()


@pytest.fixture
def running(life: Life) -> Life:
    """With two workers, whatever the test before did to it."""
    if life.has_ended():
        life.up("--workers", "2")
    return life


def ask(url: str) -> httpx.Response:
    """With time for an answer on a busy machine."""
    return httpx.get(url, timeout=PATIENCE_SECONDS)


def test_what_the_board_names_is_there(running: Life) -> None:
    board = running.board()
    assert ask(board["prefect_ui_url"]).status_code == 200
    assert ask(f"{board['prefect_api_url']}/health").json() is True
    assert "********" in board["redis"]
    assert ask(board["docs_url"]).status_code == 200
    ready = ask(f"{board['api_url']}/readyz").json()
    assert ready["status"] == "ready"
    assert ready["checks"]["redis"]["ok"] is True
    assert (board["workers"], board["standby_workers"]) == (2, 1)
    assert Path(board["home"]) == running.folder / "home"
    assert {"api.log", "worker-1.log", "valkey.log"} <= {
        path.name for path in Path(board["logs"]).iterdir()
    }


def test_status_shows_each_part(running: Life) -> None:
    parts = running.parts()
    assert list(parts) == OURS
    assert all(part["running"] and Path(part["log"]).exists() for part in parts.values())
    assert all(psutil.pid_exists(part["pid"]) for part in parts.values())
    shown = running.command.run("status").out
    assert "worker-2" in shown
    assert "not running" not in shown


def test_its_passwords_are_nowhere_to_be_seen(running: Life) -> None:
    home = running.folder / "home"
    files = [home / name for name in ("postgres.password", "valkey.password", "prefect.auth")]
    logs = [path.read_text(errors="replace") for path in home.rglob("*.log")]
    shown = [running.command.run(command).out for command in ("status", "config", "doctor")]
    shown += [running.command.run("up").out, running.command.run("status", "--json").out]
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        password = file.read_text().rpartition(":")[2]
        for text in (*logs, *shown, *running.processes(), str(running.board()), running.said()):
            assert password not in text, file.name
        assert password in (home / "up.json").read_text()
    assert (home / "up.json").stat().st_mode & 0o077 == 0


def test_its_servers_let_in_nobody_who_does_not_know_what_they_ask_for(running: Life) -> None:
    board = running.board()
    url = f"{board['prefect_api_url']}/deployments/filter"
    assert httpx.post(url, json={}, timeout=PATIENCE_SECONDS).status_code == 401
    user, _, password = Path(board["prefect_auth_file"]).read_text().partition(":")
    [ingest] = [
        one
        for one in httpx.post(url, json={}, auth=(user, password), timeout=PATIENCE_SECONDS).json()
        if one["name"] == "ingest"
    ]
    start = f"{board['prefect_api_url']}/deployments/{ingest['id']}/create_flow_run"
    body = {"job_variables": {"command": "touch /tmp/here"}, "parameters": {"source": "/data"}}
    for headers in ({}, {"Origin": "https://elsewhere.example"}):
        refused = httpx.post(start, json=body, headers=headers, timeout=PATIENCE_SECONDS)
        assert refused.status_code == 401
    port = int(board["redis"].rpartition(":")[2].partition("/")[0])
    with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_commands_in_the_same_home_use_its_servers_without_being_told(running: Life) -> None:
    source = running.write_documents("mills", "The windmill")
    done = running.command.run("ingest", source)
    assert done.code == 0, done.err
    assert "windmill" in running.command.run("search", "windmill").out
    told = running.command.run("status", "--json").json
    assert told["database"] == running.board()["database"]
    assert told["database"].startswith("postgresql")
    assert not (running.folder / "home" / "penstock.db").exists()
    hits = ask(f"{running.board()['api_url']}/search?q=windmill").json()
    assert len(hits["hits"]) == 3


def test_a_posted_node_is_ready_at_once(running: Life) -> None:
    api = running.board()["api_url"]
    text = "The standby mill grinds corn for the town. " * 20
    body = {"classes": ["Document"], "props": {"text": text}, "extract": True}

    def is_ready() -> bool:
        node = ask(f"{api}/nodes/{node_id}").json()
        return bool(node["embedding_status"] == "ready")

    # The first one may come before the worker has loaded its model.
    for seconds in (PATIENCE_SECONDS, 3):
        posted = httpx.post(f"{api}/nodes", json=body, timeout=PATIENCE_SECONDS)
        assert posted.status_code < 300, posted.text
        node_id = posted.json()["id"]
        assert wait_until(is_ready, seconds, interval_seconds=0.05)


def test_a_deployment_is_run_by_a_worker_and_no_other_program(running: Life) -> None:
    source = running.write_documents("wheels", "The waterwheel")
    planted = running.folder / "planted"
    done = run_prefect(
        running,
        *("deployment", "run", "ingest/ingest", "-p", f"source={source}"),
        *("-jv", f"command=touch {planted}", "--watch", "--watch-timeout", "120"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not planted.exists(), "what the caller names as a command is not run"
    assert "waterwheel" in running.command.run("search", "waterwheel").out


PROGRAM = """
import json, sys
from flows.ingest import ingest
from penstock import Client
from prefect.deployments import run_deployment

folder, named = sys.argv[1:]
flow_run = run_deployment("ingest/ingest", parameters={"source": folder}, timeout=120)
here = ingest(folder, force=True)
with Client() as client:
    started = client.start_run(named)
    lines = [line.message for line in client.watch(started.run_id)]
    ended = client.wait_run(started.run_id)
print(json.dumps([flow_run.state.name, here["counts"], here["changes"], dict(ended.counts), lines]))
"""


def test_a_python_program_uses_its_servers_without_being_told(running: Life) -> None:
    source = running.write_documents("vanes", "The weathervane")
    named = running.write_documents("cogs", "The cogwheel")
    assert running.command.run("source", "add", "cogs", named).code == 0
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, source, "cogs"],
        env={**running.command.environment(), "PYTHONPATH": str(ROOT)},
        cwd=running.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_worker, here, changes, by_api, lines = json.loads(done.stdout.splitlines()[-1])
    assert by_worker == "Completed"
    assert (here["ready"], changes["same"], changes["changed"]) == (3, 3, 0)
    assert by_api["ready"] == 3
    assert any("finished: 3 ready" in line for line in lines)
    assert "temporary server" not in done.stderr
    assert not (running.folder / "home" / "penstock.db").exists()


def test_other_accounts_reach_nothing_in_its_home(running: Life) -> None:
    home = running.folder / "home"
    assert home.stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)
    modes = {path.name: path.stat().st_mode & 0o077 for path in home.iterdir()}
    assert {"logs", "prefect", "valkey", "postgres"} <= set(modes)
    assert {name for name, mode in modes.items() if mode} == set()


def run_prefect(life: Life, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Prefect's own command in a shell, with what the board says to export."""
    board = life.command.run("up").out
    exports = [line.strip() for line in board.splitlines() if line.startswith("  export ")]
    assert len(exports) == 2, board
    command = shlex.join([sys.executable, "-m", "prefect", *arguments])
    return subprocess.run(
        ["sh", "-c", "\n".join([*exports, f"exec {command}"])],
        env=life.command.environment(),
        cwd=life.folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_second_up_says_that_it_is_already_running(running: Life) -> None:
    second = running.command.run("up", "--json")
    assert second.code == 0
    assert "already running" in second.err
    assert second.json == running.board()


def test_a_worker_that_is_killed_is_replaced(running: Life) -> None:
    killed = running.parts()["worker-2"]["pid"]
    os.kill(killed, signal.SIGKILL)
    assert wait_until(lambda: "worker-2 runs again" in running.said(), 120), running.said()
    # It is written down a moment after it is said.
    assert wait_until(lambda: running.parts()["worker-2"]["pid"] not in (killed, None), 60)


def test_it_ends_in_good_order_and_its_data_outlive_it_and_its_killing(running: Life) -> None:
    source, before = running.write_documents("sails", "The sailcloth"), running.board()
    assert running.command.run("ingest", source).code == 0

    assert running.send(signal.SIGINT) == 0
    stops = [line for line in running.said().splitlines() if line.startswith("stopping")]
    assert [line.split()[-1] for line in stops] == [
        "api",
        "workers",
        "standby",
        "prefect",
        "valkey",
        "postgres",
    ]
    assert running.processes() == []
    refused = running.command.run("search", "sailcloth")
    assert refused.code == 1
    assert "run `penstock up`" in refused.err.replace("\n", " ")
    assert running.command.run("status").code == 1
    assert not (running.folder / "home" / "penstock.db").exists()

    # With what the board says to export, and on the ports of the first start.
    running.settings = {"PREFECT_API_URL": before["prefect_api_url"]}
    again = running.up()
    addresses = ("prefect_api_url", "api_url", "database", "redis")
    assert [again[name] for name in addresses] == [before[name] for name in addresses]
    running.settings = {}
    assert "sailcloth" in running.command.run("search", "sailcloth").out

    running.send(signal.SIGKILL)
    left = " ".join(running.processes())
    assert all(name in left for name in ("valkey-server", "postgres", "worker-1", "serve"))
    assert running.command.run("down", "--json").json == {"stopped": True}
    assert running.processes() == []
    assert running.command.run("down", "--json").json == {"stopped": False}


def test_given_servers_are_used_and_none_of_that_kind_are_started(
    another_life: Life, postgres: PostgresServer, tmp_path: Path
) -> None:
    dsn = postgres.create_database("given_to_up")
    with ValkeyServer(tmp_path) as valkey:
        another_life.settings = {"PENSTOCK_DSN": dsn, "REDIS_URL": valkey.start()}
        shown = another_life.command.run("up", "--detach", "--port", "0", "--json")
        assert shown.code == 0, shown.err
        assert shown.json["database"] == dsn
        assert shown.json["redis"] == another_life.settings["REDIS_URL"]
        assert any("SQLite" in note for note in shown.json["notes"])
        parts = another_life.parts()
        given = {name: part["given_by"] for name, part in parts.items() if part["given_by"]}
        assert given == {"postgres": "PENSTOCK_DSN", "valkey": "REDIS_URL"}
        assert parts["prefect"]["running"] is True
        assert ask(f"{shown.json['api_url']}/readyz").json()["checks"]["redis"]["ok"] is True
        assert not (another_life.folder / "home" / "postgres").exists()
        assert not any("valkey-server" in line for line in another_life.processes())
        assert another_life.command.run("down").code == 0
    assert another_life.processes() == []


def test_a_first_start_that_is_stopped_early_leaves_nothing_that_looks_like_data(
    another_life: Life,
) -> None:
    home = another_life.folder / "home"
    starting = another_life.command.start("up", "--port", "0")
    begun = wait_until(lambda: any(home.glob("postgres.new.*/data/PG_VERSION")), 60)
    ended = end(starting, signal.SIGTERM)
    assert begun, ended.err
    assert ended.code == 0
    assert not (home / "postgres").exists()
    assert another_life.command.run("status").code == 0
    assert another_life.processes() == []


def test_a_port_that_is_taken_is_refused_before_anything_starts(another_life: Life) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = another_life.command.run("up", "--port", str(taken.getsockname()[1]))
    assert refused.code == 2
    assert "--port 0" in refused.err
    assert not (another_life.folder / "home" / "postgres").exists()
