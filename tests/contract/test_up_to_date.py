"""Ingest and backfill agree on which nodes are up to date, and on what the others need first."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from penstock.backfill.selection import find_candidates
from penstock.documents import Stage
from penstock.runs.up_to_date import Target, find_known
from penstock.store.database import Database
from tests.contract.backfilling import UP_TO_DATE, Archive
from tests.factories import add_source

pytestmark = pytest.mark.both_databases

OTHER = "hash/other@8"
State = tuple[str | None, str | None, str | None, str | None, bool]
GRID: list[State] = list(
    product(
        (None, "queued", "processing", "ready", "skipped", "failed"),
        (None, "0.9.0", UP_TO_DATE),
        (None, "queued", "processing", "pending_extraction", "ready", "skipped", "failed"),
        (None, OTHER, "own"),
        (False, True),
    )
)


@pytest.fixture
def archive(database: Database, tmp_path: Path) -> Iterator[Archive]:
    place = Archive(database, tmp_path)
    yield place
    place.close()


def put_grid(archive: Archive) -> tuple[int, dict[str, State]]:
    """A node of one source in each of these states: two statuses, the extraction's version, the
    embedder of the last vector, and whether there is a vector of the embedder that embeds now."""
    with archive.database.write() as tx:
        source = add_source(tx)
    states: dict[str, State] = {}
    for number, state in enumerate(GRID):
        extraction, version, embedding, identity, has_vector = state
        archive.put(
            source_id=source,
            external_id=f"{number}.txt",
            given=None,
            vector="own" if has_vector else None,
            extraction_status=extraction,
            extraction_version=version,
            embedding_status=embedding,
            embedding_identity=archive.identity if identity == "own" else identity,
        )
        states[f"{number}.txt"] = state
    return source, states


def expected(state: State) -> Stage | None:
    extraction, version, embedding, identity, has_vector = state
    if extraction not in ("ready", "skipped") or version != UP_TO_DATE:
        return Stage.EXTRACT
    if embedding == "skipped":
        return None
    return None if embedding == "ready" and identity == "own" and has_vector else Stage.EMBED


def test_ingest_and_backfill_find_the_same_stage_for_every_state(archive: Archive) -> None:
    source, states = put_grid(archive)
    selection = archive.choose()
    with archive.database.read() as tx:
        known = find_known(tx, source, list(states), selection.target, None)
        rows = tx.execute(find_candidates(selection, tx.now, after=0)).all()
    by_ingest = {name: node.missing_stage for name, node in known.items()}
    by_backfill = dict.fromkeys(states) | {row.external_id: Stage(row.stage) for row in rows}
    wanted = {name: expected(state) for name, state in states.items()}
    assert {states[n]: s for n, s in by_ingest.items() if s != wanted[n]} == {}
    assert {states[n]: s for n, s in by_backfill.items() if s != wanted[n]} == {}


def test_a_node_of_another_profile_than_the_wanted_one_is_extracted_again(archive: Archive) -> None:
    with archive.database.write() as tx:
        source = add_source(tx)
    for name, profile in (("same", "resume"), ("other", "document"), ("none", None)):
        archive.put(source_id=source, external_id=name, given=None, profile=profile)
    target = Target(UP_TO_DATE, archive.identity)
    with archive.database.read() as tx:
        known = find_known(tx, source, ["same", "other", "none"], target, "resume")
    found = {name: node.missing_stage for name, node in known.items()}
    assert found == {"same": None, "other": Stage.EXTRACT, "none": Stage.EXTRACT}
