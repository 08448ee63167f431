"""The database goes away in the middle of a run, or the disk has no more room."""

from collections.abc import Iterator

import pytest

from penstock.local.postgres import PostgresServer
from tests.faults.scenarios import stores
from tests.faults.scenarios.endurance import hire_workers
from tests.faults.scenarios.scene import Scene, open_scene
from tests.faults.scenarios.stores import FixedPostgres

WORKERS = 2


@pytest.fixture(scope="module")
def sqlite_scene() -> Iterator[Scene]:
    with open_scene() as scene:
        hire_workers(scene, WORKERS)
        yield scene


@pytest.fixture(scope="module")
def fixed_postgres() -> Iterator[FixedPostgres]:
    """A server of our own, which may be stopped."""
    with stores.open_fixed_postgres() as postgres:
        yield postgres


@pytest.fixture(scope="module")
def postgres_scene(fixed_postgres: FixedPostgres) -> Iterator[Scene]:
    """The same workers live through every outage."""
    with open_scene(fixed_postgres.server.create_database("outages")) as scene:
        hire_workers(scene, WORKERS)
        yield scene


@pytest.mark.parametrize("mode", stores.MODES)
def test_a_run_outlives_a_restart_of_postgres(
    postgres_scene: Scene, fixed_postgres: FixedPostgres, mode: stores.Mode
) -> None:
    found = stores.restart_postgres(postgres_scene, fixed_postgres, mode, documents=30, seconds=1)
    assert found.problems == [], str(found)


def test_a_run_outlives_a_postgres_that_refuses_connections(
    postgres_scene: Scene, fixed_postgres: FixedPostgres
) -> None:
    server: PostgresServer = fixed_postgres.server
    found = stores.refuse_connections(postgres_scene, server, documents=30, seconds=4)
    assert found.problems == [], str(found)


def test_a_run_outlives_a_sqlite_file_that_is_locked_for_longer_than_a_lease(
    sqlite_scene: Scene,
) -> None:
    found = stores.lock_sqlite(sqlite_scene, documents=60, seconds=3)
    assert found.endured.problems == [], str(found.endured)
    assert found.expired > 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_full_disk_pauses_the_run_and_blames_no_document(
    request: pytest.FixtureRequest, kind: str
) -> None:
    scene: Scene = request.getfixturevalue(f"{kind}_scene")
    found = stores.fill_disk(scene, documents=24, stored=13)
    assert found.problems == [], str(found)
    # Whole batches of 1, 2, 4 and 8; what else was stored is read again.
    assert found.done_before == 15
    assert "No space left on device" in found.reason
    assert "PENSTOCK_RAW_FOLDER" in found.reason
