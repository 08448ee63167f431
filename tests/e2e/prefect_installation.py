"""A whole installation: a Prefect server on Postgres, all deployments, and process workers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.objects import FlowRun

from penstock.app import App, open_app
from penstock.local.postgres import PostgresServer
from penstock.local.processes import wait_until
from penstock.settings import load_settings
from penstock.testing import GroqServer
from tests.faults.scenarios.orchestrator import running_server
from tests.leftovers import VARIABLE

ROOT = Path(__file__).parent.parent.parent
POOL = "penstock"
INHERITED = ("PATH", "HOME", "LANG", VARIABLE)
# Leases that run out while a test waits for it.
TIMES = {
    "PENSTOCK_LEASE_SECONDS": "6",
    "PENSTOCK_HEARTBEAT_SECONDS": "1",
    "PENSTOCK_SWEEP_SECONDS": "1",
    "PENSTOCK_BATCH_SIZE": "5",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
}


@dataclass
class Installation:
    """What a test does with it."""

    folder: Path
    environment: Mapping[str, str]
    client: SyncPrefectClient
    app: App
    models: GroqServer
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def run(self, *command: str) -> str:
        """A command, as somebody types it; what it says."""
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def deployment_run(self, name: str, **parameters: Any) -> FlowRun:
        """What `prefect deployment run` does, without the seconds that the command takes."""
        deployment = self.client.read_deployment_by_name(name)
        return self.client.create_flow_run_from_deployment(deployment.id, parameters=parameters)

    def deployment_run_by_command(self, name: str, **parameters: Any) -> FlowRun:
        """`prefect deployment run`, and the flow run it has made."""
        options = [f"-p{key}={json.dumps(value)}" for key, value in parameters.items()]
        said = self.run("prefect", "deployment", "run", name, *options)
        [found] = [line.split()[-1] for line in said.splitlines() if "UUID" in line]
        return self.client.read_flow_run(UUID(found))

    def pause_pool(self, is_paused: bool) -> None:
        self.client.update_work_pool(POOL, WorkPoolUpdate(is_paused=is_paused))

    def stop_schedules(self) -> None:
        """Those of every few minutes: their flow runs take seconds of a core from the tests'."""
        for name in ("process/process", "recover/recover"):
            deployment = self.client.read_deployment_by_name(name)
            for schedule in deployment.schedules:
                self.client.update_deployment_schedule(deployment.id, schedule.id, active=False)

    def state_of(self, flow_run: FlowRun) -> str:
        return str(self.client.read_flow_run(flow_run.id).state_name)

    def wait_for_state(self, flow_run: FlowRun, *names: str, seconds: float = 300) -> str:
        found = wait_until(lambda: self.state_of(flow_run) in names, seconds, interval_seconds=0.5)
        assert found, f"{flow_run.name} is {self.state_of(flow_run)}, not {names}\n{self.logs()}"
        return self.state_of(flow_run)

    def start_worker(self, *options: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"worker-{len(self.workers)}.log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, *options],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.workers.append(worker)
        return worker

    def kill_worker(self, worker: "subprocess.Popen[bytes]") -> None:
        """With all it has started, at once."""
        if worker.poll() is None:
            family = [psutil.Process(worker.pid)]
            family += family[0].children(recursive=True)
            for one in family:
                one.kill()
        worker.wait(timeout=30)

    def logs(self) -> str:
        tails = []
        for path in sorted(self.folder.glob("worker-*.log")):
            tails += [f"-- {path.name}", *path.read_text(errors="replace").splitlines()[-30:]]
        return "\n".join(tails)

    def write_documents(self, name: str, count: int) -> Path:
        source = self.folder / name
        source.mkdir()
        for number in range(count):
            text = f"The mill number {number} of {name}. " + "It grinds corn for the town. " * 20
            (source / f"{number:04}.txt").write_text(text)
        return source

    def dismiss(self) -> None:
        for worker in self.workers:
            self.kill_worker(worker)


@contextmanager
def open_installation(
    folder: Path, postgres: PostgresServer, name: str = "installation"
) -> Iterator[Installation]:
    with ExitStack() as opened:
        ours = postgres.create_database(f"{name}_penstock")
        theirs = postgres.create_database(f"{name}_prefect")
        server = opened.enter_context(
            running_server(
                folder / "prefect",
                PREFECT_SERVER_UI_ENABLED="true",
                PREFECT_SERVER_DATABASE_CONNECTION_URL=theirs.replace("psycopg", "asyncpg"),
            )
        )
        models = opened.enter_context(GroqServer())
        temporary = folder / "tmp"
        temporary.mkdir()
        environment = {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            **TIMES,
            "PWD": str(ROOT),
            "TMPDIR": str(temporary),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": server.api_url,
            "PENSTOCK_DSN": ours,
            "PENSTOCK_HOME": str(folder / "home"),
            "GROQ_API_KEY": "gsk_stand-in",
            "EXTRACTION_BASE_URL": models.base_url,
        }
        client = opened.enter_context(SyncPrefectClient(server.api_url))
        app = opened.enter_context(open_app(load_settings(dsn=ours, home=folder / "home")))
        found = Installation(folder, environment, client, app, models)
        opened.callback(found.dismiss)
        found.run("deployments.install")
        found.stop_schedules()
        yield found
