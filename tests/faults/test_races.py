"""Two reach for one item at the same time."""

import pytest

from penstock.store.database import Database
from tests.faults.scenarios.races import RACES, run_races

pytestmark = pytest.mark.both_databases

INTERLEAVINGS = 100


@pytest.mark.parametrize("race", RACES)
def test_whoever_wins_the_effect_happens_once(database: Database, race: str) -> None:
    tally = run_races(database, race, INTERLEAVINGS)
    assert tally.problems == []
    assert tally.won.total() == INTERLEAVINGS
    assert len(tally.won) == 2, f"a race that one side always wins is none: {tally.won}"
