"""The same request under the same key is done once, however often and by whomever it is sent."""

from typing import Any

import pytest

from penstock.store.schema import nodes
from tests.contract.api.service import RESUME, MakeService, Service
from tests.together import run_together

BODY = {"props": {"text": RESUME}}


def send(service: Service, body: Any, key: str = "k-1", path: str = "/nodes") -> Any:
    return service.http.post(path, json=body, headers={"Idempotency-Key": key})


def test_the_same_request_is_answered_alike_and_makes_one_node(service: Service) -> None:
    first = send(service, BODY)
    service.work()
    second = send(service, BODY)

    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert service.count(nodes) == 1
    assert len(service.items()) == 1


def test_without_a_key_every_request_makes_a_node(service: Service) -> None:
    service.add()
    service.add()

    assert service.count(nodes) == 2


def test_eight_at_once_get_one_answer_and_one_node(service: Service) -> None:
    answers = run_together(8, lambda _: send(service, BODY))

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert service.count(nodes) == 1
    assert len(service.items()) == 1


def test_eight_different_requests_at_once_under_one_key_make_one_node(service: Service) -> None:
    answers = run_together(8, lambda n: send(service, {"props": {"text": f"number {n}"}}))

    assert sorted(answer.status_code for answer in answers) == [200] + [422] * 7
    assert service.count(nodes) == 1


def test_a_key_that_stands_for_another_request_is_refused(service: Service) -> None:
    send(service, BODY)

    refused = send(service, {"props": {"text": "another"}})

    assert refused.status_code == 422
    assert "another request" in refused.json()["detail"]
    assert service.count(nodes) == 1


def test_another_tenant_may_use_the_same_key(service: Service) -> None:
    ours = send(service, {**BODY, "tenant_id": "acme"})
    theirs = send(service, {**BODY, "tenant_id": "globex"})

    assert ours.json()["id"] != theirs.json()["id"]
    assert service.count(nodes) == 2


def test_a_batch_is_done_once_too(service: Service) -> None:
    body = {"nodes": [BODY, {"classes": "wrong"}, BODY], "continue_on_error": True}

    first = send(service, body, path="/nodes/batch")
    second = send(service, body, path="/nodes/batch")

    assert first.json() == second.json()
    assert first.json()["created"] == 2
    assert service.count(nodes) == 2


def test_a_refused_request_leaves_its_key_free(make_service: MakeService) -> None:
    service = make_service(embedding={"queue_max_depth": 1})
    service.add()
    assert send(service, BODY).status_code == 429

    service.work()

    assert send(service, BODY).status_code == 200


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_a_key_has_one_to_two_hundred_characters(service: Service, key: str) -> None:
    assert send(service, BODY, key).status_code == 422
    assert service.count(nodes) == 0


def test_inside_the_request_too_a_second_one_is_answered_as_the_first(
    make_service: MakeService,
) -> None:
    service = make_service(embedding={"EMBEDDING_ASYNC": False})
    first = send(service, BODY).json()

    assert send(service, BODY).json() == first
    assert first["embedding_status"] == "ready"
    service.delete(f"/nodes/{first['id']}")
    assert send(service, BODY).json()["id"] == first["id"], "it was done, and is gone since"
