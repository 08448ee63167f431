"""A new embedding model is built beside the old one; search changes over when it is complete."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from penstock.backfill.backfill import switch_vectors
from penstock.doctor import check_vector_switch
from penstock.documents import Stage
from penstock.embed.embedder import HashEmbedder, WordLlamaEmbedder, embedder_named
from penstock.errors import ConfigurationError
from penstock.queue.items import Outcome
from penstock.runs.up_to_date import Reason
from penstock.search.query import Filters
from penstock.search.vectors import active_identity, look_at_switch, try_switch
from penstock.store.database import Database
from penstock.store.migration import alembic_config, migrate
from penstock.store.schema import embeddings, nodes, vector_identity
from tests.contract.backfilling import Archive, vector_row
from tests.contract.ingestion import make_text
from tests.factories import TENANT

pytestmark = pytest.mark.both_databases

OLD, NEW = HashEmbedder.identity, WordLlamaEmbedder.identity
GONE = "vanished/model@8"


@pytest.fixture
def archive(database: Database, tmp_path: Path) -> Iterator[Archive]:
    """Three documents that were ingested with the old model."""
    archive = Archive(database, tmp_path / "home")
    for name in ("Ada", "Boris", "Clara"):
        archive.write(f"{name}.txt", make_text(name))
    archive.ingest()
    yield archive
    archive.close()


def change_model(archive: Archive) -> None:
    """As if somebody had changed EMBEDDING_BACKEND and started everything again."""
    archive.app.embedder = WordLlamaEmbedder()


def find(archive: Archive, query: str = "mills in Ulm") -> set[str]:
    hits = archive.app.searcher.search(query, Filters(TENANT), "vector", 10)
    return {hit.title for hit in hits}


def vectors(archive: Archive, name: str) -> dict[str, bytes]:
    query = sa.select(embeddings).where(embeddings.c.seq == archive.node(name).seq)
    with archive.database.read() as tx:
        return {row.identity: row.vector for row in tx.execute(query)}


def active(archive: Archive) -> str | None:
    with archive.database.read() as tx:
        return active_identity(tx)


def test_the_first_vectors_decide(archive: Archive) -> None:
    assert active(archive) == OLD
    assert find(archive) == {"Ada", "Boris", "Clara"}


def test_search_goes_on_with_the_old_vectors_until_the_new_ones_are_complete(
    archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    change_model(archive)
    assert find(archive) == {"Ada", "Boris", "Clara"}
    assert "3 vectors are missing" in switch_vectors(archive.app)

    archive.backfill(Reason.VECTORS, limit=2)
    assert "1 vectors are missing" in switch_vectors(archive.app)
    assert (active(archive), find(archive)) == (OLD, {"Ada", "Boris", "Clara"})

    archive.backfill(Reason.VECTORS)
    with caplog.at_level(logging.INFO):
        assert switch_vectors(archive.app) == NEW
    assert f"from {OLD} to {NEW}" in caplog.text
    assert (active(archive), find(archive)) == (NEW, {"Ada", "Boris", "Clara"})
    assert set(vectors(archive, "Ada.txt")) == {OLD, NEW}, "the old ones stay"


def test_what_is_new_or_changed_meanwhile_is_found_before_and_after(archive: Archive) -> None:
    change_model(archive)
    before = vectors(archive, "Ada.txt")[OLD]
    archive.write("Dora.txt", make_text("Dora", about="windmills"))
    archive.write("Ada.txt", make_text("Ada", about="turbines and nothing else"))
    archive.ingest()

    assert find(archive) == {"Ada", "Boris", "Clara", "Dora"}
    assert set(vectors(archive, "Dora.txt")) == {OLD, NEW}
    assert vectors(archive, "Ada.txt")[OLD] != before, "the old vector is of the new text"
    assert find(archive, "turbines and nothing else") >= {"Ada"}
    archive.backfill(Reason.VECTORS)
    assert switch_vectors(archive.app) == NEW
    assert find(archive) == {"Ada", "Boris", "Clara", "Dora"}


def test_after_the_switch_no_old_vectors_are_made(archive: Archive) -> None:
    change_model(archive)
    archive.backfill(Reason.VECTORS)
    switch_vectors(archive.app)
    archive.write("Dora.txt", make_text("Dora"))
    archive.ingest()

    assert set(vectors(archive, "Dora.txt")) == {NEW}


def test_the_build_does_not_make_old_vectors_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_model(archive)
    made: list[str] = []
    monkeypatch.setattr(HashEmbedder, "embed", lambda _, texts: made.extend(texts))

    archive.backfill(Reason.VECTORS)

    assert made == []
    items = [archive.items(Stage.EMBED, f"{name}.txt")[-1] for name in ("Ada", "Boris", "Clara")]
    assert [item.outcome for item in items] == [Outcome.DONE] * 3


def test_one_search_never_mixes_two_identities(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_model(archive)
    archive.backfill(Reason.VECTORS, limit=1)
    asked: list[str] = []
    for kind in (HashEmbedder, WordLlamaEmbedder):
        embed = kind.embed

        def note(self: HashEmbedder, texts: list[str], embed: object = embed) -> object:
            asked.append(self.identity)
            return embed(self, texts)  # type: ignore[operator]  # one of the two above

        monkeypatch.setattr(kind, "embed", note)

    for mode in ("vector", "hybrid"):
        asked.clear()
        hits = archive.app.searcher.search("mills", Filters(TENANT), mode, 10)
        assert (asked, len(hits)) == ([OLD], 3)


def test_an_old_model_that_is_gone_gives_way_with_a_warning(
    archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    rename_identity(archive, OLD, GONE)
    change_model(archive)
    archive.backfill(Reason.VECTORS, limit=1)

    for _ in range(2):
        assert len(find(archive)) == 1, "those that have a vector of the new model"
    (warning,) = [record for record in caplog.records if "cannot be built" in record.message]
    assert "penstock backfill --reason vectors" in warning.message
    archive.write("Dora.txt", make_text("Dora"))
    archive.ingest()
    assert set(vectors(archive, "Dora.txt")) == {NEW}
    archive.backfill(Reason.VECTORS)
    assert switch_vectors(archive.app) == NEW


def rename_identity(archive: Archive, old: str, new: str) -> None:
    with archive.database.write() as tx:
        numbers = tx.execute(sa.select(embeddings.c.seq)).scalars().all()
        tx.execute(sa.delete(embeddings))
        tx.execute(sa.insert(embeddings), [vector_row(tx, seq, new) for seq in numbers])
        tx.execute(sa.update(vector_identity).values(identity=new))
        was = nodes.c.embedding_identity == old
        tx.execute(sa.update(nodes).where(was).values(embedding_identity=new))


def test_one_broken_document_does_not_hold_up_the_others_and_many_do(archive: Archive) -> None:
    change_model(archive)
    archive.backfill(Reason.VECTORS)
    with archive.database.write() as tx:
        tx.execute(sa.delete(embeddings).where(embeddings.c.identity == NEW, sa.true()))
        tx.execute(sa.update(nodes).values(embedding_status="failed"))

    found = try_switch(archive.database, NEW)
    assert (found.missing, found.failed, found.done) == (0, 3, False)
    assert "3 failed" in str(found)

    archive.put_many(297, embedding_identity=OLD)
    with archive.database.write() as tx:
        fresh = tx.execute(sa.select(nodes.c.seq).where(nodes.c.given.is_not(None))).scalars()
        rows = [vector_row(tx, seq, identity) for seq in fresh.all() for identity in (OLD, NEW)]
        tx.execute(sa.insert(embeddings), rows)
    assert try_switch(archive.database, NEW).done, "three of three hundred"


def test_expired_and_emptied_documents_are_not_waited_for(archive: Archive) -> None:
    change_model(archive)
    with archive.database.write() as tx:
        ada = nodes.c.external_id == "Ada.txt"
        tx.execute(sa.update(nodes).where(ada).values(expired_at=tx.now))
        boris = nodes.c.external_id == "Boris.txt"
        tx.execute(sa.update(nodes).where(boris).values(embedding_status="skipped"))
        assert look_at_switch(tx, NEW).missing == 1


def test_a_worker_with_the_old_setting_writes_both_vectors(archive: Archive) -> None:
    change_model(archive)
    archive.backfill(Reason.VECTORS)
    switch_vectors(archive.app)
    archive.app.embedder = HashEmbedder()
    archive.write("Dora.txt", make_text("Dora"))
    archive.ingest()

    assert set(vectors(archive, "Dora.txt")) == {OLD, NEW}
    assert find(archive) == {"Ada", "Boris", "Clara", "Dora"}


def test_an_older_model_that_fails_costs_the_document_nothing(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_model(archive)
    for trouble in (ConfigurationError("the key is refused"), RuntimeError("out of memory")):

        def fail(*_: object, trouble: Exception = trouble) -> None:
            raise trouble

        monkeypatch.setattr(HashEmbedder, "embed", fail)
        name = type(trouble).__name__
        archive.write(f"{name}.txt", make_text(name))
        archive.ingest()
        assert set(vectors(archive, f"{name}.txt")) == {NEW}
        assert archive.node(f"{name}.txt").embedding_status == "ready"


def test_the_doctor_says_that_a_switch_is_pending(archive: Archive) -> None:
    assert check_vector_switch(archive.database, OLD).verdict == "ok"

    finding = check_vector_switch(archive.database, NEW)

    assert finding.verdict == "warning"
    assert "3 vectors are missing" in finding.detail
    assert "penstock backfill --reason vectors" in str(finding.advice)


def test_a_store_from_before_goes_on_with_the_vectors_it_has_most_of(archive: Archive) -> None:
    with archive.database.write() as tx:
        seq = tx.execute(sa.select(sa.func.min(nodes.c.seq))).scalar_one()
        tx.execute(sa.insert(embeddings).values(vector_row(tx, seq, GONE)))
        command.downgrade(alembic_config(tx.connection), "0006")

    migrate(archive.database)

    assert active(archive) == OLD


def test_an_identity_names_its_embedder() -> None:
    for identity in (OLD, NEW):
        assert embedder_named(identity).identity == identity
    for unknown in (GONE, "hash/words@128", "wordllama/other@256", "nonsense"):
        with pytest.raises(ConfigurationError):
            embedder_named(unknown)
