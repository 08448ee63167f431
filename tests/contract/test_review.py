"""Where values stand, how a profile was chosen, and what needs review: kept, counted, and found."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backfill.backfill import dispatcher, open_backfill
from penstock.backfill.selection import choose_nodes
from penstock.documents import ProfileBasis
from penstock.llm import profiles
from penstock.queue.stats import count_for_review, count_nodes
from penstock.runs.report import list_documents, name_documents, outcome_line
from penstock.runs.run import DocumentStatus
from penstock.runs.up_to_date import Reason
from penstock.search.nodes import list_nodes, show_node
from penstock.search.query import Filters
from penstock.store.database import Database
from penstock.store.schema import extractions, nodes, runs, sources
from penstock.testing import GroqServer
from tests.contract.ingestion import Workplace, make_text
from tests.contract.modelling import FALLBACK, KEY, PRIMARY, ModelWorkplace, make_answer
from tests.factories import TENANT

pytestmark = pytest.mark.both_databases

RESUME = (
    "Jane Doe\njane@example.org\n\nWork Experience\n"
    "Staff Nurse, St Mary's Hospital, 2015 - Present\n\n"
    "Education\nBSc Nursing, 2011 - 2014\n\nSkills\nTriage, Phlebotomy, Wound Care\n"
)
POSTING = (
    "Weir Keeper\n\nAcme Water is looking for a Weir Keeper in Ulm, Germany.\n\n"
    "What you'll do\n"
    "- Open the gates of the weir.\n\nRequirements\n- A licence for boats.\n\nApply now.\n"
)


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Iterator[Workplace]:
    made = Workplace(database, tmp_path, profile=None)
    yield made
    made.close()


def write_three(place: Workplace) -> None:
    place.write("resume.txt", RESUME)
    place.write("posting.txt", POSTING)
    place.write("paper.txt", make_text("A paper"))


def show(place: Workplace, name: str) -> dict[str, Any]:
    with place.database.read() as tx:
        return show_node(tx, TENANT, place.node(name).id)


def test_a_run_finds_the_profile_of_each_document_and_keeps_why(place: Workplace) -> None:
    write_three(place)
    place.ingest()
    found = {name: place.node(f"{name}.txt") for name in ("resume", "posting", "paper")}
    assert {name: node.profile for name, node in found.items()} == {
        "resume": "resume",
        "posting": "job_posting",
        "paper": "document",
    }
    assert {node.profile_basis for node in found.values()} == {ProfileBasis.DETECTED}
    assert "a part on experience" in show(place, "resume.txt")["profile_reason"]


def test_a_changed_document_is_looked_at_again_unless_its_profile_was_asked_for(
    place: Workplace,
) -> None:
    place.write("a.txt", RESUME)
    place.ingest()
    place.write("a.txt", POSTING)
    place.ingest()
    assert place.node("a.txt").profile == "job_posting"
    place.ingest(profile="document")
    place.write("a.txt", RESUME)
    place.ingest()
    node = place.node("a.txt")
    assert (node.profile, node.profile_basis) == ("document", ProfileBasis.ASKED)


def test_a_sources_setting_wins_over_the_settings_and_these_over_the_content(
    database: Database, tmp_path: Path
) -> None:
    place = Workplace(database, tmp_path, profile="document")
    place.write("a.txt", RESUME)
    place.ingest()
    node = place.node("a.txt")
    assert (node.profile, node.profile_basis) == ("document", ProfileBasis.SETTING)
    with database.write() as tx:
        tx.execute(sa.update(sources).values(settings={"profile": "job_posting"}))
    place.ingest(force=True)
    node = place.node("a.txt")
    assert (node.profile, node.profile_reason) == ("job_posting", "named by its source")
    place.close()


def test_values_stand_where_their_evidence_says(place: Workplace) -> None:
    place.write("a.txt", f"\n\n{RESUME}")
    place.ingest()
    shown = show(place, "a.txt")
    skills = shown["evidence"]["primary_skills"]
    quotes = [shown["text"][one["start"] : one["end"]] for one in skills["places"]]
    assert quotes == [one["quote"] for one in skills["places"]]
    assert set(shown["fields"]["primary_skills"]) == set(quotes)
    assert 0 < skills["confidence"] < 1


def test_what_needs_review_is_flagged_and_counted_everywhere(place: Workplace) -> None:
    write_three(place)
    place.steps.fields = {"title": "A title that is nowhere"}
    place.write("vague.txt", "x " * 100)
    report = place.ingest()
    flagged = [name for name in ("resume", "posting", "paper", "vague") if needs(place, name)]
    assert "vague" in flagged
    assert report.needs_review == len(flagged)
    with place.database.read() as tx:
        listed = [one["external_id"] for one in list_nodes(tx, TENANT, needs_review=True)]
        lines = {one.external_id for one in list_documents(tx, report.run.id) if one.needs_review}
        counted = (count_for_review(tx), count_nodes(tx, TENANT)["needs_review"])
        found = tx.execute(sa.select(runs.c.needs_review)).scalar_one()
        line = outcome_line(tx, report)
        filtered = Filters(TENANT, needs_review=True).conditions(tx)
        searched = tx.execute(sa.select(nodes.c.external_id).where(*filtered)).scalars().all()
    assert {name.removesuffix(".txt") for name in listed} == set(flagged)
    assert lines == set(listed) == set(searched)
    assert {*counted, found} == {len(flagged)}
    assert line.startswith(f"4 ready, {len(flagged)} need")


def needs(place: Workplace, name: str) -> bool:
    node = place.node(f"{name}.txt")
    assert bool(node.review_reasons) == node.needs_review
    return bool(node.needs_review)


def test_a_run_says_how_many_documents_are_confident(place: Workplace) -> None:
    place.write("vague.txt", "x " * 100)
    report = place.ingest()
    assert name_documents(report) == "1 document: 1 needs review"
    assert name_documents(place.ingest()) == "1 document: 1 unchanged"


def test_the_reasons_name_the_fields(place: Workplace) -> None:
    place.write("vague.txt", "1234567890 " * 20)
    place.ingest(profile="resume")
    reasons = place.node("vague.txt").review_reasons
    assert reasons[:3] == ["low_confidence", "missing:primary_skills", "missing:recent_job_titles"]


@pytest.fixture
def models(
    database: Database, server: GroqServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModelWorkplace]:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    made = ModelWorkplace(database, tmp_path / "models", server)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[GroqServer]:
    with GroqServer(api_key=KEY) as made:
        made.always(PRIMARY, make_answer())
        yield made


def test_a_models_unsupported_value_needs_review(
    models: ModelWorkplace, server: GroqServer
) -> None:
    for model in (PRIMARY, FALLBACK):
        server.always(model, make_answer(authors=["Nemo Nobody"]))
    models.write("a.txt", make_text("A"))
    assert models.ingest().needs_review == 1
    node = models.node("a.txt")
    assert (node.extraction_status, node.review_reasons) == ("ready", ["unsupported:authors"])
    assert show(models, "a.txt")["evidence"]["authors"]["places"] == [None]
    assert node.extraction_confidence < 0.9


def test_a_changed_profile_makes_its_own_nodes_outdated_and_no_others(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_three(place)
    place.ingest()
    assert outdated(place) == set()
    resume = profiles.profile_named("resume")
    changed = profiles.Profile(
        "resume", resume.schema, "Read it anew.", resume.required, resume.salient, resume.classes
    )
    monkeypatch.setitem(profiles._profiles, "resume", changed)
    assert outdated(place) == {"resume.txt"}
    with place.database.write() as tx:
        tx.execute(sa.update(nodes).values(extraction_profile_hash=None))
    assert outdated(place) == set(), "what an earlier version extracted may well be the same"


def outdated(place: Workplace) -> set[str]:
    report = place.ingest()
    with place.database.read() as tx:
        lines = list_documents(tx, report.run.id)
    return {one.external_id for one in lines if one.status == "ready"}


def test_a_backfill_looks_up_what_an_earlier_version_extracted_without_asking_again(
    models: ModelWorkplace, server: GroqServer
) -> None:
    models.write("a.txt", make_text("A"))
    models.ingest()
    with models.database.write() as tx:
        before = {"evidence": sa.null()}
        tx.execute(sa.update(nodes).values(**before, extraction_profile_hash=None))
        tx.execute(sa.update(extractions).values(**before, profile_hash=None))
    assert models.ingest().counts[DocumentStatus.SKIPPED] == 1
    selection = choose_nodes(models.app, TENANT, reasons=[Reason.EVIDENCE])
    assert (
        dispatcher(models.app, open_backfill(models.database, selection)).dispatch().enqueued == 1
    )
    models.drain()
    shown = show(models, "a.txt")
    assert shown["evidence"]["title"]["places"][0]["quote"] == "Ulm"
    assert shown["extraction_confidence"] == 0.9
    assert server.count() == 1
