"""A minute of deaths; `python -m bench.soak` is the five of it."""

import pytest

from penstock.local.postgres import PostgresServer
from penstock.store.leader_lease import HELD_SECONDS
from tests.faults.scenarios.scene import LEASE_SECONDS, SWEEP_SECONDS, open_scene
from tests.faults.scenarios.soaking import soak

# About what three workers do in a minute, most of the time one of them just starting.
DOCUMENTS = 8000


@pytest.mark.timeout(600)
def test_a_minute_of_deaths_loses_nothing(postgres: PostgresServer) -> None:
    with open_scene(postgres.create_database("soak")) as scene:
        found = soak(scene, documents=DOCUMENTS, seconds=60, kill_every=3)
        # Whatever is left is done in peace.
        scene.wait_for_run(1, seconds=400)
        assert scene.audit(1, DOCUMENTS).problems == []
    assert found.kills >= 3
    assert found.recovered > 0
    # Those who look for the dead die here too, in the middle of it.
    assert found.detection(1.0) < LEASE_SECONDS + SWEEP_SECONDS + HELD_SECONDS + 2
