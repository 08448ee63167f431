"""An embedder that a user wrote is built beside the old one, and gives way, like any other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.backfill.backfill import switch_vectors
from penstock.embed.embedder import HashEmbedder
from penstock.errors import StagePaused
from penstock.runs.up_to_date import Reason
from penstock.search.query import Filters
from penstock.search.vectors import prepare_index
from penstock.settings import EmbeddingSettings
from penstock.store.database import Database
from penstock.store.schema import embeddings
from tests.contract.backfilling import Archive
from tests.contract.ingestion import make_text
from tests.factories import TENANT

IDENTITY = "ours/lengths@2"
SOURCE = f"""
import math, struct

class Lengths:
    identity = "{IDENTITY}"

    def embed(self, texts):
        return [struct.pack("<2f", math.cos(len(t)), math.sin(len(t))) for t in texts]

class Wrong(Lengths):
    identity = "ours/wrong@3"
"""
NAMES = {"Ada", "Boris"}


@pytest.fixture
def archive(database: Database, tmp_path: Path) -> Iterator[Archive]:
    """Documents that were ingested with a built-in embedder."""
    (tmp_path / "own.py").write_text(SOURCE)
    archive = Archive(database, tmp_path / "home")
    for name in NAMES:
        archive.write(f"{name}.txt", make_text(name))
    archive.ingest()
    yield archive
    archive.close()


def change_backend(archive: Archive, *backends: str) -> None:
    """As if somebody had changed EMBEDDING_BACKEND and started everything again."""
    app, folder = archive.app, archive.folder.parent.parent
    names = ",".join(name.replace("own.py", str(folder / "own.py")) for name in backends)
    app.settings = app.settings.model_copy(update={"embedding": EmbeddingSettings(backend=names)})
    for built in ("embedder", "_other_embedders"):
        vars(app).pop(built, None)
    prepare_index(app.database, app.embedder.identity)


def find(archive: Archive) -> set[str]:
    hits = archive.app.searcher.search("mills", Filters(TENANT), "vector", 10)
    return {hit.title for hit in hits}


def identities(archive: Archive) -> dict[str, int]:
    counted = sa.select(embeddings.c.identity, sa.func.count()).group_by(embeddings.c.identity)
    with archive.database.read() as tx:
        return {row[0]: row[1] for row in tx.execute(counted)}


def test_an_own_embedder_takes_over_when_its_vectors_are_complete(archive: Archive) -> None:
    change_backend(archive, "own.py:Lengths")
    assert find(archive) == NAMES, "by the old vectors"
    assert "2 vectors are missing" in switch_vectors(archive.app)

    archive.backfill(Reason.VECTORS)

    assert switch_vectors(archive.app) == IDENTITY
    assert find(archive) == NAMES
    assert identities(archive) == {HashEmbedder.identity: 2, IDENTITY: 2}


def test_an_own_embedder_that_is_named_after_the_new_one_serves_until_the_switch(
    archive: Archive,
) -> None:
    change_backend(archive, "own.py:Lengths")
    archive.backfill(Reason.VECTORS)
    switch_vectors(archive.app)

    change_backend(archive, "wordllama", "own.py:Lengths")
    archive.write("Clara.txt", make_text("Clara"))
    archive.ingest()

    assert find(archive) == {*NAMES, "Clara"}, "new documents have both vectors"
    archive.backfill(Reason.VECTORS)
    assert switch_vectors(archive.app).startswith("wordllama/")
    assert find(archive) == {*NAMES, "Clara"}


def test_wrong_vectors_pause_the_stage_and_blame_no_document(archive: Archive) -> None:
    change_backend(archive, "own.py:Wrong")
    archive.write("Clara.txt", make_text("Clara"))

    with pytest.raises(StagePaused, match="of 2 dimensions, and its identity says 3"):
        archive.ingest()
    assert archive.node("Clara.txt").embedding_status != "failed"
