"""A minute of deaths; `python -m bench.soak` is the five of it."""

from bench.faulting.scene import LEASE_SECONDS, SWEEP_SECONDS, open_scene
from bench.faulting.soaking import soak
from penstock.launcher.postgres import PostgresServer


def test_a_minute_of_deaths_loses_nothing(postgres: PostgresServer) -> None:
    with open_scene(postgres.create_database("soak")) as scene:
        found = soak(scene, documents=1500, seconds=60, kill_every=4)
        # Whatever is left is done in peace.
        scene.wait_for_run(1)
        assert scene.audit(1, 1500).problems == []
    assert found.kills >= 3
    assert found.recovered > 0
    assert found.detection(1.0) < LEASE_SECONDS + SWEEP_SECONDS + 2
