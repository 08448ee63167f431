"""The automations as a real Prefect server has them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import Automation, EventTrigger, Posture

from deployments.automations import (
    FAILED_INGESTS,
    HEARTBEAT_SECONDS,
    TAG,
    ZOMBIES,
    install_automations,
)

pytestmark = pytest.mark.usefixtures("prefect", "home")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def client() -> Iterator[SyncPrefectClient]:
    """It leaves the server, which others use too, without our automations."""
    with get_client(sync_client=True) as client:
        yield client
        for name in (ZOMBIES, FAILED_INGESTS):
            for automation in client.read_automations_by_name(name):
                client.delete_automation(automation.id)


def installed(client: SyncPrefectClient) -> list[Automation]:
    return client.read_automations_by_name(ZOMBIES)


def test_installing_twice_leaves_one_automation(client: SyncPrefectClient) -> None:
    said = [install_automations()[0].split()[0] for _ in range(2)]

    assert said == ["created", "unchanged"]
    (automation,) = installed(client)
    trigger = automation.trigger
    assert isinstance(trigger, EventTrigger)
    assert trigger.posture is Posture.Proactive
    assert trigger.after == {"prefect.flow-run.heartbeat"}
    assert {"prefect.flow-run.heartbeat", "prefect.flow-run.Completed"} < trigger.expect
    assert trigger.for_each == {"prefect.resource.id"}
    assert trigger.within == timedelta(seconds=90)
    (action,) = automation.actions
    assert action.type == "change-flow-run-state"
    assert action.state.value == "CRASHED"
    assert "No heartbeat for 90 s" in str(action.message)


def test_an_update_keeps_the_automation_and_whether_it_is_switched_on(
    client: SyncPrefectClient,
) -> None:
    install_automations()
    (first,) = installed(client)
    client.pause_automation(first.id)

    assert install_automations(within_seconds=120)[0].startswith("updated")

    (second,) = installed(client)
    assert isinstance(second.trigger, EventTrigger)
    assert (second.id, second.enabled) == (first.id, False)
    assert second.trigger.within == timedelta(seconds=120)


def test_every_deployment_sends_the_heartbeats_the_automation_counts_on() -> None:
    for deployment in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]:
        environment = deployment["work_pool"]["job_variables"]["env"]
        assert environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == str(HEARTBEAT_SECONDS)
        assert TAG in deployment["tags"]
