"""Nodes that come at the same time are accepted together, and none suffers for another."""

import pytest

from penstock.errors import ServiceError, StoreUnavailable
from penstock.intake.intake import GroupCommit, Intake
from penstock.intake.nodes import Accepted, NewNode
from penstock.store.schema import nodes
from tests.contract.api.service import MakeService, Service
from tests.together import run_together


def text(number: int) -> NewNode:
    return NewNode(props={"text": f"number {number}"})


def test_many_at_once_get_nodes_of_their_own(service: Service) -> None:
    def add(number: int) -> list[str]:
        return [service.add(f"number {number}-{turn}")["id"] for turn in range(5)]

    added = run_together(8, add)

    for number, ids in enumerate(added):
        texts = [service.node(node_id)["text"] for node_id in ids]
        assert texts == [f"number {number}-{turn}" for turn in range(5)]
    assert service.count(nodes) == 40


def test_single_nodes_at_once_never_pass_the_limit(make_service: MakeService) -> None:
    service = make_service(embedding={"queue_max_depth": 10})

    def send(_: int) -> list[int]:
        body = {"props": {"text": "sluice"}}
        return [service.http.post("/nodes", json=body).status_code for _ in range(5)]

    statuses = [status for some in run_together(8, send) for status in some]

    assert statuses.count(200) == service.count(nodes) == 10
    assert statuses.count(429) == 30


def test_a_cancelled_submission_leaves_no_node_and_does_not_affect_the_others(
    service: Service,
) -> None:
    gathering = GroupCommit(service.app.intake)
    first, gone, last = [gathering.submit("acme", text(number)) for number in range(3)]
    assert gone.cancel()

    with gathering:
        later = gathering.submit("acme", text(4))
        found = [future.result(timeout=20) for future in (first, last, later)]

    assert all(isinstance(one, Accepted) for one in found)
    assert service.count(nodes) == 3


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), ServiceError("no Redis")])
def test_what_may_have_been_written_is_not_written_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    accept = Intake.accept
    calls = 0

    def accept_and_fail(
        self: Intake, tenant_id: str, new: list[NewNode], *, key: str | None
    ) -> list[Accepted]:
        assert key is None
        nonlocal calls
        calls += 1
        accept(self, tenant_id, new)
        raise error

    monkeypatch.setattr(Intake, "accept", accept_and_fail)
    gathering = GroupCommit(service.app.intake)
    futures = [gathering.submit("acme", text(number)) for number in range(3)]
    with gathering:
        assert [future.exception(timeout=20) for future in futures] == [error] * 3

    assert calls == 1
    assert service.count(nodes) == 3
