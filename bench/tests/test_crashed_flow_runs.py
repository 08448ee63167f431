"""A flow run that dies with its worker is marked as crashed, by the automation, after 45 s."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.events.filters import EventFilter, EventNameFilter, EventResourceFilter

from deployments.automations import (
    FAILED_INGESTS,
    HEARTBEAT_SECONDS,
    ZOMBIES,
    install_automations,
)
from penstock.app import open_app
from penstock.local.processes import wait_until
from penstock.runs.lifecycle import count_documents, read_run
from penstock.runs.run import DocumentStatus, RunStatus
from tests.simulator import Site

pytestmark = pytest.mark.usefixtures("prefect", "home")

ROOT = Path(__file__).parents[2]
POOL = "penstock"
DEPLOYMENTS = ("ingest", "drain-extraction")
# Longer than a heartbeat takes, or the living would be taken for dead too.
WITHIN_SECONDS = 1.5 * HEARTBEAT_SECONDS
# A slow crawl of a site on loopback, whose leases run out soon after its end.
SETTINGS = {
    "PENSTOCK_ALLOW_PRIVATE_ADDRESSES": "true",
    "PENSTOCK_CRAWL_DELAY_SECONDS": "0",
    "PENSTOCK_LEASE_SECONDS": "20",
    "PENSTOCK_HEARTBEAT_SECONDS": "2",
    "PENSTOCK_SWEEP_SECONDS": "2",
}

StartWorker = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def client() -> Iterator[SyncPrefectClient]:
    """It leaves the server, which others use too, without our automations."""
    with get_client(sync_client=True) as client:
        yield client
        for name in (ZOMBIES, FAILED_INGESTS):
            for automation in client.read_automations_by_name(name):
                client.delete_automation(automation.id)


def run_prefect(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        cwd=ROOT,
        env={**os.environ, "PWD": str(ROOT)},  # prefect.yaml asks for it
        check=True,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture
def deployed(client: SyncPrefectClient) -> Iterator[dict[str, UUID]]:
    """What prefect.yaml describes, on this server for the time of the test."""
    run_prefect("work-pool", "create", POOL, "--type", "process", "--overwrite")
    run_prefect("deploy", *(part for name in DEPLOYMENTS for part in ("-n", name)))
    found = {deployment.name: deployment.id for deployment in client.read_deployments()}
    yield {name: found[name] for name in DEPLOYMENTS}
    for name in DEPLOYMENTS:
        client.delete_deployment(found[name])
    client.delete_work_pool(POOL)


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers that take one flow run each; what is left of them at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []
    log = (tmp_path / "workers.log").open("ab")

    def start() -> "subprocess.Popen[bytes]":
        command = ["-m", "prefect", "worker", "start", "--pool", POOL, "--limit", "1"]
        # A killed worker leaves the temporary folder of its flow run behind.
        own = {"PREFECT_WORKER_QUERY_SECONDS": "1", "TMPDIR": str(tmp_path)}
        worker = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, **own},
            stdout=log,
            stderr=log,
        )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        kill_with_children(worker)
    log.close()


def kill_with_children(worker: "subprocess.Popen[bytes]") -> None:
    """The worker first, so that it cannot report what happens to its flow run."""
    if worker.poll() is None:
        children = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        worker.wait(timeout=20)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def heartbeats(client: SyncPrefectClient, flow_run: FlowRun) -> int:
    wanted = EventFilter(
        event=EventNameFilter(name=["prefect.flow-run.heartbeat"]),
        resource=EventResourceFilter(id=[f"prefect.flow-run.{flow_run.id}"]),
    )
    return len(client.read_events(wanted, limit=50).events)


def wait_for(happened: Callable[[], bool], seconds: float) -> None:
    """Not more often than that: every look costs the server time it needs for its own work."""
    assert wait_until(happened, seconds, interval_seconds=0.5), f"not within {seconds} s"


def test_a_flow_run_that_died_with_its_worker_is_marked_as_crashed(
    client: SyncPrefectClient,
    deployed: dict[str, UUID],
    start_worker: StartWorker,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    for number in range(300):
        site.page(f"/jobs/{number}", title=f"Keeper {number}")
    site.latency_seconds = 1
    install_automations(WITHIN_SECONDS)

    def state_of(flow_run: FlowRun) -> str | None:
        return client.read_flow_run(flow_run.id).state_name

    def start(name: str, **parameters: Any) -> FlowRun:
        flow_run = client.create_flow_run_from_deployment(deployed[name], parameters=parameters)
        wait_for(lambda: state_of(flow_run) == "Running", seconds=180)
        return flow_run

    start_worker()
    survivor = start("drain-extraction", stages=[], forever=True)
    worker = start_worker()
    victim = start("ingest", source=site.sitemap_url)
    wait_for(lambda: sum(documents().values()) > 0, seconds=180)
    wait_for(lambda: heartbeats(client, victim) > 0, seconds=120)

    kill_with_children(worker)

    assert state_of(victim) == "Running", "its death has not been reported yet"
    wait_for(lambda: state_of(victim) == "Crashed", seconds=WITHIN_SECONDS + 120)
    state = client.read_flow_run(victim.id).state
    assert state is not None
    assert "No heartbeat for 45 s" in str(state.message)
    assert state_of(survivor) == "Running"
    assert heartbeats(client, survivor) > 1, "it began first, and has beaten since"
    # The survivor has done the documents that were in, and ended the run without a flow.
    wait_for(lambda: run_status() is RunStatus.ERROR, seconds=120)
    counts = documents()
    assert counts[DocumentStatus.READY] == sum(counts.values()) > 0


def documents() -> dict[DocumentStatus, int]:
    with open_app() as app, app.database.read() as tx:
        return count_documents(tx, 1)


def run_status() -> RunStatus:
    with open_app() as app, app.database.read() as tx:
        return read_run(tx, 1).status
