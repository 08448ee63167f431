"""A whole installation to measure: Postgres, Prefect with its own Postgres, Redis, deployments."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
from prefect.client.orchestration import SyncPrefectClient

from bench.llm_standin import Standin
from bench.scaling.processes import Family, find_child, postmaster_of
from penstock.app import App, open_app
from penstock.local.postgres import PostgresServer
from penstock.local.processes import wait_until
from penstock.local.valkey import ValkeyServer
from penstock.settings import load_settings
from tests.faults.scenarios.orchestrator import running_server

ROOT = Path(__file__).parents[2]
POOL = "penstock"
TENANT = "default"
PROFILE = "resume"
"""As the stand-in for the models answers."""
LATENCY_SECONDS = 0.05
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV")

Process = subprocess.Popen[bytes]


@dataclass
class Installation:
    """Running servers, and commands as they are typed. All of it ends with the block."""

    folder: Path
    environment: Mapping[str, str]
    client: SyncPrefectClient
    app: App
    standin: Standin
    redis_url: str
    store: PostgresServer
    """Of Penstock's own database. Prefect's is on another server, so that each can be weighed."""
    prefect_store: PostgresServer
    servers: Mapping[str, Family]
    _processes: list[Process] = field(default_factory=list)
    _names: int = 0

    def new_folder(self) -> Path:
        self._names += 1
        return self.folder / f"source-{self._names}"

    @property
    def access_log(self) -> Path:
        return self.folder / "prefect" / "server.log"

    def deployment_run(self, name: str, **parameters: Any) -> UUID:
        """`prefect deployment run`, and the flow run it has made."""
        options = [f"-p{key}={json.dumps(value)}" for key, value in parameters.items()]
        said = run_command(self.environment, "prefect", "deployment", "run", name, *options)
        [found] = [line.split()[-1] for line in said.splitlines() if "UUID" in line]
        return UUID(found)

    def wait_for(
        self, happened: Callable[[], bool], seconds: float, what: str, look_seconds: float = 0.1
    ) -> None:
        if not wait_until(happened, seconds, interval_seconds=look_seconds):
            raise SystemExit(f"waited {seconds:g} s for {what}\n{self.logs()}")

    def ask_store(self, statement: str) -> list[tuple[Any, ...]]:
        return _ask(self.store.dsn("penstock"), statement)

    def ask_prefect_store(self, statement: str) -> list[tuple[Any, ...]]:
        """Not by Prefect's API: its requests are counted, and this must not add any."""
        return _ask(self.prefect_store.dsn("prefect"), statement)

    @contextmanager
    def started(self, *commands: Sequence[str], **settings: str) -> Iterator[list[Process]]:
        """Long-lived commands with these settings; stopped at the end as a supervisor does."""
        processes = [self._start(command, settings) for command in commands]
        try:
            yield processes
        finally:
            stop_processes(processes)

    def _start(self, command: Sequence[str], settings: Mapping[str, str]) -> Process:
        with (self.folder / f"process-{len(self._processes)}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**self.environment, **settings},
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def logs(self) -> str:
        tails = []
        for path in sorted(self.folder.glob("process-*.log")):
            tails += [f"-- {path.name}", *path.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(tails)


def run_command(environment: Mapping[str, str], *command: str) -> str:
    """A Python module as a command; what it says."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def stop_processes(processes: Sequence[Process]) -> None:
    """With SIGTERM, and after a while by force, with all that they have started."""
    families = [one for process in processes for one in _family(process.pid)]
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + 30
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    # psutil knows a process by its id and its time of birth: an id used again is not killed.
    for one in families:
        if one.is_running():
            one.kill()


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def open_installation() -> Iterator[Installation]:
    """Everything on free ports and in a folder of its own, stopped at the end, also on failure."""
    with ExitStack() as opened:
        folder, data, prefect_data = (
            Path(opened.enter_context(tempfile.TemporaryDirectory(prefix=f"penstock-{name}-")))
            for name in ("scale", "scale-pg", "scale-prefect-pg")
        )
        store = opened.enter_context(PostgresServer(data))
        prefect_store = opened.enter_context(PostgresServer(prefect_data))
        dsn = store.create_database("penstock")
        prefect_dsn = prefect_store.create_database("prefect")
        redis_url = opened.enter_context(ValkeyServer(folder / "valkey")).start()
        standin = opened.enter_context(Standin())
        standin.set(LATENCY_SECONDS)
        server = opened.enter_context(
            running_server(
                folder / "prefect",
                PREFECT_SERVER_DATABASE_CONNECTION_URL=prefect_dsn.replace("psycopg", "asyncpg"),
                # One line for every request.
                PREFECT_SERVER_LOGGING_LEVEL="INFO",
            )
        )
        environment = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "PWD": str(ROOT),
            "TMPDIR": str(folder),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": server.api_url,
            "PENSTOCK_DSN": dsn,
            "PENSTOCK_HOME": str(folder / "home"),
            "GROQ_API_KEY": "gsk_stand-in",
            "EXTRACTION_BASE_URL": standin.url,
            "EXTRACTION_HEALTHCHECK_PORT": "0",
        }
        run_command(environment, "deployments.install")
        client = opened.enter_context(SyncPrefectClient(server.api_url))
        pause_schedules(client)
        settings = load_settings(dsn=dsn, home=folder / "home")
        yield Installation(
            folder,
            environment,
            client,
            opened.enter_context(open_app(settings)),
            standin,
            redis_url,
            store,
            prefect_store,
            {
                "Postgres": Family(postmaster_of(data)),
                "Prefect server": Family(find_child("prefect")),
                "Prefect's Postgres": Family(postmaster_of(prefect_data)),
                "Redis": Family(find_child("valkey")),
                "stand-in for the models": Family(find_child("bench.llm_standin")),
            },
        )


def pause_schedules(client: SyncPrefectClient) -> None:
    """Nothing is to start by itself in the middle of a measurement."""
    for deployment in client.read_deployments():
        client.pause_deployment(deployment.id)


def _ask(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn.replace("+psycopg", ""), autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()
