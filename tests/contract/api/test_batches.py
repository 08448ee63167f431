"""Many nodes in one request: all of them, or those that are good."""

from typing import Any

from penstock.store.schema import nodes
from tests.contract.api.service import EVERYTHING, RESUME, MakeService, Service
from tests.factories import read_rows

GOOD = {"props": {"text": RESUME}}
BAD = {"props": {"text": RESUME}, "colour": "red"}


def send(service: Service, *batch: Any, status: int = 200, **options: Any) -> Any:
    return service.post("/nodes/batch", {"nodes": list(batch), **options}, status)


def test_a_batch_is_accepted_in_its_order(service: Service) -> None:
    titles = ["first", "second", "third"]

    answer = send(service, *[{"props": {"title": title, "text": RESUME}} for title in titles])

    assert answer["created"] == 3
    assert answer["failed"] == 0
    results = answer["results"]
    assert [one["index"] for one in results] == [0, 1, 2]
    assert [service.node(one["id"])["title"] for one in results] == titles
    assert all(one["embedding_status"] == "queued" and one["job_id"] for one in results)
    assert {one["error"] for one in results} == {None}
    service.work()
    assert sorted(service.find("sluice gates")) == sorted(one["id"] for one in results)


def test_without_more_words_one_bad_node_refuses_all(service: Service) -> None:
    before = read_rows(service.database, *EVERYTHING)

    refused = send(service, GOOD, BAD, {"profile": "recipe"}, status=422)

    assert "nodes.1" in refused["detail"]
    assert [one["where"] for one in refused["errors"]] == ["nodes.1", "nodes.2"]
    assert "recipe" in refused["errors"][1]["what"]
    assert read_rows(service.database, *EVERYTHING) == before


def test_continue_on_error_makes_the_good_ones(service: Service) -> None:
    answer = send(service, BAD, GOOD, {"profile": "recipe"}, GOOD, continue_on_error=True)

    assert (answer["created"], answer["failed"]) == (2, 2)
    made = [one["id"] is not None for one in answer["results"]]
    assert made == [False, True, False, True]
    assert "colour" in answer["results"][0]["error"]
    assert "recipe" in answer["results"][2]["error"]
    assert service.count(nodes) == 2


def test_a_batch_of_nothing_but_bad_nodes_makes_none(service: Service) -> None:
    answer = send(service, BAD, BAD, continue_on_error=True)

    assert (answer["created"], answer["failed"]) == (0, 2)
    assert service.count(nodes) == 0


def test_an_empty_batch_is_refused(service: Service) -> None:
    send(service, status=422)


def test_a_batch_may_not_be_larger_than_the_limit(make_service: MakeService) -> None:
    service = make_service(node_batch_max=3)

    refused = send(service, *[GOOD] * 4, status=400, continue_on_error=True)

    assert "NODE_BATCH_MAX" in refused["detail"]
    assert service.count(nodes) == 0
    assert send(service, *[GOOD] * 3)["created"] == 3


def test_the_limit_is_two_hundred_unless_told(service: Service) -> None:
    assert send(service, *[GOOD] * 200)["created"] == 200
    send(service, *[GOOD] * 201, status=400)


def test_nodes_that_name_no_tenant_get_that_of_the_batch(service: Service) -> None:
    answer = send(service, GOOD, {**GOOD, "tenant_id": "acme"}, tenant_id="acme")

    for one in answer["results"]:
        assert service.node(one["id"], tenant_id="acme")["tenant_id"] == "acme"
        service.get(f"/nodes/{one['id']}", 404)


def test_a_batch_is_of_one_tenant(service: Service) -> None:
    mixed = [{**GOOD, "tenant_id": "acme"}, {**GOOD, "tenant_id": "globex"}]

    refused = send(service, *mixed, status=400, continue_on_error=True)

    assert "one tenant" in refused["detail"]
    assert service.count(nodes) == 0
