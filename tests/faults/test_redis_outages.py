"""Redis dies, forgets or is slow in the middle of a run."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.local.postgres import PostgresServer
from tests.faults.scenarios import redis_outages
from tests.faults.scenarios.endurance import hire_workers
from tests.faults.scenarios.proxy import Proxy
from tests.faults.scenarios.redis_outages import ANSWER_SECONDS, MortalValkey
from tests.faults.scenarios.scene import SWEEP_SECONDS, Scene, open_scene

WORKERS = 2
# So many that some still wait when a server that is slow to start is back.
DOCUMENTS = 84

# Ten times two sweeps: the next one, and another that was under way. The bench tells the figure.
FOLLOW_SECONDS = 20 * SWEEP_SECONDS


@dataclass(frozen=True, slots=True)
class Place:
    scene: Scene
    valkey: MortalValkey


@pytest.fixture(scope="module")
def place(postgres: PostgresServer) -> Iterator[Place]:
    """Workers that go to Valkey directly, and live through all that happens to it."""
    url = postgres.create_database("outages_of_redis")
    with redis_outages.open_valkey() as valkey, open_scene(url, REDIS_URL=valkey.url) as scene:
        hire_workers(scene, WORKERS, answer_seconds=ANSWER_SECONDS)
        yield Place(scene, valkey)


def test_work_goes_on_without_redis_and_an_empty_one_is_filled_again(place: Place) -> None:
    found = redis_outages.kill_valkey(place.scene, place.valkey, documents=DOCUMENTS, seconds=1.5)
    assert found.problems == [], str(found)
    assert found.follow_seconds < FOLLOW_SECONDS, str(found)


def test_a_wiped_redis_is_filled_again_within_a_sweep(place: Place) -> None:
    found = redis_outages.wipe_valkey(place.scene, place.valkey, documents=DOCUMENTS)
    assert found.problems == [], str(found)
    assert found.follow_seconds < FOLLOW_SECONDS, str(found)


def test_work_goes_on_beside_a_redis_that_takes_half_a_second_for_a_command() -> None:
    with (
        redis_outages.open_valkey() as valkey,
        Proxy(valkey.url) as proxy,
        open_scene(REDIS_URL=proxy.url) as scene,
    ):
        hire_workers(scene, WORKERS, answer_seconds=ANSWER_SECONDS)
        found = redis_outages.slow_down_valkey(scene, valkey, proxy, documents=48, seconds=6)
        assert found.problems == [], str(found)
        assert found.follow_seconds < FOLLOW_SECONDS, str(found)
