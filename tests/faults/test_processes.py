"""Worker processes that are killed, halted, poisoned, or have the wrong time."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from penstock.local.postgres import PostgresServer
from tests.faults.scenarios import clocks, kills, pauses
from tests.faults.scenarios.orchestrator import ingest_without_server, running_server
from tests.faults.scenarios.poison import work_with_poison
from tests.faults.scenarios.scene import Scene, open_scene

KILLS = 1


@pytest.fixture(scope="module")
def database_urls(postgres: PostgresServer) -> Callable[[str], str | None]:
    """The address of a new database of this kind; None is a SQLite file of the scene's own."""
    made: list[str] = []

    def make(kind: str) -> str | None:
        made.append(kind)
        return None if kind == "sqlite" else postgres.create_database(f"faults_{len(made)}")

    return make


@pytest.fixture(scope="module")
def deaths(
    request: pytest.FixtureRequest, database_urls: Callable[[str], str | None]
) -> Iterator[kills.Deaths]:
    """Two healthy workers, which all deaths on one store happen beside."""
    with open_scene(database_urls(request.param)) as scene:
        yield kills.Deaths(scene)


@pytest.fixture
def postgres_scene(database_urls: Callable[[str], str | None]) -> Iterator[Scene]:
    with open_scene(database_urls("postgres")) as scene:
        yield scene


@pytest.mark.parametrize(
    ("deaths", "point"),
    [
        *(("postgres", point) for point in kills.POINTS),
        # Where the stores differ: who holds the lock, and what one transaction leaves.
        ("sqlite", "claim.uncommitted"),
        ("sqlite", "run.unfinalized"),
    ],
    indirect=["deaths"],
)
def test_a_worker_killed_at_any_point_costs_nothing(deaths: kills.Deaths, point: str) -> None:
    found = deaths.at(point, KILLS)
    assert found.problems == []
    assert len(found.audits) >= KILLS


def test_a_worker_that_wakes_up_after_its_lease_leaves_no_trace(postgres_scene: Scene) -> None:
    healthy = postgres_scene.hire()
    for point in pauses.POINTS:
        assert pauses.wake_up_late(postgres_scene, healthy, point).problems == []


def test_wrong_clocks_neither_steal_items_nor_keep_them(postgres_scene: Scene) -> None:
    assert clocks.work_with_wrong_clocks(postgres_scene).problems == []
    for hand, skew in zip(postgres_scene.hands, clocks.SKEWS, strict=False):
        [*_, line] = re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", hand.log_path.read_text(), re.M)
        said = datetime.fromisoformat(line).timestamp()
        assert abs(said - hand.log_path.stat().st_mtime - skew) < 60


def test_a_poisonous_document_ends_as_a_dead_letter_and_takes_nobody_along(
    postgres_scene: Scene,
) -> None:
    found = work_with_poison(postgres_scene, max_rescues=2)
    assert found.problems == []
    assert found.deaths == 3
    assert found.error == "deadly.poison: its worker died while at it, 3 times: not tried again"


def test_a_run_goes_on_without_prefects_server(postgres_scene: Scene) -> None:
    with running_server(postgres_scene.folder / "prefect") as server:
        found = ingest_without_server(postgres_scene, server, away_seconds=4)
    assert found.problems == [], found.output
