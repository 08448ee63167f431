"""A Prefect server that is set up by one command, and what it does by itself from then on."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import prefect
import pytest
import sqlalchemy as sa
import yaml
from prefect import State
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.events.schemas.events import Event
from prefect.exceptions import ObjectNotFound
from prefect.states import (
    AwaitingRetry,
    Completed,
    Crashed,
    Failed,
    Pending,
    Running,
    Suspended,
)
from prefect.workers.process import ProcessJobConfiguration
from prefect.workers.utilities import get_default_base_job_template_for_infrastructure_type

from deployments.automations import CRASHED, FAILED_INGESTS, OLD_QUEUES, ZOMBIES
from deployments.install import ROOT, deploy_all, install
from deployments.pools import POOL, QUEUES, without_command
from flows.hooks import COMPLETED_WITH_ERRORS
from flows.ingest import ingest
from flows.recover import MOST_STARTS, recover
from penstock.app import open_app
from penstock.errors import PenstockError
from penstock.local.prefect_server import ServerAddress
from penstock.local.processes import wait_until
from penstock.store.schema import work_items
from tasks.events import QUEUE_OLD, RUN_FAILED
from tasks.model_slots import LIMIT
from tests.factories import make_item
from tests.simulator import Site, Status

pytestmark = pytest.mark.usefixtures("prefect", "home")

TROUBLES: dict[str, State[Any]] = {
    "Failed": Failed(),
    "Crashed": Crashed(),
    "Suspended": Suspended(),
    "CompletedWithErrors": Completed(name=COMPLETED_WITH_ERRORS),
}


@pytest.fixture(scope="module")
def client(prefect_server: ServerAddress) -> Iterator[SyncPrefectClient]:
    """It leaves the server, which others use too, as it found it."""
    auth_string = prefect_server.auth_string
    with SyncPrefectClient(prefect_server.api_url, auth_string=auth_string) as client:
        yield client
        for name in (ZOMBIES, FAILED_INGESTS, OLD_QUEUES, CRASHED):
            for automation in client.read_automations_by_name(name):
                client.delete_automation(automation.id)
        for deployment in ours(client):
            client.delete_deployment(deployment.id)
        with suppress(ObjectNotFound):
            client.delete_work_pool(POOL)
        with suppress(ObjectNotFound):
            client.delete_global_concurrency_limit_by_name(LIMIT)


@pytest.fixture(scope="module")
def is_installed() -> list[str]:
    """What was said when it was installed; empty until then."""
    return []


@pytest.fixture
def installed(is_installed: list[str], client: SyncPrefectClient) -> list[str]:
    """For tests that need it, whichever of them comes first."""
    del client
    is_installed.extend([] if is_installed else install())
    return is_installed


def ours(client: SyncPrefectClient) -> list[DeploymentResponse]:
    """Of the deployments on this server, those that prefect.yaml describes."""
    return [one for one in client.read_deployments() if one.name in described()]


def described() -> dict[str, str]:
    """The queue of every deployment in prefect.yaml."""
    found = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    return {one["name"]: one["work_pool"]["work_queue_name"] for one in found}


def wait_for(happened: Callable[[], bool], seconds: float) -> None:
    assert wait_until(happened, seconds, interval_seconds=0.5), f"not within {seconds} s"


def events(client: SyncPrefectClient, name: str) -> list[Event]:
    wanted = EventFilter(event=EventNameFilter(name=[name]))
    return list(client.read_events(wanted, limit=50).events)


def test_a_pool_of_a_type_that_is_not_installed_is_refused_readably(
    client: SyncPrefectClient,
) -> None:
    with pytest.raises(PenstockError, match="knows no work pools of type steam"):
        list(install("steam"))
    with pytest.raises(ObjectNotFound):
        client.read_work_pool(POOL)


def test_prefects_own_command_makes_the_queues_with_limits_and_priorities(
    client: SyncPrefectClient,
) -> None:
    template = asyncio.run(get_default_base_job_template_for_infrastructure_type("process"))
    assert template is not None
    pool = WorkPoolCreate(name=POOL, type="process", base_job_template=template)
    client.create_work_pool(pool)
    assert "deployed backfill/backfill" in list(deploy_all())
    for queue in QUEUES:
        found = client.read_work_queue_by_name(queue.name, work_pool_name=POOL)
        assert (found.priority, found.concurrency_limit) == (queue.priority, queue.limit)
    properties = client.read_work_pool(POOL).base_job_template["variables"]["properties"]
    assert "command" not in properties
    client.delete_work_pool(POOL)


def test_one_command_sets_a_server_up_and_may_be_run_again(
    client: SyncPrefectClient, installed: list[str]
) -> None:
    changed = client.read_work_queue_by_name("llm", work_pool_name=POOL)
    client.update_work_queue(changed.id, concurrency_limit=7)
    second = list(install())

    again = client.read_work_queue_by_name("llm", work_pool_name=POOL)
    assert again.concurrency_limit == 7, "what somebody has changed stays changed"
    client.update_work_queue(changed.id, concurrency_limit=changed.concurrency_limit)
    assert f"created work pool '{POOL}' of type process" in installed
    assert all(line.startswith(("unchanged", "deployed", "registered")) for line in second)
    pool = client.read_work_pool(POOL)
    assert "env" in pool.base_job_template["variables"]["properties"]
    for queue in QUEUES:
        found = client.read_work_queue_by_name(queue.name, work_pool_name=POOL)
        assert (found.priority, found.concurrency_limit) == (queue.priority, queue.limit)
    deployed = {one.name: one.work_queue_name for one in ours(client)}
    assert deployed == described()
    assert set(deployed.values()) == {queue.name for queue in QUEUES}


def job(client: SyncPrefectClient, **variables: object) -> ProcessJobConfiguration:
    """What a worker of the pool would run for a flow run with these job variables."""
    template = client.read_work_pool(POOL).base_job_template
    found = asyncio.run(ProcessJobConfiguration.from_template_and_values(template, variables))
    assert isinstance(found, ProcessJobConfiguration)
    return found


@pytest.mark.usefixtures("installed")
def test_a_flow_run_cannot_have_a_worker_run_another_program(client: SyncPrefectClient) -> None:
    asked = job(client, command="touch /tmp/here", env={"PENSTOCK_TENANT": "acme"})
    assert asked.command is None
    assert asked.env == {"PENSTOCK_TENANT": "acme"}


@pytest.mark.usefixtures("installed")
def test_a_pool_of_an_older_version_is_closed_and_keeps_what_was_changed(
    client: SyncPrefectClient,
) -> None:
    older = asyncio.run(get_default_base_job_template_for_infrastructure_type("process"))
    assert older is not None
    older["variables"]["properties"]["env"]["default"] = {"PENSTOCK_TENANT": "acme"}
    client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=older))
    assert job(client, command="touch /tmp/here").command == "touch /tmp/here"

    [said] = [line for line in install() if "work pool" in line]
    assert said.startswith(f"updated work pool '{POOL}'")
    assert job(client, command="touch /tmp/here").command is None
    assert job(client).env == {"PENSTOCK_TENANT": "acme"}


@pytest.mark.parametrize("kind", ["process", "docker", "kubernetes", "ecs"])
def test_pools_of_no_type_let_a_flow_run_name_a_command(kind: str) -> None:
    views = Path(prefect.__file__).parent / "server" / "api" / "collections_data" / "views"
    packages = json.loads((views / "aggregate-worker-metadata.json").read_text())
    kinds = {name: one for package in packages.values() for name, one in package.items()}
    template = kinds[kind]["default_base_job_configuration"]
    assert "{{ command }}" in json.dumps(template)
    closed = without_command(template)
    assert "{{ command }}" not in json.dumps(closed)
    assert "command" not in closed["variables"]["properties"]
    assert closed["job_configuration"]["env"] == template["job_configuration"]["env"]


@pytest.mark.usefixtures("installed")
def test_work_that_waits_too_long_calls_for_one_more_process(client: SyncPrefectClient) -> None:
    with open_app() as app, app.database.write() as tx:
        app.queue.enqueue(tx, [make_item(), make_item()])
        tx.execute(sa.update(work_items).values(created_at=tx.now - timedelta(hours=1)))
    helpers = DeploymentFilter(name=DeploymentFilterName(any_=["process"]))

    def called() -> bool:
        runs = client.read_flow_runs(deployment_filter=helpers)
        return any(not run.auto_scheduled for run in runs)

    assert not called()

    recover()

    wait_for(called, 180)
    wait_for(lambda: bool(events(client, QUEUE_OLD)), 180)
    [event] = events(client, QUEUE_OLD)
    assert event.payload["waiting"] == 2
    assert event.payload["oldest_seconds"] >= 3600


def make_crashed(client: SyncPrefectClient, name: str, starts: int) -> FlowRun:
    """A flow run of a deployment that has begun so often, and crashed."""
    deployment = client.read_deployment_by_name(name)
    flow_run = client.create_flow_run_from_deployment(deployment.id, parameters={"source": "mills"})
    for number in range(starts):
        if number:
            client.set_flow_run_state(flow_run.id, AwaitingRetry())
        states: list[State[Any]] = [Pending(), Running(), Crashed(message="killed")]
        for state in states:
            client.set_flow_run_state(flow_run.id, state)
    return client.read_flow_run(flow_run.id)


@pytest.mark.usefixtures("installed")
def test_a_crashed_flow_run_calls_for_recovery_which_starts_it_again(
    client: SyncPrefectClient,
) -> None:
    crashed = make_crashed(client, "ingest/ingest", 1)
    too_often = make_crashed(client, "ingest/ingest", MOST_STARTS)
    recoveries = DeploymentFilter(name=DeploymentFilterName(any_=["recover"]))

    def called() -> bool:
        runs = client.read_flow_runs(deployment_filter=recoveries)
        return any(not run.auto_scheduled for run in runs)

    wait_for(called, 180)
    recover()

    again = client.read_flow_run(crashed.id)
    assert (again.state_name, again.run_count) == ("AwaitingRetry", 1)
    assert again.state is not None
    assert again.state.message == "crashed, and started again by `recover` (start 2 of at most 4)"
    assert client.read_flow_run(too_often.id).state_name == "Crashed"


@pytest.mark.parametrize("state", ["Failed", "Crashed", "Suspended", "CompletedWithErrors"])
@pytest.mark.usefixtures("installed")
def test_an_ingest_that_did_not_end_well_triggers_its_automation(
    client: SyncPrefectClient, state: str
) -> None:
    deployment = client.read_deployment_by_name("ingest/ingest")
    flow_run = client.create_flow_run_from_deployment(deployment.id, parameters={"source": "mills"})
    for one in (Pending(), Running(), TROUBLES[state]):
        client.set_flow_run_state(flow_run.id, one)

    def triggered() -> bool:
        [automation] = client.read_automations_by_name(FAILED_INGESTS)
        return any(
            str(automation.id) in one.resource.id
            and str(flow_run.id) in str(one.payload["triggering_event"])
            for one in events(client, "prefect.automation.triggered")
        )

    wait_for(triggered, 120)


@pytest.mark.usefixtures("installed")
def test_an_ingest_that_fails_is_announced_with_its_reason(
    client: SyncPrefectClient, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOW_PRIVATE_ADDRESSES", "true")
    monkeypatch.setenv("PENSTOCK_CRAWL_DELAY_SECONDS", "0")
    site.page("/jobs/1", title="Keeper")
    source = site.sitemap_url
    ingest(source, tenant="acme")
    site.trouble("/sitemap.xml", Status(500))

    with pytest.raises(PenstockError, match=r"run \d+ failed: "):
        ingest(source, tenant="acme")

    def announced() -> list[Event]:
        return [one for one in events(client, RUN_FAILED) if one.payload["tenant"] == "acme"]

    wait_for(lambda: bool(announced()), 180)
    [event] = announced()
    assert event.payload["source"] == source
    assert "500" in event.payload["reason"]
