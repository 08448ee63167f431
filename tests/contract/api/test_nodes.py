"""Nodes: from a request over the workers to search."""

from typing import Any

import pytest

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from tests.contract.api.service import RESUME, MakeService, Service

EXTRACTS = {"enabled": True}
SYNC = {"enabled": True, "mode": "sync"}
ANSWER = {"id", "embedding_status", "job_id", "extraction_status", "extraction_job_id"}


@pytest.mark.both_databases
def test_a_node_becomes_ready_and_is_found(service: Service) -> None:
    answer = service.add(classes=["Resume"], metadata={"from": "a form"})

    assert set(answer) == ANSWER
    assert answer["embedding_status"] == "queued"
    assert answer["job_id"] is not None
    assert answer["extraction_status"] is answer["extraction_job_id"] is None
    assert service.node(answer["id"])["embedding_status"] == "queued"

    service.work()

    node = service.node(answer["id"])
    assert node["embedding_status"] == "ready"
    assert node["has_embedding"] is True
    assert node["text"] == RESUME
    assert node["classes"] == ["Resume"]
    assert node["metadata"] == {"from": "a form"}
    assert node["props"]["text"] == RESUME
    for mode in ("text", "vector", "hybrid"):
        assert service.find("sluice gates", mode=mode) == [answer["id"]]


def test_by_default_a_node_is_embedded_at_once_and_extracted_beside_it(
    make_service: MakeService,
) -> None:
    service = make_service(extraction=EXTRACTS)
    answer = service.add(profile="resume")

    assert answer["embedding_status"] == answer["extraction_status"] == "queued"
    assert None not in (answer["job_id"], answer["extraction_job_id"])
    service.work(stages=[Stage.EMBED])
    assert service.node(answer["id"])["embedding_status"] == "ready"
    assert service.node(answer["id"])["extraction_status"] == "queued"

    service.work()

    node = service.node(answer["id"])
    assert node["extraction_status"] == "ready"
    assert "Python" in node["props"]["primary_skills"]
    assert node["props"]["extraction_model"] == "rules"
    assert node["props"]["extracted_at"] is not None
    assert node["embedding_drift"] > 0, "what was extracted has changed the embedded text"


def test_in_sync_mode_a_node_is_extracted_first(make_service: MakeService) -> None:
    service = make_service(extraction=SYNC)
    answer = service.add()

    assert answer["embedding_status"] == "pending_extraction"
    assert answer["job_id"] is None
    assert answer["extraction_status"] == "queued"
    assert answer["extraction_job_id"] is not None
    service.work(stages=[Stage.EMBED])
    assert service.node(answer["id"])["embedding_status"] == "pending_extraction"

    service.work()

    node = service.node(answer["id"])
    assert node["extraction_status"] == node["embedding_status"] == "ready"
    assert node["embedding_drift"] is None, "it was embedded once"


def test_extract_before_embed_asks_for_it_although_extraction_is_off(service: Service) -> None:
    answer = service.add(extract_before_embed=True)

    assert answer["embedding_status"] == "pending_extraction"
    service.work()
    assert service.node(answer["id"])["extraction_status"] == "ready"


def test_a_node_may_forbid_the_extraction_that_others_get(make_service: MakeService) -> None:
    service = make_service(extraction=SYNC)

    answer = service.add(extract=False)

    assert answer["embedding_status"] == "queued"
    assert answer["extraction_status"] is None
    refused = service.post("/nodes", {"extract": False, "extract_before_embed": True}, 422)
    assert "extract_before_embed" in refused["detail"]


def test_short_texts_are_not_extracted_but_embedded(make_service: MakeService) -> None:
    service = make_service(extraction=SYNC)
    answer = service.add("Sluices, briefly.")

    service.work()

    node = service.node(answer["id"])
    assert node["extraction_status"] == "skipped"
    assert node["extraction_reason"]
    assert node["embedding_status"] == "ready"
    assert service.find("sluices") == [answer["id"]]


def test_failed_extractions_do_not_keep_a_node_from_being_embedded(
    make_service: MakeService,
) -> None:
    service = make_service(extraction=SYNC)
    answer = service.add()
    broken = Fault(ErrorClass.TIMEOUT, "it took too long")
    service.steps.on(Stage.EXTRACT, "sluice", broken, broken)

    service.work()

    node = service.node(answer["id"])
    assert node["extraction_status"] == "failed"
    assert "too long" in node["extraction_error"]
    assert node["embedding_status"] == "ready"
    assert service.find("sluice gates") == [answer["id"]]


@pytest.mark.parametrize("props", [{}, {"text": "  \n"}, {"text": 5}, {"skills": ["Python"]}])
def test_without_text_there_is_nothing_to_embed(service: Service, props: dict[str, Any]) -> None:
    answer = service.post("/nodes", {"props": props})

    service.work()

    node = service.node(answer["id"])
    assert node["embedding_status"] == "skipped"
    assert node["embedding_reason"] == "empty_text"
    assert node["has_embedding"] is False


def test_the_text_is_the_first_of_the_props_that_hold_one(service: Service) -> None:
    order = ["text", "resume_text", "content", "body", "description"]
    for first, name in enumerate(order):
        props = {other: f"found in {other}" for other in order[first:]}
        shuffled = dict(sorted(props.items()))
        answer = service.post("/nodes", {"props": shuffled})
        assert service.node(answer["id"])["text"] == f"found in {name}"


def test_an_empty_prop_does_not_hide_the_text_in_the_next_one(service: Service) -> None:
    answer = service.post("/nodes", {"props": {"text": " ", "content": None, "body": "here"}})

    assert service.node(answer["id"])["text"] == "here"


@pytest.mark.parametrize(
    ("body", "profile"),
    [
        ({"profile": "job_posting", "classes": ["Resume"]}, "job_posting"),
        ({"classes": ["Thing", "JobPosting"]}, "job_posting"),
        ({"classes": ["resume"]}, "resume"),
        ({"classes": ["Thing"]}, "document"),
        ({}, "document"),
    ],
)
def test_the_profile_is_named_or_told_by_the_classes_or_the_default(
    make_service: MakeService, body: dict[str, Any], profile: str
) -> None:
    service = make_service(extraction={"enabled": True, "profile": "document"})

    answer = service.add(**body)
    service.work()

    assert service.node(answer["id"])["profile"] == profile


def test_a_profile_that_nobody_knows_is_refused(service: Service) -> None:
    refused = service.post("/nodes", {"profile": "recipe"}, 400)

    assert "recipe" in refused["detail"]
    assert "resume" in refused["detail"], "it says which there are"


def test_nodes_can_be_embedded_inside_the_request(make_service: MakeService) -> None:
    service = make_service(embedding={"EMBEDDING_ASYNC": False}, extraction=EXTRACTS)

    answer = service.add()

    assert answer["embedding_status"] == "ready"
    assert answer["extraction_status"] == "queued"
    assert service.find("sluice gates") == [answer["id"]]
    batch = service.post("/nodes/batch", {"nodes": [{"props": {"text": "mills"}}, {}]})
    assert [one["embedding_status"] for one in batch["results"]] == ["ready", "skipped"]
    first = service.add(extract_before_embed=True)
    assert first["embedding_status"] == "pending_extraction", "its fields are to come first"


def test_what_cannot_be_embedded_inside_the_request_is_left_to_the_workers(
    make_service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(embedding={"EMBEDDING_ASYNC": False})

    def fail(texts: Any) -> Any:
        del texts
        raise RuntimeError("no memory left")

    monkeypatch.setattr(service.app.embedder, "embed", fail)
    answer = service.add()
    monkeypatch.undo()

    assert answer["embedding_status"] == "queued"
    service.work()
    assert service.node(answer["id"])["embedding_status"] == "ready"


def test_values_that_no_store_can_hold_are_refused(service: Service) -> None:
    deep = "[" * 60 + "]" * 60
    for props in ('{"n": NaN}', '{"n": [1e999]}', f'{{"n": {deep}}}'):
        body = f'{{"props": {props}}}'
        response = service.http.post(
            "/nodes", content=body, headers={"content-type": "application/json"}
        )
        assert response.status_code == 422, body
    odd = service.post("/nodes", {"props": {"text": "a\x00b", "n": 2**70, "x": "\U0001f30a"}})
    assert service.node(odd["id"])["text"] == "a\ufffdb"
    assert service.node(odd["id"])["props"]["n"] == 2**70


def test_a_node_that_is_not_there_is_not_found(service: Service) -> None:
    for node_id in ("nonsense", "0190b3a2-0000-7000-8000-000000000000"):
        for method, path in [
            ("GET", f"/nodes/{node_id}"),
            ("DELETE", f"/nodes/{node_id}"),
            ("POST", f"/nodes/{node_id}/refresh"),
        ]:
            assert service.http.request(method, path).status_code == 404
