"""What a dashboard reads of documents: why they were found, what is like them, how they changed."""

from typing import Any

import pytest
import sqlalchemy as sa

from penstock.errors import NotFound, UsageError
from penstock.search.hybrid import similar_nodes
from penstock.search.nodes import MOST_VERSIONS, ExtractionVersion, extraction_versions
from penstock.search.query import Match, Mode, parse_at_least
from penstock.search.vectors import adopt_identity
from penstock.store.database import Database, new_node_id
from penstock.store.schema import extractions
from tests.contract.test_search import EMBEDDER, MODES, Shelf
from tests.factories import TENANT, at

pytestmark = pytest.mark.both_databases


@pytest.fixture
def shelf(database: Database) -> Shelf:
    """Search looks among the vectors of the embedder that tests have."""
    with database.write() as tx:
        adopt_identity(tx, EMBEDDER.identity)
    return Shelf(database)


# Why


@pytest.mark.parametrize("mode", ["text", "vector"])
def test_a_hit_has_its_place_and_its_score(shelf: Shelf, mode: Mode) -> None:
    shelf.put("Barley", "barley barley barley")
    shelf.put("Both", "barley and corn and much else, all of it in one long sentence")
    hits = shelf.find("barley", mode)
    assert [hit.why for hit in hits] == [
        (Match(mode, place, hit.score),)  # type: ignore[arg-type]
        for place, hit in enumerate(hits, start=1)
    ]
    assert len(hits) == 2


def test_a_hybrid_hit_names_every_way_that_found_it(shelf: Shelf) -> None:
    shelf.put("Barley", "barley barley barley")
    shelf.put("Corn", "corn corn corn")
    (text,) = shelf.find("barley", "text")
    vectors = shelf.find("barley", "vector")
    barley, corn = shelf.find("barley", "hybrid")
    assert barley.why == text.why + vectors[0].why
    assert corn.why == vectors[1].why == (Match("vector", 2, vectors[1].score),)
    assert barley.as_json()["why"] == [
        {"way": "text", "place": 1, "score": text.score},
        {"way": "vector", "place": 1, "score": vectors[0].score},
    ]


# Numbers


@pytest.mark.parametrize("mode", MODES)
def test_a_number_narrows_the_search_to_as_much_or_more(shelf: Shelf, mode: Mode) -> None:
    shelf.put("Five", fields={"years": 5})
    shelf.put("Half more", fields={"years": 5.5})
    shelf.put("Huge", fields={"years": 10**400})
    shelf.put("Less", fields={"years": -7, "other": 9})
    for odd in ("nine", "", "-9", [9], {"n": 9}, True, None):
        shelf.put("Odd", fields={"years": odd})
    shelf.put("Without")

    def titles(**least: float) -> list[str]:
        return sorted(shelf.titles("mill", mode, at_least=least))

    assert titles(years=5) == ["Five", "Half more", "Huge"]
    assert titles(years=5.1) == ["Half more", "Huge"]
    assert titles(years=1e300) == ["Huge"]
    assert titles(years=-8, other=8.5) == ["Less"]
    assert titles(nothing=0) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_range_counts_by_where_it_begins(shelf: Shelf, mode: Mode) -> None:
    for years in ("5-7", "10+", "3.5 to 4", "12"):
        shelf.put(years, fields={"years": years})
    assert sorted(shelf.titles("mill", mode, at_least={"years": 5})) == ["10+", "12", "5-7"]
    assert sorted(shelf.titles("mill", mode, at_least={"years": 3.6})) == ["10+", "12", "5-7"]
    assert len(shelf.titles("mill", mode, at_least={"years": 3.5})) == 4


def test_a_fraction_is_as_much_as_itself(shelf: Shelf) -> None:
    shelf.put("Fraction", fields={"part": 0.1 + 0.2})
    assert shelf.titles("mill", at_least={"part": 0.1 + 0.2}) == ["Fraction"]


@pytest.mark.parametrize("name", ["it's", 'a"b', "a.b", "$", "", "a\\b"])
def test_any_name_of_a_number_may_be_asked_for(shelf: Shelf, name: str) -> None:
    shelf.put("Yes", fields={name: 5})
    shelf.put("No", fields={"other": 5})
    assert shelf.titles("mill", at_least={name: 4}) == ["Yes"]


def test_numbers_are_read_as_people_write_them() -> None:
    assert parse_at_least(["years=5", "a b=-1.5e3", "years=5.0"]) == {"years": 5, "a b": -1500}


@pytest.mark.parametrize(
    "wrong", [["years"], ["=5"], ["years="], ["years=many"], ["y=nan"], ["y=inf"], ["y=1", "y=2"]]
)
def test_what_is_no_number_is_refused(wrong: list[str]) -> None:
    with pytest.raises(UsageError, match="at least"):
        parse_at_least(wrong)


# Similar nodes


def similar(shelf: Shelf, node_id: str, tenant: str = TENANT, limit: int = 5) -> list[str]:
    with shelf.database.read() as tx:
        return [hit.title for hit in similar_nodes(tx, tenant, node_id, limit)]


def test_the_nearest_to_a_node_come_first_and_never_itself(shelf: Shelf) -> None:
    node_id = shelf.put("Barley", "barley and malt")
    shelf.put("Corn", "corn and oats")
    shelf.put("Malt", "malt and barley and hops")
    assert similar(shelf, node_id) == ["Malt", "Corn"]
    assert similar(shelf, node_id, limit=1) == ["Malt"]
    with shelf.database.read() as tx:
        hits = similar_nodes(tx, TENANT, node_id)
    assert [hit.why for hit in hits] == [
        (Match("vector", place, hit.score),) for place, hit in enumerate(hits, start=1)
    ]


def test_twins_of_a_node_are_found_up_to_the_limit(shelf: Shelf) -> None:
    node_id = shelf.put("Twin")
    for _ in range(4):
        shelf.put("Twin")
    assert similar(shelf, node_id, limit=3) == ["Twin"] * 3


def test_neither_expired_nor_foreign_nodes_nor_other_vectors_are_similar(shelf: Shelf) -> None:
    node_id = shelf.put("Mine")
    with shelf.database.read() as tx:
        now = tx.now
    shelf.put("Gone", expired_at=now)
    shelf.put("Theirs", tenant_id="globex")
    shelf.put("Other model", identity="other/model@64")
    shelf.put("Here")
    assert similar(shelf, node_id) == ["Here"]
    assert similar(shelf, node_id, tenant="globex") == []


def test_a_node_without_a_vector_that_search_uses_has_no_similar_ones(shelf: Shelf) -> None:
    other = shelf.put("Other model", identity="other/model@64")
    wordless = shelf.put("", "", external_id="wordless")
    shelf.put("Here")
    for node_id in (other, wordless, new_node_id()):
        assert similar(shelf, node_id) == []
    with pytest.raises(NotFound):
        similar(shelf, "nonsense")


def test_before_anything_was_embedded_nothing_is_similar(database: Database) -> None:
    assert similar(Shelf(database), new_node_id()) == []


# Versions


def extract(database: Database, node_id: str, second: float, **values: Any) -> None:
    with at(database, second) as tx:
        row = {
            "tenant_id": TENANT,
            "node_id": node_id,
            "cache_key": new_node_id(),
            "profile": "document",
            "version": "1",
            "model": "small",
            "confidence": 0.5,
            "fields": {},
            "extracted_at": tx.now,
        }
        tx.execute(sa.insert(extractions).values(row | values))


def versions(database: Database, node_id: str, tenant_id: str = TENANT) -> list[ExtractionVersion]:
    with database.read() as tx:
        return extraction_versions(tx, tenant_id, node_id)


def test_each_extraction_lists_its_differences_from_the_one_before(database: Database) -> None:
    node_id = new_node_id()
    extract(database, node_id, 0, fields={"title": "A", "tags": ["x"], "old": 1, "none": None})
    extract(database, node_id, 1, fields={"title": "A", "tags": ["x", "y"], "new": 2})
    extract(database, node_id, 2, fields={"title": "A", "tags": ["x", "y"], "new": 2}, version="2")
    third, second, first = versions(database, node_id)
    assert (third.version, third.changed) == ("2", {})
    assert second.changed == {"tags": (["x"], ["x", "y"]), "old": (1, None), "new": (None, 2)}
    assert (first.changed, first.fields["title"]) == ({}, "A")
    assert third.extracted_at > second.extracted_at > first.extracted_at


def test_an_extraction_has_its_model_version_and_run(database: Database) -> None:
    node_id = new_node_id()
    extract(database, node_id, 0, model="large", fallback_reason="low_confidence", run_id=7)
    (found,) = versions(database, node_id)
    assert (found.model, found.fallback_reason, found.run_id) == ("large", "low_confidence", 7)
    assert (found.confidence, found.profile) == (0.5, "document")


def test_extractions_of_others_are_not_shown(database: Database) -> None:
    node_id = new_node_id()
    extract(database, node_id, 0)
    extract(database, new_node_id(), 1)
    assert len(versions(database, node_id)) == 1
    assert versions(database, node_id, "globex") == []
    assert versions(database, new_node_id()) == []


def test_of_very_many_extractions_the_newest_are_shown(database: Database) -> None:
    node_id = new_node_id()
    for n in range(MOST_VERSIONS + 2):
        extract(database, node_id, n, fields={"n": n})
    found = versions(database, node_id)
    assert [one.fields["n"] for one in found] == list(range(MOST_VERSIONS + 1, 1, -1))
    assert found[-1].changed == {"n": (1, 2)}
