"""`POST /nodes` answers alike on its short path and through the framework."""

import asyncio
import json
from concurrent.futures import Future
from typing import Any

import pytest

from entrypoints.api.quick import Settled
from penstock.store.schema import nodes, work_items
from tests.contract.api.service import MakeService, Service

PLAIN = "application/json"
# The same type, written in a way that the short path leaves to the endpoint.
OTHERWISE = "application/json; charset=utf-8"
TEXT = {"props": {"text": "sluice"}}


def send(service: Service, media_type: str, body: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return service.http.post("/nodes", content=content, headers={"content-type": media_type})


def test_both_paths_make_the_same_node(service: Service) -> None:
    first, second = (send(service, media_type, TEXT) for media_type in (PLAIN, OTHERWISE))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.headers["content-type"] == second.headers["content-type"]
    answers = [answer.json() for answer in (first, second)]
    assert [list(answer) for answer in answers] == 2 * [list(answers[0])]
    ignored = ("id", "job_id")
    kept = [{k: v for k, v in one.items() if k not in ignored} for one in answers]
    assert kept[0] == kept[1]
    assert service.count(nodes) == service.count(work_items) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        [],
        {"props": 1},
        {"unknown": 1},
        {"props": {"text": "sluice", "n": float("nan")}},
        {**TEXT, "profile": "nonsense"},
        {**TEXT, "tenant_id": "\t"},
        {**TEXT, "payload_ref": "ftp://somewhere"},
    ],
)
def test_both_paths_refuse_alike(service: Service, body: Any) -> None:
    first, second = (send(service, media_type, body) for media_type in (PLAIN, OTHERWISE))
    assert 400 <= first.status_code < 500
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert service.count(nodes) == 0


def test_both_paths_are_refused_before_any_write_when_there_is_no_room(
    make_service: MakeService,
) -> None:
    service = make_service(embedding={"queue_max_depth": 1})
    service.add("the one there is room for")
    first, second = (send(service, media_type, TEXT) for media_type in (PLAIN, OTHERWISE))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert first.status_code == 429
    assert first.headers["retry-after"] == second.headers["retry-after"]
    assert service.count(nodes) == 1


def test_results_errors_and_cancellations_reach_those_who_wait() -> None:
    async def wait() -> list[Any]:
        settled = Settled()
        futures: list[Future[int]] = [Future() for _ in range(4)]
        waiting = [asyncio.ensure_future(settled.wait(future)) for future in futures]
        await asyncio.sleep(0)
        waiting[3].cancel()

        def settle() -> None:
            futures[0].set_result(1)
            futures[1].set_exception(ValueError("two"))
            futures[2].cancel()

        await asyncio.to_thread(settle)
        found = await asyncio.gather(*waiting, return_exceptions=True)
        return [*found, futures[3].cancelled()]

    result, error, cancelled, gone, future_gone = asyncio.run(wait())
    assert result == 1
    assert isinstance(error, ValueError)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(gone, asyncio.CancelledError)
    assert future_gone
