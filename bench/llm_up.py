"""A real `penstock up` in a folder of its own, whose worker runs flow runs of `process`."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import sqlalchemy as sa
from prefect.client.orchestration import SyncPrefectClient

from bench.llm_documents import lay_in, read_end
from bench.llm_standin import Served, Standin
from bench.scaling.installation import pause_schedules
from bench.scaling.processes import Family, read_cpu, spent_between
from penstock.app import App, open_app
from penstock.local.installation import InstallationHome
from penstock.local.processes import wait_until
from penstock.local.state import SupervisorState
from penstock.settings import Settings, load_settings
from penstock.store.schema import ACTIVE_ITEM, work_items

ROOT = Path(__file__).parents[1]
_START_SECONDS = 60.0
_DRAIN_SECONDS = 300.0
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Drained:
    """One flow run of `process` on `penstock up`."""

    documents: int
    seconds: float
    """From the first claim to the last commit, by the database's clock."""
    served: Served
    cpu_ms: Mapping[str, float]
    """Processor time of each part, a document."""
    machine_share: float
    """Of all processors, by all programs of the machine."""

    def __str__(self) -> str:
        cpu = ", ".join(f"{name} {ms:.1f}" for name, ms in self.cpu_ms.items() if ms >= 0.05)
        return (
            f"process on penstock up: {self.documents} documents in {self.seconds:.2f} s, "
            f"{self.documents / self.seconds:.1f} a second, at most {self.served.peak} calls at "
            f"once; machine {self.machine_share:.0%} busy; CPU a document in ms: {cpu}"
        )


@dataclass(frozen=True, slots=True)
class RunningInstallation:
    """Its processes, settings that use its servers, and a client of its Prefect server."""

    families: Mapping[str, Family]
    settings: Settings
    app: App
    client: SyncPrefectClient
    standin: Standin

    def drain(self, documents: int, latency_seconds: float, seed: int) -> Drained:
        """New documents, and one flow run that extracts and embeds them."""
        self.standin.set(latency_seconds)
        before, _ = read_end(self.settings)
        lay_in(self.settings, documents, seed)
        deployment = self.client.read_deployment_by_name("process/process")
        flow_run = self.client.create_flow_run_from_deployment(deployment.id)
        claimed_at = self._wait_for_claim()
        cpu = read_cpu(self.families)
        _wait(self._is_idle, _DRAIN_SECONDS, "the last commit", look_seconds=0.5)
        spent = spent_between(cpu, read_cpu(self.families))
        after, ended_at = read_end(self.settings)
        if after - before != documents:
            raise SystemExit(
                f"{after - before} of {documents} documents are ready: no time to tell"
            )
        _wait(lambda: self._has_ended(flow_run.id), _START_SECONDS, "the flow run to end")
        cpu_ms = {name: 1_000 * used / documents for name, used in spent.families.items()}
        seconds = ended_at - claimed_at
        return Drained(documents, seconds, self.standin.look(), cpu_ms, spent.machine_share)

    def _wait_for_claim(self) -> float:
        """When the first item was claimed; asked for while it is held, later it is forgotten."""
        first = sa.select(sa.func.min(work_items.c.claimed_at)).where(ACTIVE_ITEM)
        found: list[datetime] = []

        def is_there() -> bool:
            with self.app.database.read() as tx:
                found.extend(at for at in tx.execute(first).scalars() if at is not None)
            return bool(found)

        _wait(is_there, _START_SECONDS, "the first claim")
        return found[0].timestamp()

    def _is_idle(self) -> bool:
        with self.app.database.read() as tx:
            left = tx.execute(sa.select(work_items.c.id).where(ACTIVE_ITEM).limit(1))
            return left.first() is None

    def _has_ended(self, flow_run_id: UUID) -> bool:
        state = self.client.read_flow_run(flow_run_id).state
        if state is not None and state.is_final() and not state.is_completed():
            raise SystemExit(f"the flow run ended as {state.name}: {state.message}")
        return state is not None and state.is_final()


@contextmanager
def penstock_up(standin: Standin, concurrency: int) -> Iterator[RunningInstallation]:
    """Started as it is typed, on free ports; stopped at the end, also on failure."""
    # Directly below the temporary folder, and open: Postgres runs as another account.
    with tempfile.TemporaryDirectory(prefix="penstock-bench-up-") as name:
        home = Path(name) / "home"
        Path(name).chmod(0o755)
        environment = {
            **{one: os.environ[one] for one in _INHERITED if one in os.environ},
            "PENSTOCK_HOME": str(home),
            "GROQ_API_KEY": "bench",
            "EXTRACTION_BASE_URL": standin.url,
            "EXTRACTION_CONCURRENCY": str(concurrency),
            "EXTRACTION_HEALTHCHECK_PORT": "0",
        }
        try:
            _run(environment, "up", "--detach", "--port", "0", "--json")
            state = InstallationHome(home).find()
            assert state is not None
            with _connected(state, home, standin) as place:
                yield place
        finally:
            _run(environment, "down")


@contextmanager
def _connected(
    state: SupervisorState, home: Path, standin: Standin
) -> Iterator[RunningInstallation]:
    servers = state.environment
    settings = load_settings(home=home, dsn=servers["PENSTOCK_DSN"], redis_url=servers["REDIS_URL"])
    families = {
        part.name: Family(part.process.pid) for part in state.parts if part.process is not None
    }
    client = SyncPrefectClient(
        servers["PREFECT_API_URL"], auth_string=servers["PREFECT_API_AUTH_STRING"]
    )
    with client, open_app(settings) as app:
        # A scheduled flow run of `process` in the middle would ask for as many answers again.
        pause_schedules(client)
        models = {"stand-in for the models": Family(standin.pid)}
        yield RunningInstallation(families | models, settings, app, client, standin)


def _run(environment: Mapping[str, str], *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "entrypoints.cli.main", *command],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"penstock {' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _wait(
    happened: Callable[[], bool], seconds: float, what: str, look_seconds: float = 0.05
) -> None:
    if not wait_until(happened, seconds, interval_seconds=look_seconds):
        raise SystemExit(f"waited {seconds:g} s for {what}")
