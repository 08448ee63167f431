"""Text, vector and hybrid search, the same on both databases."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.embed.embedder import HashEmbedder
from penstock.errors import NotFound
from penstock.queue.stats import count_nodes
from penstock.search import hybrid
from penstock.search import query as queries
from penstock.search.hybrid import search
from penstock.search.nodes import list_nodes, show_node
from penstock.search.query import HIT_END, HIT_START, Filters, Hit, Mode
from penstock.search.vectors import ensure_index
from penstock.store.database import Database
from penstock.store.schema import embeddings, nodes, texts
from tests.factories import TENANT, add_node, add_source
from tests.together import run_together

pytestmark = pytest.mark.both_databases

EMBEDDER = HashEmbedder()
MODES: list[Mode] = ["text", "vector", "hybrid"]
BUSY = """The mill at the river grinds corn all day. Its millers are running the wheels with care,
and the wheels are turned by the water of the river, which the weir holds back in summer."""

# Hypothesis calls the test many times over one database, which only looks; that is the point.
many_queries = settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Shelf:
    """Documents that can be searched as soon as they are put there."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def put(
        self, title: str, body: str = BUSY, identity: str = EMBEDDER.identity, **values: Any
    ) -> str:
        """A node with its text and its vector; its id."""
        with self.database.write() as tx:
            node_id = add_node(tx, title=title, **values)
            seq = tx.execute(sa.select(nodes.c.seq).where(nodes.c.id == node_id)).scalar_one()
            tx.execute(sa.insert(texts).values(seq=seq, title=title, body=body))
            row = {"seq": seq, "identity": identity, "embedded_at": tx.now}
            vector = EMBEDDER.embed([f"{title} {body}"])[0]
            tx.execute(sa.insert(embeddings).values(row | {"vector": vector}))
        return node_id

    def find(
        self,
        query: str,
        mode: Mode = "text",
        *,
        tenant: str = TENANT,
        limit: int = 10,
        embed: Callable[[str], tuple[bytes, str]] | None = None,
        **filters: Any,
    ) -> list[Hit]:
        with self.database.read() as tx:
            wanted = Filters(tenant, **filters)
            return search(tx, query, wanted, mode=mode, limit=limit, embed=embed or embed_query)

    def titles(self, query: str, mode: Mode = "text", **options: Any) -> list[str]:
        return [hit.title for hit in self.find(query, mode, **options)]


def embed_query(query: str) -> tuple[bytes, str]:
    return EMBEDDER.embed([query])[0], EMBEDDER.identity


@pytest.fixture(params=["few", "many"])
def shelf(database: Database, request: pytest.FixtureRequest) -> Iterator[Shelf]:
    """Searched as a few documents are, and as many: by indexes, and then filtered."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many":
            patch.setattr(queries, "MOST_FEW", -1)
            with database.write() as tx:
                ensure_index(tx, EMBEDDER.identity)
        yield Shelf(database)


# Text


def test_words_are_found_whatever_their_case_and_form(shelf: Shelf) -> None:
    shelf.put("Mills")
    for query in ("MILLER", "run", "turning wheel", "river"):
        assert shelf.titles(query) == ["Mills"]


def test_a_quoted_phrase_is_found_in_its_order_alone(shelf: Shelf) -> None:
    shelf.put("Right", "They met at the saw mill near the bridge.")
    shelf.put("Wrong", "They saw a mill at the bridge.")
    assert shelf.titles('"saw mill"') == ["Right"]
    assert sorted(shelf.titles("saw mill")) == ["Right", "Wrong"]


def test_documents_with_every_word_hide_those_with_some(shelf: Shelf) -> None:
    shelf.put("Both", "corn and barley")
    shelf.put("One", "corn and oats")
    assert shelf.titles("corn barley") == ["Both"]


def test_documents_with_some_words_are_found_when_none_has_all(shelf: Shelf) -> None:
    shelf.put("Corn", "corn")
    shelf.put("Barley", "barley")
    assert sorted(shelf.titles("corn barley")) == ["Barley", "Corn"]


def test_a_word_in_the_title_counts_more(shelf: Shelf) -> None:
    shelf.put("Anything", "A word about barley, and then about many other things.")
    shelf.put("Barley", "A word about something, and then about many other things.")
    assert shelf.titles("barley")[0] == "Barley"


@pytest.fixture
def few_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_FEW", -1)
    monkeypatch.setattr(hybrid, "MOST_RANKED", {False: 3, True: 3})


@pytest.mark.usefixtures("few_ranked")
def test_of_very_many_matches_the_newest_of_the_tenant_are_ranked(shelf: Shelf) -> None:
    for n in range(5):
        shelf.put(f"Document {n}", "corn")
    shelf.put("Corn", "corn", tenant_id="globex")
    assert sorted(shelf.titles("corn", limit=1) + shelf.titles("corn", limit=3)[1:]) == [
        "Document 2",
        "Document 3",
        "Document 4",
    ]


@pytest.mark.usefixtures("few_ranked")
def test_older_matches_are_found_when_the_newest_do_not_suffice(shelf: Shelf) -> None:
    for n in range(10):
        shelf.put(f"Document {n}", "corn", profile="resume" if n in (0, 5) else "document")
    assert sorted(shelf.titles("corn", profile="resume")) == ["Document 0", "Document 5"]
    assert len(shelf.titles("corn")) == 10


@pytest.mark.usefixtures("few_ranked")
def test_a_rare_word_is_found_beside_one_that_every_document_has(shelf: Shelf) -> None:
    shelf.put("Barley", "corn and barley")
    for n in range(10):
        shelf.put(f"Document {n}", "corn")
    assert shelf.titles("corn barley") == ["Barley"]
    assert shelf.titles("corn barley nowhere")[0] == "Barley"


def test_letters_of_other_scripts_are_found_in_either_case(shelf: Shelf) -> None:
    shelf.put("Müller", "МЕЛЬНИЦА стоит у реки")
    assert shelf.titles("müller") == shelf.titles("мельница") == ["Müller"]


def test_a_changed_text_is_found_by_its_new_words_alone(shelf: Shelf) -> None:
    shelf.put("Mills", "corn")
    with shelf.database.write() as tx:
        tx.execute(sa.update(texts).values(body="barley"))
    assert (shelf.titles("corn"), shelf.titles("barley")) == ([], ["Mills"])


def test_a_deleted_document_is_not_found(shelf: Shelf) -> None:
    shelf.put("Mills")
    with shelf.database.write() as tx:
        tx.execute(sa.delete(nodes))
    for mode in MODES:
        assert shelf.titles("mills", mode) == []


def test_a_very_long_text_can_be_found(shelf: Shelf) -> None:
    words = " ".join(f"слово{n}-часть{n}" for n in range(40_000))
    shelf.put("Long", f"barley {words}")
    assert shelf.titles("barley") == ["Long"]


# Snippets


def test_a_snippet_marks_the_hits(shelf: Shelf) -> None:
    shelf.put("Mills")
    [hit] = shelf.find("weir")
    assert f"{HIT_START}weir{HIT_END}" in hit.snippet
    assert "\n" not in hit.snippet


def test_a_vector_hit_shows_the_beginning_of_the_text(shelf: Shelf) -> None:
    shelf.put("Mills")
    [hit] = shelf.find("weir", "vector")
    assert hit.snippet.startswith("The mill at the river")
    assert HIT_START not in hit.snippet


def test_a_hybrid_hit_is_marked_if_the_text_matched(shelf: Shelf) -> None:
    shelf.put("Mills")
    [hit] = shelf.find("weir", "hybrid")
    assert f"{HIT_START}weir{HIT_END}" in hit.snippet


# Vector and hybrid


def test_the_nearest_comes_first(shelf: Shelf) -> None:
    shelf.put("Corn", "corn corn corn")
    shelf.put("Barley", "barley barley barley")
    hits = shelf.find("barley barley", "vector")
    assert [hit.title for hit in hits] == ["Barley", "Corn"]
    assert 1 >= hits[0].score > hits[1].score


def test_identities_are_never_mixed(shelf: Shelf) -> None:
    shelf.put("Ours")
    shelf.put("Other model", identity="other/model@64")
    assert shelf.titles("mill", "vector") == ["Ours"]

    def embed(query: str) -> tuple[bytes, str]:
        return EMBEDDER.embed([query])[0], "other/model@64"

    assert shelf.titles("mill", "vector", embed=embed) == ["Other model"]


def test_vectors_of_other_lengths_do_not_disturb(shelf: Shelf) -> None:
    node_id = shelf.put("Ours")
    with shelf.database.write() as tx:
        seq = tx.execute(sa.select(nodes.c.seq).where(nodes.c.id == node_id)).scalar_one()
        vector = np.ones(8, "<f4").tobytes()
        row = {"seq": seq, "identity": "it's:odd@8", "vector": vector, "embedded_at": tx.now}
        tx.execute(sa.insert(embeddings).values(row))
    assert shelf.titles("mill", "vector") == ["Ours"]
    odd = shelf.titles("mill", "vector", embed=lambda _: (vector, "it's:odd@8"))
    assert odd == ["Ours"]


def test_a_document_without_words_disturbs_no_search(shelf: Shelf) -> None:
    shelf.put("", "", external_id="empty")
    shelf.put("Mills")
    assert shelf.titles("mill", "vector") == ["Mills"]
    assert shelf.titles("mill", "hybrid", limit=1) == ["Mills"]


def test_an_index_over_an_identity_changes_no_answer(shelf: Shelf) -> None:
    for n in range(20):
        shelf.put(f"Document {n}", f"corn {n} " * 5)
    before = shelf.find("corn 7", "vector", limit=3)
    for _ in range(2):
        with shelf.database.write() as tx:
            ensure_index(tx, EMBEDDER.identity)
    assert shelf.find("corn 7", "vector", limit=3) == before


def test_an_index_follows_the_vectors(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_FEW", -1)
    shelf = Shelf(database)
    old = shelf.put("Old", "corn")
    with database.write() as tx:
        ensure_index(tx, EMBEDDER.identity)
    changed, other = shelf.put("Changed", "corn"), shelf.put("Foreign", "corn", tenant_id="globex")
    shelf.put("Another model", "corn", identity="hash/others@64")
    assert sorted(shelf.titles("corn", "vector")) == ["Changed", "Old"]
    with database.write() as tx:
        is_changed = nodes.c.id == changed
        seq = tx.execute(sa.select(nodes.c.seq).where(is_changed)).scalar_one()
        moved = sa.update(embeddings).where(embeddings.c.seq == seq)
        tx.execute(moved.values(vector=EMBEDDER.embed(["weir"])[0]))
    assert shelf.titles("weir", "vector", limit=1) == ["Changed"]
    with database.write() as tx:
        tx.execute(sa.delete(nodes).where(nodes.c.id.in_([old, other])))
    assert shelf.titles("corn", "vector") == ["Changed"]
    assert shelf.titles("corn", "vector", tenant="globex") == []


def test_workers_that_start_at_once_make_one_index(database: Database) -> None:
    def start(_: int) -> None:
        for dimensions in range(10, 20):
            with database.write() as tx:
                ensure_index(tx, f"hash/words@{dimensions}")

    run_together(4, start)


def test_a_hybrid_search_puts_first_what_both_ways_find(shelf: Shelf) -> None:
    shelf.put("Barley", "barley barley barley")
    shelf.put("Corn", "corn corn corn")
    hits = shelf.find("barley", "hybrid")
    assert [hit.title for hit in hits] == ["Barley", "Corn"]
    assert hits[0].score > hits[1].score


def test_a_text_search_asks_for_no_vector(shelf: Shelf) -> None:
    shelf.put("Mills")

    def refuse(_: str) -> tuple[bytes, str]:
        raise AssertionError("not needed")

    assert shelf.titles("mill", "text", embed=refuse) == ["Mills"]


# Filters


@pytest.mark.parametrize("mode", MODES)
def test_a_tenant_finds_only_its_own(shelf: Shelf, mode: Mode) -> None:
    shelf.put("Mine")
    shelf.put("Theirs", tenant_id="globex")
    assert shelf.titles("mill", mode) == ["Mine"]
    assert shelf.titles("mill", mode, tenant="globex") == ["Theirs"]
    assert shelf.titles("mill", mode, tenant="nobody") == []


@pytest.mark.parametrize("mode", MODES)
def test_what_has_expired_is_not_found(shelf: Shelf, mode: Mode) -> None:
    with shelf.database.write() as tx:
        now = tx.now
    shelf.put("Gone", expired_at=now)
    shelf.put("Here")
    assert shelf.titles("mill", mode) == ["Here"]


@pytest.mark.parametrize("mode", MODES)
def test_a_source_and_a_profile_narrow_the_search(shelf: Shelf, mode: Mode) -> None:
    with shelf.database.write() as tx:
        careers = add_source(tx, "careers")
        papers = add_source(tx, "papers")
        theirs = add_source(tx, "careers", "globex")
    shelf.put("Job", source_id=careers, profile="job_posting")
    shelf.put("Paper", source_id=papers, profile="document")
    shelf.put("Theirs", source_id=theirs, profile="job_posting", tenant_id="globex")
    assert shelf.titles("mill", mode, source="careers") == ["Job"]
    assert shelf.titles("mill", mode, profile="document") == ["Paper"]
    assert shelf.titles("mill", mode, source="careers", profile="document") == []
    assert shelf.titles("mill", mode, source="nowhere") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("company", "müller mills"),
        ("skills", "milling"),
        ("years", "7"),
        ("remote", "true"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_an_extracted_field_narrows_the_search(
    shelf: Shelf, mode: Mode, name: str, value: str
) -> None:
    fields = {
        "company": "MÜLLER Mills",
        "skills": ["Baking", "Milling"],
        "years": 7,
        "remote": True,
    }
    shelf.put("Yes", fields=fields)
    shelf.put("Other", fields={"company": "Müller", "skills": ["mill"], "years": 70})
    shelf.put("Without")
    assert shelf.titles("mill", mode, fields={name: value}) == ["Yes"]


@pytest.mark.parametrize("name", ["it's", 'a"b', "a.b", "$", "", "a\\b"])
def test_any_name_of_a_field_may_be_asked_for(shelf: Shelf, name: str) -> None:
    shelf.put("Yes", fields={name: "corn"})
    shelf.put("No", fields={"other": "corn"})
    assert shelf.titles("mill", fields={name: "corn"}) == ["Yes"]


@pytest.mark.parametrize("mode", MODES)
def test_no_more_than_the_limit_is_found(shelf: Shelf, mode: Mode) -> None:
    for n in range(5):
        shelf.put(f"Mill {n}")
    assert [len(shelf.find("mill", mode, limit=limit)) for limit in (1, 3, 10)] == [1, 3, 5]


def test_an_index_hides_nothing_behind_the_nearer_documents_of_others(shelf: Shelf) -> None:
    for n in range(300):
        shelf.put(f"Theirs {n}", "barley", tenant_id="globex")
    shelf.put("Mine", "barley and corn and oats")
    with shelf.database.write() as tx:
        ensure_index(tx, EMBEDDER.identity)
    with shelf.database.read() as tx:
        if not shelf.database.is_sqlite:
            # So few rows are read one by one, unless that is forbidden.
            tx.execute(sa.text("SET LOCAL enable_seqscan = off"))
            tx.execute(sa.text("SET LOCAL enable_sort = off"))
        hits = search(tx, "barley", Filters(TENANT), mode="vector", limit=1, embed=embed_query)
    assert [hit.title for hit in hits] == ["Mine"]


# Queries of every kind


WORDLESS = ["", "   ", '""', "--- !!!", "\x00", "()&|*:", "²", "the"]
SYNTAX = [
    '"unclosed phrase',
    "mill AND",
    "NOT mill",
    "NEAR(mill river)",
    "mill*",
    "^mill",
    "mill' OR '1'='1",
    "mill; DROP TABLE nodes",
    "100% :match %s",
    "mill\\",
    "{mill}",
    "mill & !river | (weir",
    "_ mill",
]


@pytest.mark.parametrize("mode", MODES)
def test_the_syntax_of_search_engines_means_nothing(shelf: Shelf, mode: Mode) -> None:
    shelf.put("Mills", f"{BUSY} This phrase is 100% corn.")
    for query in SYNTAX:
        assert shelf.titles(query, mode) == ["Mills"], query


@pytest.mark.parametrize("mode", MODES)
def test_a_query_without_words_is_no_error(shelf: Shelf, mode: Mode) -> None:
    shelf.put("Barley", "barley")
    for words in WORDLESS:
        found = shelf.titles(words, mode)
        assert mode != "text" or found == [], words


@pytest.mark.parametrize("mode", MODES)
def test_any_text_may_be_searched_for(shelf: Shelf, mode: Mode) -> None:
    shelf.put("Mills")

    @many_queries
    @given(st.text(max_size=40) | st.text("\"'\\*:^()&|!<->% mil", max_size=20))
    def search_for(query: str) -> None:
        assert len(shelf.find(query, mode)) <= 1

    search_for()


# Nodes as they are shown


def test_a_node_is_shown_to_its_tenant_alone(shelf: Shelf) -> None:
    node_id = shelf.put("Mills", embedding_identity=EMBEDDER.identity)
    with shelf.database.read() as tx:
        shown = show_node(tx, TENANT, node_id)
        assert (shown["title"], shown["text"], shown["has_embedding"]) == ("Mills", BUSY, True)
        for tenant, wanted in (("globex", node_id), (TENANT, "nonsense"), (TENANT, "0" * 32)):
            with pytest.raises(NotFound):
                show_node(tx, tenant, wanted)


def test_nodes_are_listed_and_counted_for_their_tenant_alone(shelf: Shelf) -> None:
    shelf.put("Mine", extraction_status="ready", embedding_status="ready")
    shelf.put("Also mine")
    shelf.put("Theirs", tenant_id="globex")
    with shelf.database.read() as tx:
        assert [node["title"] for node in list_nodes(tx, TENANT)] == ["Mine", "Also mine"]
        assert count_nodes(tx, TENANT) == {
            "nodes": 2,
            "extraction": {"ready": 1, "none": 1},
            "embedding": {"ready": 1, "none": 1},
            "needs_review": 0,
        }
