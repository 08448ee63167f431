"""Labelled documents through the extraction of a run, with the rules and with models."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.errors import UsageError
from penstock.evaluation.comparison import Level
from penstock.evaluation.evaluation import evaluate
from penstock.evaluation.gold import GoldRecord, GoldSet, gold_set, read_gold
from penstock.review.gold import list_gold
from penstock.store.database import Database
from penstock.store.schema import extractions, model_calls
from penstock.testing import GroqServer, server_error
from tests.contract.ingestion import Workplace, make_text
from tests.contract.modelling import FALLBACK, KEY, PRIMARY, ModelWorkplace, make_answer
from tests.factories import TENANT

pytestmark = pytest.mark.full_suite


@pytest.fixture
def server() -> Iterator[GroqServer]:
    answer = make_answer(title="Mills", authors=["Ada Byron"], topics=["mills"])
    with GroqServer(answer, api_key=KEY) as server:
        yield server


@pytest.fixture
def models(
    database: Database, server: GroqServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModelWorkplace]:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    place = ModelWorkplace(database, tmp_path / "home", server, max_attempts=1)
    yield place
    place.close()


def gold(*names: str, **fields: Any) -> GoldSet:
    wanted = {"title": "Mills", "topics": ["mills", "water"], **fields}
    about = "Mills, by Ada Byron, 1843. About mills.\n\n"
    records = [
        GoldRecord(one, wanted, "document", about + make_text(f"Paper {one}")) for one in names
    ]
    return GoldSet("papers", tuple(records))


def count_rows(place: Workplace, table: sa.Table) -> int:
    with place.database.read() as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def test_models_are_judged_with_what_they_cost_and_the_store_is_left_alone(
    models: ModelWorkplace, server: GroqServer
) -> None:
    done: list[int] = []
    found = evaluate(models.app, gold("a", "b"), progress=done.append)
    shown = found.as_json()
    assert shown["setup"]["extractor"].startswith(f"groq:{PRIMARY}>{FALLBACK}")
    topics = shown["fields"]["document"]["topics"]["exact"]
    assert (topics["precision"], topics["recall"]) == (1.0, 0.5)
    usage = shown["usage"]
    assert usage["calls"] == server.count() == 2
    assert usage["prompt_tokens"] > usage["completion_tokens"] > 0
    assert usage["cost_usd"] > 0
    assert usage["latency"]["median"] > 0
    assert done == [2]
    assert (count_rows(models, model_calls), count_rows(models, extractions)) == (0, 0)
    evaluate(models.app, gold("a"))
    assert server.count() == 3, "asked anew"


def test_a_document_that_fails_counts_as_nothing_found_and_its_calls_as_spent(
    models: ModelWorkplace, server: GroqServer
) -> None:
    server.always(None, server_error(), when="Paper b")
    found = evaluate(models.app, gold("a", "b"))
    good, bad = found.documents
    assert (good.outcome, good.calls) == ("ready", 1)
    assert bad.outcome.startswith("failed: no model gave a usable answer")
    assert bad.calls == 2
    assert found.fields["document"]["title"].counts[Level.EXACT] == (1, 1, 2)


def test_another_model_without_a_price_has_an_unknown_cost(models: ModelWorkplace) -> None:
    extraction = models.app.settings.extraction.model_copy(update={"primary_model": "other/one"})
    models.app.settings = models.app.settings.model_copy(update={"extraction": extraction})
    assert evaluate(models.app, gold("a")).usage.cost_usd is None


@pytest.fixture
def rules(database: Database, tmp_path: Path) -> Iterator[Workplace]:
    place = Workplace(database, tmp_path / "home")
    yield place
    place.close()


def test_files_are_read_as_in_a_run_and_a_broken_one_is_told(
    rules: Workplace, tmp_path: Path
) -> None:
    page = f"<html><head><title>Mills</title></head><body><p>{make_text('Paper')}</p></body></html>"
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "empty.pdf").write_bytes(b"")
    lines = [
        {"id": "page", "file": "page.html", "fields": {"title": "Mills"}, "profile": "document"},
        {"id": "empty", "file": "empty.pdf", "fields": {"title": "None"}, "profile": "document"},
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (read,) = read_gold([str(tmp_path / "gold.jsonl")])
    found = evaluate(rules.app, read)
    assert [one.outcome.partition(":")[0] for one in found.documents] == ["ready", "failed"]
    assert found.documents[0].fields["title"].soft == 1.0
    assert found.usage.calls == 0
    assert found.usage.cost_usd == 0


def test_lists_are_judged_as_nodes_show_them_or_whole(rules: Workplace) -> None:
    skills = ["Python", "SQL", "Java", "Docker", "Kubernetes", "Linux", "Git", "Terraform"]
    skills += ["Ansible", "React", "Django", "Flask", "PostgreSQL", "Redis", "Kafka"]
    text = f"Ada Byron\nStaff Engineer, Mills Ltd, 2015 to 2020\n\nSKILLS\n\n{', '.join(skills)}\n"
    records = (GoldRecord("ada", {"primary_skills": skills}, "resume", text),)
    cut = evaluate(rules.app, GoldSet("ada", records))
    whole = evaluate(rules.app, GoldSet("ada", records), uncapped=True)
    found = [one.fields["resume"]["primary_skills"].counts for one in (cut, whole)]
    assert [counts[Level.NORMALISED].found for counts in found] == [12, len(skills)]


def test_what_people_corrected_is_judged_in_the_stored_text(rules: Workplace) -> None:
    rules.write("a.txt", make_text("Mills"))
    rules.write("b.txt", make_text("Sluices"))
    rules.ingest()
    node_id = rules.node("a.txt").id
    rules.app.decider.correct(TENANT, node_id, {"title": "Weirs"}, author="ada")
    read = gold_set("corrections", list_gold(rules.database, TENANT))
    found = evaluate(rules.app, read)
    (document,) = found.documents
    assert (document.id, document.profile, [*document.fields]) == (node_id, "document", ["title"])
    assert document.fields["title"].soft == 0.0, "what was extracted, not what was corrected"


def test_a_document_without_a_profile_gets_the_one_its_content_shows(rules: Workplace) -> None:
    text = make_text("Mills")
    found = evaluate(rules.app, GoldSet("x", (GoldRecord("a", {"title": "Mills"}, None, text),)))
    assert [one.profile for one in found.documents] == ["document"]
    with pytest.raises(UsageError, match="labels no field of the profile resume"):
        evaluate(rules.app, gold("a"), profile="resume")
