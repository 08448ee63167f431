"""Operators, callers and workers at the same nodes at the same time."""

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.store.schema import nodes, work_items
from tests.contract.api.service import MakeService, Service
from tests.contract.ingestion import make_text
from tests.together import run_together, wait_until


def ask(service: Service, method: str, path: str, **options: Any) -> int:
    """The status of the answer; who is asked to come back later does so."""
    found: list[int] = []

    def is_answered() -> bool:
        status = service.http.request(method, path, **options).status_code
        found.append(status)
        return status != 503

    wait_until(is_answered)
    return found[-1]


@pytest.mark.full_suite
def test_nodes_that_go_while_others_are_at_them_leave_nothing_behind(
    make_service: MakeService,
) -> None:
    service = make_service(extraction={"enabled": True}, batch_size=10)
    texts = [{"props": {"text": make_text(str(number))}} for number in range(80)]
    added = service.post("/nodes/batch", {"nodes": texts})["results"]
    ids = [one["id"] for one in added]
    gone, kept = ids[::2], ids[1::2]

    def disturb(number: int) -> set[int]:
        if number == 0:
            return {ask(service, "POST", f"/nodes/{one}/refresh") for one in kept}
        if number == 1:
            body = {"node_ids": ids}
            paths = ["/admin/embedding/requeue", "/admin/extraction/requeue"] * 10
            return {ask(service, "POST", path, json=body) for path in paths}
        return {ask(service, "DELETE", f"/nodes/{one}") for one in gone[number - 2 :: 2]}

    working = threading.Thread(target=service.work)
    working.start()
    try:
        statuses = run_together(4, disturb)
    finally:
        working.join()
    service.work()

    assert statuses == [{200}, {200}, {204}, {204}]
    assert service.count(nodes) == len(kept)
    orphans = work_items.c.node_id.not_in(sa.select(nodes.c.id))
    assert service.items(orphans) == []
    assert {item.status for item in service.items()} == {"complete"}
    for node_id in kept:
        node = service.node(node_id)
        assert node["embedding_status"] == node["extraction_status"] == "ready"
