"""The models are away, keep silent, or fail in turns in the middle of a run."""

from collections.abc import Iterator

import pytest

from penstock.local.postgres import PostgresServer
from tests.faults.scenarios import models
from tests.faults.scenarios.endurance import hire_workers
from tests.faults.scenarios.scene import Scene, open_scene

WORKERS = 2
# More than twice what is done before an outage: the rest is brought in when it has begun.
DOCUMENTS = 24

SETTINGS = {"EXTRACTION_TIMEOUT_SECONDS": "1", "EXTRACTION_RETRY_BASE_SECONDS": "4"}


@pytest.fixture(scope="module")
def scene(postgres: PostgresServer) -> Iterator[Scene]:
    """The same workers live through every outage."""
    with open_scene(postgres.create_database("outages_of_models")) as scene:
        hire_workers(scene, WORKERS, settings=SETTINGS)
        yield scene


def test_documents_wait_for_models_that_are_down(scene: Scene) -> None:
    found = models.stop_models(scene, documents=DOCUMENTS, seconds=2, done_before=9)
    assert found.problems == [], str(found)
    assert found.statuses[200] == DOCUMENTS, "none was answered twice"


def test_the_fallback_takes_over_from_a_model_that_keeps_silent(scene: Scene) -> None:
    found = models.hang_models(scene, [models.PRIMARY], documents=30, seconds=2.5)
    assert found.problems == [], str(found)
    assert found.endured.done_meanwhile > 0
    assert found.paid == 0


def test_documents_are_asked_about_again_when_all_models_kept_silent(scene: Scene) -> None:
    found = models.hang_models(scene, models.ALL, documents=DOCUMENTS, seconds=2.5, done_before=9)
    assert found.problems == [], str(found)
    assert found.paid > 0


def test_a_failure_and_a_rate_limit_in_turns_cost_no_attempts(scene: Scene) -> None:
    found = models.alternate_failures(scene, documents=36, seconds=2)
    assert found.problems == [], str(found)
    assert min(found.statuses[500], found.statuses[429]) > 0
    assert found.paid == 0
