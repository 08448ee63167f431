"""Long documents are found by any of their passages, and every hit says where it stands."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backfill.selection import choose_nodes, find_candidates
from penstock.documents import Stage
from penstock.operations.nodes import delete_node
from penstock.runs.up_to_date import Reason
from penstock.search.hybrid import similar_nodes
from penstock.search.query import Filters, Hit, Mode, Scope
from penstock.search.vectors import ensure_index, search_vectors
from penstock.store.database import Database
from penstock.store.schema import embeddings, nodes, passages, texts
from tests.contract.ingestion import Workplace
from tests.factories import TENANT

pytestmark = pytest.mark.both_databases

FILLING = "The mill grinds corn and oats for the whole valley every day. "
SECRET = "Zinc anodes protect the sluice from rust."


def long_text(*ends: str, title: str = "Handbook") -> str:
    """Ten thousand characters, with these paragraphs behind the first nine thousand."""
    chapters = [f"Chapter {number}\n\n{FILLING * 15}" for number in range(10)]
    return "\n\n".join([title, *chapters, *ends])


@pytest.fixture
def make_workplace(database: Database, tmp_path: Path) -> Iterator[Callable[..., Workplace]]:
    made: list[Workplace] = []

    def make(**embedding: Any) -> Workplace:
        made.append(Workplace(database, tmp_path / "home", embedding=embedding))
        return made[-1]

    yield make
    for workplace in made:
        workplace.close()


@pytest.fixture
def place(make_workplace: Callable[..., Workplace]) -> Workplace:
    return make_workplace()


def find(place: Workplace, query: str, mode: Mode = "vector", tenant: str = TENANT) -> list[Hit]:
    return place.app.searcher.search(query, Filters(tenant), mode, 3)


def rows_of(place: Workplace, table: sa.Table) -> list[sa.Row[Any]]:
    with place.database.read() as tx:
        return [*tx.execute(sa.select(table))]


def count(place: Workplace, table: sa.Table) -> int:
    return len(rows_of(place, table))


def forget_passages(place: Workplace) -> None:
    """As an earlier version left it: one vector, of the beginning of the text."""
    with place.database.write() as tx:
        tx.execute(sa.delete(passages))
        tx.execute(sa.delete(embeddings).where(embeddings.c.position > 0))
        tx.execute(sa.update(embeddings).values(hash=None))
        tx.execute(sa.update(nodes).values(passage_chars=None, embedded_hash="of another text"))


def outdated(place: Workplace) -> list[tuple[str, str]]:
    selection = choose_nodes(place.app, TENANT, reasons=[Reason.PASSAGES])
    with place.database.read() as tx:
        found = tx.execute(find_candidates(selection, tx.now, after=0)).all()
    return [(row.external_id, row.stage) for row in found]


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_what_stands_at_the_end_of_a_long_document_is_found_and_shown(
    place: Workplace, mode: Mode
) -> None:
    text = long_text(SECRET)
    place.write("long.txt", text)
    place.write("other.txt", long_text(title="Other"))
    place.ingest()

    hit = find(place, "zinc anodes against rust of the sluice", mode)[0]

    assert hit.title == "Handbook"
    assert hit.passage is not None
    assert SECRET in hit.passage["text"]
    assert hit.passage["start"] > 8000
    assert hit.passage["text"] == text[hit.passage["start"] : hit.passage["end"]]


def test_a_document_is_found_once_by_the_best_of_its_passages(place: Workplace) -> None:
    place.write("long.txt", long_text(*[f"{SECRET} Number {n}. {FILLING * 12}" for n in range(9)]))
    place.write("short.txt", "Zinc anodes in short.")
    place.ingest()

    assert sorted(hit.title for hit in find(place, "zinc anodes")) == [
        "Handbook",
        "Zinc anodes in short.",
    ]


def test_a_short_document_has_one_vector_and_no_rows_of_passages(place: Workplace) -> None:
    place.write("short.txt", "Gates\n\nA short text about gates.")
    place.ingest()

    assert (count(place, passages), count(place, embeddings)) == (0, 1)
    hit = find(place, "gates")[0]
    assert hit.passage == {
        "text": "Gates\n\nA short text about gates.",
        "start": 0,
        "end": 32,
        "page": None,
        "heading_path": [],
    }


def test_only_changed_passages_are_embedded_again(place: Workplace) -> None:
    place.write("long.txt", long_text(SECRET))
    place.ingest()
    made = place.steps.count(Stage.EMBED)
    before = {row.position: row.vector for row in rows_of(place, embeddings)}
    place.write("long.txt", long_text("Copper plates protect the gate instead."))
    place.ingest()

    assert made == len(before) > 9
    assert place.steps.count(Stage.EMBED) == 1
    after = {row.position: row.vector for row in rows_of(place, embeddings)}
    assert [n for n in before if before[n] != after[n]] == [max(before)]
    assert SECRET not in str([hit.passage for hit in find(place, "zinc anodes")])


def test_a_text_that_became_shorter_keeps_no_old_passage(place: Workplace) -> None:
    place.write("long.txt", long_text(SECRET))
    place.ingest()
    place.write("long.txt", "Handbook\n\nAll has been said.")
    place.ingest()

    assert (count(place, passages), count(place, embeddings)) == (0, 1)


def test_a_deleted_document_leaves_no_passage(place: Workplace) -> None:
    place.write("long.txt", long_text(SECRET))
    place.ingest()
    (node,) = rows_of(place, nodes)
    with place.database.write() as tx:
        ensure_index(tx, place.app.embedder.identity)
    delete_node(place.database, place.app.queue, place.app.raw, TENANT, node.id)

    assert (count(place, passages), count(place, embeddings), count(place, texts)) == (0, 0, 0)
    assert find(place, "zinc anodes") == []


def test_expired_documents_and_those_of_other_tenants_are_not_found(place: Workplace) -> None:
    place.write("long.txt", long_text(SECRET))
    place.ingest()

    assert find(place, "zinc anodes", tenant="other") == []
    with place.database.write() as tx:
        tx.execute(sa.update(nodes).values(expired_at=tx.now))
    assert find(place, "zinc anodes") == []


def test_an_index_over_passages_changes_no_answer_and_follows_them(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("One", "Two", "Three", "Four"):
        place.write(f"{name}.txt", long_text(f"{SECRET} {name}.", title=name))
    place.ingest()
    exact = find(place, "zinc anodes Three")
    with place.database.write() as tx:
        ensure_index(tx, place.app.embedder.identity)
    # Of more than a few nodes, the index is asked.
    monkeypatch.setattr("penstock.search.query.MOST_FEW", 1)

    assert find(place, "zinc anodes Three") == exact
    place.write("One.txt", long_text("Copper plates of One.", title="One"))
    place.ingest()
    assert find(place, "copper plates")[0].title == "One"


def test_an_index_is_asked_again_when_the_nearest_passages_are_all_of_one_document(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("long.txt", long_text(title="Long"))
    place.write("other.txt", "Another text.")
    place.ingest()
    identity = place.app.embedder.identity
    with place.database.write() as tx:
        ensure_index(tx, identity)
    monkeypatch.setattr("penstock.search.query.MOST_FEW", 1)
    monkeypatch.setattr("penstock.search.vectors._LEAST_AGAIN", 2)
    monkeypatch.setattr("penstock.search.vectors._AGAIN", 1)

    with place.database.read() as tx:
        vector = place.app.embedder.embed([FILLING])[0]
        found = search_vectors(tx, vector, identity, Scope.look(tx, Filters(TENANT)), 2)

    assert len({one.seq for one in found}) == 2


def test_similar_documents_share_a_passage_wherever_it_stands(place: Workplace) -> None:
    shared = f"{SECRET} Lead and copper follow, and after them tin. " * 8
    place.write("a.txt", long_text(shared, title="First"))
    place.write("b.txt", f"Second\n\n{shared}")
    place.write("c.txt", "Third\n\nNothing of the kind stands in this one.")
    place.ingest()
    ids = {row.title: row.id for row in rows_of(place, nodes)}

    with place.database.read() as tx:
        hits = similar_nodes(tx, TENANT, ids["Second"])

    assert hits[0].title == "First"
    assert SECRET in str(hits[0].passage)


def test_a_store_of_an_earlier_version_is_searched_by_its_old_vectors_until_it_is_cut(
    place: Workplace,
) -> None:
    place.write("long.txt", long_text(SECRET))
    place.write("short.txt", f"Gates\n\n{FILLING * 3}")
    place.ingest()
    forget_passages(place)

    assert outdated(place) == [("long.txt", "embed"), ("short.txt", "embed")]
    assert {hit.title for hit in find(place, "mill corn oats")} == {"Handbook", "Gates"}
    place.ingest()
    assert outdated(place) == []
    hit = find(place, "zinc anodes protect the sluice from rust")[0]
    assert SECRET in str(hit.passage)


def test_another_length_of_passages_cuts_every_text_again(
    place: Workplace, make_workplace: Callable[..., Workplace]
) -> None:
    place.write("long.txt", long_text(SECRET))
    place.ingest()
    before = count(place, passages)
    other = make_workplace(passage_chars=3000)

    assert outdated(other) == [("long.txt", "embed")]
    other.ingest()
    assert outdated(other) == []
    assert 1 < count(place, passages) < before / 2
    assert count(place, passages) == count(place, embeddings)


def test_the_first_passage_speaks_for_the_fields_and_others_only_for_themselves(
    place: Workplace,
) -> None:
    place.steps.fields = {"topics": ["Hydrology"]}
    place.write("long.txt", long_text(SECRET))
    place.ingest()

    hit: Any = find(place, "Handbook topics hydrology")[0]
    assert hit.passage["start"] == 0
