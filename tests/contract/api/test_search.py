"""Search over HTTP."""

from typing import Any

import pytest

from penstock.store.database import Database
from tests.contract.api.service import RESUME, Service
from tests.contract.ingestion import Workplace, make_text
from tests.factories import TENANT


def add_and_work(service: Service, text: str, **body: Any) -> str:
    node_id: str = service.add(text, **body)["id"]
    service.work()
    return node_id


def test_hits_are_ranked_and_marked(service: Service) -> None:
    best = add_and_work(service, "Sluice gates and sluice gates again, all about sluices.")
    other = add_and_work(service, "A mill with one sluice, and much about flour and grain.")
    add_and_work(service, "Nothing of the kind.")

    answer = service.get("/search", q="sluice", mode="text")

    assert set(answer) == {"query", "mode", "hits"}
    assert [hit["id"] for hit in answer["hits"]] == [best, other]
    hit = answer["hits"][0]
    assert set(hit) == {"id", "title", "url", "score", "snippet", "why", "passage"}
    assert "<mark>" in hit["snippet"]
    assert "</mark>" in hit["snippet"]
    assert hit["why"] == [{"way": "text", "place": 1, "score": hit["score"]}]


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_passages_are_given_with_what_is_cited(service: Service, mode: str) -> None:
    filling = "The mill grinds corn and oats for the valley. " * 60
    text = f"{filling}\n\nZinc anodes protect the sluice from rust."
    node_id = add_and_work(service, text)

    answer = service.get("/passages", q="zinc anodes rust", mode=mode, limit=1)

    assert set(answer) == {"query", "mode", "passages"}
    (found,) = answer["passages"]
    stored = service.node(node_id)["text"]
    assert found["node_id"] == node_id
    assert found["text"] == stored[found["start"] : found["end"]]
    assert "Zinc anodes" in found["text"]
    assert found["start"] > 1000
    assert {"title", "url", "score", "page", "heading_path"} <= set(found)


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_filters_narrow_in_every_mode(service: Service, mode: str) -> None:
    resume = add_and_work(service, RESUME, classes=["Resume"], extract=True)
    paper = add_and_work(service, f"A paper. {RESUME}", profile="document", extract=True)
    plain = add_and_work(service, f"Plain. {RESUME}", classes=["JobPosting"])

    def find(**filters: Any) -> set[str]:
        return set(service.find("sluice gates python", mode=mode, **filters))

    assert find() == {resume, paper, plain}
    assert find(profile="resume") == {resume}
    assert find(profile="document") == {paper}
    assert find(field="primary_skills=python") == {resume}
    assert find(field=["primary_skills=python", "industries=hydropower"]) <= {resume}
    assert find(field="primary_skills=COBOL") == set()
    assert find(source="nobody") == set()
    assert len(service.find("sluice", mode=mode, limit=2)) == 2


def test_a_number_narrows(service: Service) -> None:
    service.steps.fields = {"salary_min": 60000}
    paid = add_and_work(service, RESUME, classes=["Resume"], extract=True)
    add_and_work(service, f"Plain. {RESUME}")

    assert service.find("sluice", at_least="salary_min=60000") == [paid]
    assert service.find("sluice", at_least=["salary_min=5e4", "salary_min=50000"]) == [paid]
    assert service.find("sluice", at_least="salary_min=60000.5") == []
    assert service.find("sluice", at_least="primary_skills=0") == []


def test_a_source_narrows(service: Service, database: Database, tmp_path: Any) -> None:
    workplace = Workplace(database, tmp_path / "work")
    try:
        workplace.write("a.txt", make_text("a"))
        workplace.ingest()
    finally:
        workplace.close()
    service.add(make_text("b"), tenant_id=TENANT)
    service.work()

    both = service.get("/search", q="mills", tenant_id=TENANT)["hits"]
    one = service.get("/search", q="mills", tenant_id=TENANT, source=str(workplace.folder))["hits"]

    assert len(both) == 2
    assert [hit["title"] for hit in one] == ["a"]


def test_expired_and_foreign_documents_are_not_found(service: Service) -> None:
    add_and_work(service, RESUME, tenant_id="globex")

    assert service.find("sluice") == []
    assert len(service.find("sluice", tenant_id="globex")) == 1


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({}, 422),
        ({"q": ""}, 422),
        ({"q": "x" * 2001}, 422),
        ({"q": "a", "mode": "psychic"}, 422),
        ({"q": "a", "limit": 0}, 422),
        ({"q": "a", "limit": 201}, 422),
        ({"q": "a", "field": "no-equals-sign"}, 400),
        ({"q": "a", "field": "=value"}, 400),
        ({"q": "a", "field": ["skill=Python", "skill=COBOL"]}, 400),
        ({"q": "a", "at_least": "years"}, 400),
        ({"q": "a", "at_least": "years=many"}, 400),
        ({"q": "a", "at_least": "years=nan"}, 400),
        ({"q": "a", "at_least": ["years=1", "years=2"]}, 400),
        ({"q": "a", "tenant_id": ""}, 400),
        ({"q": "a", "tenant_id": "x" * 201}, 400),
    ],
)
def test_what_cannot_be_searched_is_refused(
    service: Service, params: dict[str, Any], status: int
) -> None:
    service.get("/search", status, **params)


@pytest.mark.parametrize(
    "words",
    [
        '"',
        '"open phrase',
        "AND OR NOT",
        "a* (b",
        "'; DROP TABLE nodes; --",
        "\x00",
        "☃ ✓",
        "%",
        "-",
    ],
)
def test_any_words_may_be_searched_for(service: Service, words: str) -> None:
    add_and_work(service, RESUME)

    for mode in ("text", "vector", "hybrid"):
        service.get("/search", q=words, mode=mode)
    service.get("/search", q="sluice", field=f"{words}={words}", source=words, profile=words)
    service.get("/search", q="sluice", at_least=f"{words}=1")
