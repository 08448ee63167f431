"""Prefect's server is killed while a flow ingests, and comes back later, or too late."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from penstock.local.processes import LOOPBACK, free_port
from penstock.store.schema import run_documents, runs
from penstock.testing import Reply
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.scene import TENANT, Scene, open_scenes
from tests.faults.scenarios.waiting import wait_for

DOCUMENTS = 60
ANSWER_SECONDS = 0.5
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Orphaned:
    """A run whose orchestrator was away for a while."""

    audit: Audit
    exit_code: int
    done_meanwhile: int
    """Documents that became ready while the server was away."""
    output: str

    @property
    def problems(self) -> list[str]:
        found = list(self.audit.problems)
        if self.exit_code:
            found.append(f"the command ended with {self.exit_code}")
        if not self.done_meanwhile:
            found.append("nothing was done while the server was away")
        return found

    def __str__(self) -> str:
        return (
            f"Prefect's server killed and started again: {self.done_meanwhile} of "
            f"{self.audit.documents} documents got ready meanwhile: "
            f"{', '.join(self.problems) or 'nothing lost, nothing twice'}"
        )


@dataclass
class Server:
    """A Prefect server over one home, always on the same port."""

    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/api"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "PREFECT_HOME": str(self.home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_API_URL": self.api_url,
            "PREFECT_SERVER_UI_ENABLED": "false",
        }
        return {**own, **self.settings}

    def start(self) -> None:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", LOOPBACK]
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._answers, 90, f"Prefect's server on port {self.port}")

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.api_url}/health", timeout=10):
            return True
        return False


@contextmanager
def running_server(home: Path, **settings: str) -> Iterator[Server]:
    home.mkdir(parents=True, exist_ok=True)
    server = Server(home, settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def ingest_without_server(scene: Scene, server: Server, *, away_seconds: float) -> Orphaned:
    """Kill the server once documents are being done, and start it again after so long."""
    scene.models.always(None, Reply().after(ANSWER_SECONDS))
    source = scene.write_documents(DOCUMENTS)
    environment = {
        **scene.environment,
        **server.environment,
        "PREFECT_API_URL": server.api_url,
        "PENSTOCK_TENANT": TENANT,
        "EXTRACTION_CONCURRENCY": "4",
    }
    with _ingesting(source, environment, scene.folder / "ingest.log") as flow:
        wait_for(lambda: _ready(scene) > 0, 180, "the first document to be ready")
        server.kill()
        before = _ready(scene)
        time.sleep(away_seconds)
        meanwhile = _ready(scene) - before
        server.start()
        exit_code = flow.wait(timeout=180)
    with scene.app.database.read() as tx:
        run_id = tx.execute(sa.select(sa.func.max(runs.c.id))).scalar_one()
    output = (scene.folder / "ingest.log").read_text(encoding="utf-8", errors="replace")
    return Orphaned(scene.audit(run_id, DOCUMENTS), exit_code, meanwhile, output)


@contextmanager
def _ingesting(
    source: Path, environment: Mapping[str, str], log_path: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "entrypoints.cli.main", "ingest", str(source)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--profile", "document"],
            env=environment,
            cwd=_ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ready(scene: Scene) -> int:
    ready = sa.select(sa.func.count()).where(run_documents.c.status == "ready")
    with scene.app.database.read() as tx:
        return int(tx.execute(ready.select_from(run_documents)).scalar_one())


def endure_all() -> Iterator[Orphaned]:
    for scene in open_scenes():
        with running_server(scene.folder / "prefect") as server:
            yield ingest_without_server(scene, server, away_seconds=10)
