"""What people say about fields: it wins over extraction, is searched by, and becomes gold."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import NotFound, UsageError
from penstock.operations.nodes import delete_node, refresh_node
from penstock.review import decisions
from penstock.review.corrections import CorrectedRecord, apply_corrections
from penstock.review.gold import list_gold
from penstock.search.nodes import ReviewFilter, list_for_review, show_node
from penstock.search.query import Filters
from penstock.store.database import Database
from penstock.store.schema import corrections, nodes
from tests.contract.ingestion import Workplace, make_text
from tests.factories import TENANT
from tests.together import wait_until

pytestmark = pytest.mark.both_databases

RIGHT = "The right title"


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Iterator[Workplace]:
    made = Workplace(database, tmp_path)
    yield made
    made.close()


@pytest.fixture
def node(place: Workplace) -> str:
    """Of a paper that was extracted."""
    place.write("a.txt", make_text("Ulm"))
    place.ingest()
    return str(place.node("a.txt").id)


def correct(place: Workplace, node_id: str, **fields: Any) -> None:
    place.app.decider.correct(TENANT, node_id, fields, author="ada", reason="it says so")


def show(place: Workplace, node_id: str) -> dict[str, Any]:
    with place.database.read() as tx:
        return show_node(tx, TENANT, node_id)


def extract_again(place: Workplace, node_id: str) -> None:
    place.drain()
    with place.database.write() as tx:
        refresh_node(tx, place.app.queue, TENANT, node_id)
    place.drain()


def waiting(place: Workplace, **filters: Any) -> list[str]:
    """The names of what needs review, in order."""
    with place.database.read() as tx:
        found, _ = list_for_review(tx, ReviewFilter(TENANT, **filters), 100)
    return [one["external_id"] for one in found]


def test_a_correction_is_shown_with_its_author_its_reason_and_what_was_there(
    place: Workplace, node: str
) -> None:
    before = show(place, node)["fields"]["title"]
    correct(place, node, title=RIGHT)
    shown = show(place, node)
    (made,) = shown["corrections"]
    assert shown["fields"]["title"] == RIGHT
    assert (made["field"], made["value"], made["before"]) == ("title", RIGHT, before)
    assert (made["author"], made["reason"], made["holds"]) == ("ada", "it says so", True)
    assert made["corrected_at"] >= shown["extracted_at"]
    evidence = shown["evidence"]["title"]
    assert evidence["confidence"] == 1.0
    assert evidence["places"][0]["quote"] == "corrected by ada"


def test_a_correction_wins_over_every_later_extraction_of_the_same_text(
    place: Workplace, node: str
) -> None:
    correct(place, node, title=RIGHT, topics=["weirs", "mills"])
    place.steps.fields = {"title": "A worse title", "topics": ["none"]}
    place.steps.calls.clear()
    extract_again(place, node)
    assert place.steps.count(Stage.EXTRACT) == 1, "it was really extracted again"
    fields = show(place, node)["fields"]
    assert (fields["title"], fields["topics"]) == (RIGHT, ["weirs", "mills"])


def test_a_correction_wins_over_an_answer_that_was_kept(place: Workplace, node: str) -> None:
    correct(place, node, title=RIGHT)
    place.steps.calls.clear()
    # Its answer is the one of the run before, which a newer run finds under the same key.
    place.ingest(force=True)
    assert place.steps.count(Stage.EXTRACT) == 0
    assert show(place, node)["fields"]["title"] == RIGHT


def test_the_newest_of_several_corrections_counts(place: Workplace, node: str) -> None:
    for title in ("First", "Second", RIGHT):
        correct(place, node, title=title)
    extract_again(place, node)
    shown = show(place, node)
    assert shown["fields"]["title"] == RIGHT
    assert [one["value"] for one in shown["corrections"]] == ["First", "Second", RIGHT]


def test_a_correction_for_an_earlier_text_is_flagged_and_does_not_hold(
    place: Workplace, node: str
) -> None:
    place.app.decider.accept(TENANT, node, author="ada")
    correct(place, node, title=RIGHT)
    assert not place.node("a.txt").needs_review
    place.write("a.txt", make_text("Another"))
    place.ingest()
    shown = show(place, node)
    assert shown["fields"]["title"] != RIGHT
    assert shown["needs_review"]
    outdated = [one for one in shown["review_reasons"] if one.startswith("outdated_correction")]
    assert outdated == ["outdated_correction:title"], "what was only accepted is judged anew"
    assert {one["holds"] for one in shown["corrections"]} == {False}
    correct(place, node, title="Another title")
    assert "outdated_correction:title" not in show(place, node)["review_reasons"]
    place.app.decider.accept(TENANT, node, author="ada")
    assert not place.node("a.txt").needs_review

    place.write("a.txt", make_text("Ulm"))
    place.ingest()
    assert show(place, node)["fields"]["title"] == RIGHT, "that text is known"


def test_a_correction_clears_the_reasons_of_its_field_alone(place: Workplace) -> None:
    place.write("vague.txt", "1234567890 " * 20)
    place.ingest(profile="resume")
    node_id = place.node("vague.txt").id
    correct(place, node_id, primary_skills=["Triage"])
    reasons = place.node("vague.txt").review_reasons
    assert "missing:primary_skills" not in reasons
    assert "missing:recent_job_titles" in reasons
    correct(place, node_id, recent_job_titles=[])
    assert "missing:recent_job_titles" not in place.node("vague.txt").review_reasons


def test_accepting_clears_the_flag_and_keeps_every_value(place: Workplace) -> None:
    place.write("vague.txt", "1234567890 " * 20)
    place.ingest(profile="resume")
    before = place.node("vague.txt")
    place.app.decider.accept(TENANT, before.id, author="ada", reason="there is nothing in it")
    node = place.node("vague.txt")
    assert (node.needs_review, node.review_reasons, node.review_value) == (False, [], None)
    assert {name: one for name, one in node.fields.items() if one} == {
        name: one for name, one in before.fields.items() if one
    }
    place.steps.fields = {"primary_skills": ["Sorcery"]}
    extract_again(place, node.id)
    assert not place.node("vague.txt").needs_review
    assert waiting(place) == []


def test_what_is_corrected_while_it_is_extracted_is_not_lost(place: Workplace, node: str) -> None:
    place.steps.on(Stage.EXTRACT, "Ulm", lambda: correct(place, node, title=RIGHT))
    extract_again(place, node)
    shown = show(place, node)
    assert (shown["fields"]["title"], shown["embedding_status"]) == (RIGHT, "ready")


def test_an_extraction_waits_for_a_correction_that_is_being_committed(
    place: Workplace, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(*given: Any) -> CorrectedRecord:
        """The correction has been written, and nobody else sees it yet."""
        held.set()
        assert go_on.wait(60)
        return apply_corrections(*given)

    def correct_slowly() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(decisions, "apply_corrections", hold)
            correct(place, node, title=RIGHT)

    place.steps.calls.clear()
    with place.database.write() as tx:
        refresh_node(tx, place.app.queue, TENANT, node)
        claim = place.app.queue.claim(tx, "worker")
    correcting = threading.Thread(target=correct_slowly)

    def begin_correcting() -> None:
        correcting.start()
        held.wait(60)

    place.steps.on(Stage.EXTRACT, "Ulm", begin_correcting)
    processor = place.app.processor(place.steps)
    extracting = threading.Thread(target=processor.process, args=(claim,))
    extracting.start()
    assert held.wait(60)
    extracting.join(0.5)
    assert extracting.is_alive(), "it waits until the correction is there"
    go_on.set()
    for thread in (correcting, extracting):
        thread.join(60)
    place.drain()
    shown = show(place, node)
    assert (shown["fields"]["title"], shown["embedding_status"]) == (RIGHT, "ready")


def test_a_correction_waits_for_an_extraction_that_is_being_committed(
    place: Workplace, node: str
) -> None:
    done = threading.Event()

    def correct_meanwhile() -> None:
        correct(place, node, title=RIGHT)
        done.set()

    thread = threading.Thread(target=correct_meanwhile)
    with place.database.write() as tx:
        tx.execute(sa.update(nodes).where(nodes.c.id == node).values(fields={"title": "Later"}))
        thread.start()
        assert not done.wait(0.3)
    wait_until(done.is_set)
    thread.join()
    (made,) = show(place, node)["corrections"]
    assert (made["before"], made["value"]) == ("Later", RIGHT)


def test_what_is_searched_by_follows_a_correction(place: Workplace, node: str) -> None:
    before = place.node("a.txt")
    correct(place, node, topics=["zeppelins"])
    with place.database.read() as tx:
        found = Filters(TENANT, fields={"topics": "zeppelins"}).conditions(tx)
        assert tx.execute(sa.select(nodes.c.id).where(*found)).scalars().all() == [node]
    assert place.node("a.txt").embedding_status == "queued"
    place.drain()
    after = place.node("a.txt")
    assert after.embedding_status == "ready"
    assert after.embedded_hash != before.embedded_hash


def test_what_is_corrected_while_it_is_embedded_is_embedded_again(
    place: Workplace, node: str
) -> None:
    correct(place, node, topics=["weirs"])
    place.steps.calls.clear()
    place.steps.on(Stage.EMBED, "Ulm", lambda: correct(place, node, topics=["zeppelins"]))
    place.drain()
    assert len(place.steps.calls[Stage.EMBED]) == 2, "with the topics before, and with those now"
    assert place.node("a.txt").embedding_status == "ready"


def test_what_is_not_embedded_needs_no_new_vector(place: Workplace, node: str) -> None:
    correct(place, node, date="1843")
    assert place.node("a.txt").embedding_status == "ready"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"colour": "red"}, "has no field 'colour': use title, authors"),
        ({"confidence": 1}, "has no field 'confidence'"),
        ({"title": 5}, "title cannot be 5 .*give null or string"),
        ({"authors": "Jane"}, 'authors cannot be "Jane" .*give array'),
        ({"authors": [5]}, r"authors cannot be \[5\]"),
        ({}, "no value is given"),
    ],
)
def test_a_value_that_the_profile_does_not_take_is_refused_with_what_is_expected(
    place: Workplace, node: str, fields: dict[str, Any], told: str
) -> None:
    before = show(place, node)
    with pytest.raises(UsageError, match=told):
        place.app.decider.correct(TENANT, node, fields, author="ada")
    assert show(place, node) == before


def test_a_correction_is_of_ones_own_node_and_goes_with_it(place: Workplace, node: str) -> None:
    decider = place.app.decider
    with pytest.raises(NotFound):
        decider.correct("globex", node, {"title": "x"}, author="eve")
    with pytest.raises(NotFound):
        decider.accept("globex", node, author="eve")
    assert show(place, node)["corrections"] == []
    correct(place, node, title=RIGHT)
    delete_node(place.database, place.app.queue, place.app.raw, TENANT, node)
    with place.database.read() as tx:
        assert tx.execute(sa.select(corrections)).all() == []


def test_what_is_most_worth_a_review_comes_first_and_of_this_the_newest(place: Workplace) -> None:
    for name in ("old", "new", "doubtful"):
        place.write(f"{name}.txt", f"{name} 1234567890 " * 20)
        place.ingest(profile="resume")
    with place.database.write() as tx:
        doubtful = nodes.c.external_id == "doubtful.txt"
        less = {"profile": "document", "review_value": 5, "review_reasons": ["low_confidence"]}
        tx.execute(sa.update(nodes).where(doubtful).values(less))
    assert waiting(place) == ["new.txt", "old.txt", "doubtful.txt"]
    assert waiting(place, profile="document") == ["doubtful.txt"]
    assert waiting(place, reason="missing") == ["new.txt", "old.txt"]
    assert waiting(place, reason="missing:primary_skills") == ["new.txt", "old.txt"]
    assert waiting(place, reason="missing:title") == waiting(place, source="nowhere") == []
    with place.database.read() as tx:
        first, after = list_for_review(tx, ReviewFilter(TENANT), 2)
        rest, end = list_for_review(tx, ReviewFilter(TENANT), 2, after)
    assert [one["external_id"] for one in (*first, *rest)] == waiting(place)
    assert end is None


def test_corrections_become_gold_with_the_text_they_are_right_for(
    place: Workplace, node: str
) -> None:
    place.write("b.txt", make_text("Untouched"))
    place.ingest()
    correct(place, node, title=RIGHT, authors=[])
    (gold,) = list_gold(place.database, TENANT)
    assert (gold["id"], gold["profile"]) == (node, "document")
    assert gold["fields"] == {"title": RIGHT, "authors": []}
    assert gold["text"] == make_text("Ulm")
    assert [*list_gold(place.database, "globex")] == []
    place.write("a.txt", make_text("Another"))
    place.ingest()
    assert [*list_gold(place.database, TENANT)] == [], "what is right for that text is not known"
