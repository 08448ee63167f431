"""Which nodes go back to work, and how often."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.queue.items import ItemStatus
from penstock.store.schema import nodes, texts, work_items
from tests.contract.api.service import RESUME, MakeService, Service
from tests.contract.ingestion import make_text
from tests.factories import add_node
from tests.together import run_together

BROKEN = Fault(ErrorClass.TIMEOUT, "it took too long")


def requeue(service: Service, queue: str = "embedding", **body: Any) -> dict[str, int]:
    answer: dict[str, int] = service.post(f"/admin/{queue}/requeue", body)
    return answer


def set_status(service: Service, node_id: str, **values: Any) -> None:
    with service.database.write() as tx:
        tx.execute(sa.update(nodes).where(nodes.c.id == node_id).values(values))


def fail(service: Service, stage: Stage, word: str, times: int) -> None:
    """Have the next attempts at documents with this word fail."""
    trouble: Fault | Exception = BROKEN if stage is Stage.EXTRACT else RuntimeError("no memory")
    # An embedder's error is met by the batch first, then by each document alone.
    service.steps.on(stage, word, *[trouble] * times)


def test_requeue_gives_the_full_budget_again(make_service: MakeService) -> None:
    service = make_service(extraction={"enabled": True})
    node = service.add()
    fail(service, Stage.EXTRACT, "sluice", 2)
    service.work()
    (dead,) = service.items(work_items.c.status == ItemStatus.FAILED)
    assert dead.attempts == 2

    assert requeue(service, "extraction", status="failed")["enqueued"] == 1
    (again,) = service.items(work_items.c.id == dead.id)
    assert (again.status, again.attempts, again.rescues) == ("pending", 0, 0)
    assert "requeued" in again.error_message
    fail(service, Stage.EXTRACT, "sluice", 1)
    service.work()

    assert service.node(node["id"])["extraction_status"] == "ready", "a second attempt was left"


def test_eight_requeues_at_once_enqueue_each_node_once(service: Service) -> None:
    for number in range(5):
        service.add(make_text(str(number)))
    service.work()

    answers = run_together(8, lambda _: requeue(service, "extraction", only_null_status=True))

    assert sum(answer["enqueued"] for answer in answers) == 5
    assert len(service.items(work_items.c.stage == Stage.EXTRACT)) == 5


def test_what_a_worker_is_at_is_left_alone(service: Service) -> None:
    service.add()
    with service.database.write() as tx:
        claim = service.app.queue.claim(tx, "a worker")
        service.app.queue.start(tx, claim, claim.items)

    answer = requeue(service, status="processing")

    assert answer == {"requested": 1, "enqueued": 0, "backfilled": 0}
    (item,) = service.items()
    assert (item.status, item.lease_token) == ("processing", claim.token)


def test_without_a_status_what_is_not_done_goes_back(make_service: MakeService) -> None:
    service = make_service(extraction={"enabled": True})
    undone = [None, "queued", "failed"]
    done = ["ready", "skipped", "processing"]
    ids = {status: service.add(make_text(str(status)))["id"] for status in (*undone, *done)}
    with service.database.write() as tx:
        tx.execute(sa.delete(work_items))
    for status, node_id in ids.items():
        set_status(service, node_id, extraction_status=status)

    assert requeue(service, "extraction") == {"requested": 3, "enqueued": 3, "backfilled": 0}
    enqueued = {item.node_id for item in service.items()}
    assert enqueued == {ids[status] for status in undone}


def test_none_names_the_nodes_without_a_status(service: Service) -> None:
    service.add()
    service.work()

    assert requeue(service, "extraction", status="none")["enqueued"] == 1


def test_node_ids_choose_among_a_tenants_own(service: Service) -> None:
    ours = [service.add(make_text(name), tenant_id="acme")["id"] for name in "abc"]
    theirs = service.add(make_text("d"), tenant_id="globex")["id"]
    service.work()

    body = {"tenant_id": "acme", "node_ids": [ours[0], ours[2], theirs]}
    answer = requeue(service, "extraction", **body)

    assert answer == {"requested": 2, "enqueued": 2, "backfilled": 0}
    found = service.items(work_items.c.stage == Stage.EXTRACT)
    assert {item.node_id for item in found} == {ours[0], ours[2]}
    service.post("/admin/extraction/requeue", {"node_ids": ["no id"]}, 404)


def test_the_limit_is_never_above_two_thousand(service: Service) -> None:
    with service.database.write() as tx:
        for _ in range(2003):
            add_node(tx, tenant_id="default")

    answer = requeue(service, only_null_status=True, limit=10_000)

    assert answer == {"requested": 2000, "enqueued": 2000, "backfilled": 0}
    assert requeue(service, only_null_status=True)["enqueued"] == 3
    assert requeue(service, limit=0) == {"requested": 0, "enqueued": 0, "backfilled": 0}
    service.post("/admin/embedding/requeue", {"limit": -1}, 422)


def test_a_smaller_limit_takes_the_oldest(service: Service) -> None:
    ids = [service.add(make_text(name))["id"] for name in "abc"]
    service.work()

    requeue(service, "extraction", only_null_status=True, limit=2)

    found = service.items(work_items.c.stage == Stage.EXTRACT)
    assert [item.node_id for item in found] == ids[:2]


def test_only_missing_embedding_leaves_out_what_has_its_vector(service: Service) -> None:
    ids = [service.add(make_text(name))["id"] for name in "ab"]
    service.work()
    missing = service.add(make_text("c"))["id"]
    with service.database.write() as tx:
        tx.execute(sa.delete(work_items))
    for node_id in (*ids, missing):
        set_status(service, node_id, embedding_status="queued")

    answer = requeue(service, status="queued", only_missing_embedding=True)

    assert answer == {"requested": 1, "enqueued": 1, "backfilled": 0}
    assert [item.node_id for item in service.items()] == [missing]


def test_backfill_ready_marks_and_counts_what_is_whole(service: Service) -> None:
    ids = [service.add(make_text(name))["id"] for name in "ab"]
    service.work()
    for node_id in ids:
        set_status(service, node_id, embedding_status="failed", embedding_error="lost")

    answer = requeue(service, status="failed", backfill_ready=True)

    assert answer == {"requested": 2, "enqueued": 0, "backfilled": 2}
    assert {service.node(node_id)["embedding_status"] for node_id in ids} == {"ready"}
    assert {service.node(node_id)["embedding_error"] for node_id in ids} == {None}


def test_a_vector_does_not_keep_a_node_from_being_extracted(service: Service) -> None:
    node = service.add()
    service.work()

    answer = requeue(service, "extraction", only_null_status=True, backfill_ready=True)
    service.work()

    assert answer == {"requested": 1, "enqueued": 1, "backfilled": 0}
    assert service.node(node["id"])["extraction_status"] == "ready"


def test_a_node_whose_text_could_not_be_had_begins_there(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service(payload_roots=(str(tmp_path),))
    path = tmp_path / "late.txt"
    node = service.post("/nodes", {"payload_ref": path.as_uri()})
    service.work()
    (dead,) = service.items()
    assert (dead.stage, dead.status) == ("text", "failed")

    path.write_text(RESUME)
    assert requeue(service, node_ids=[node["id"]])["enqueued"] == 1
    service.work()

    assert service.node(node["id"])["text"] == RESUME
    assert service.node(node["id"])["embedding_status"] == "ready"
    assert service.node(node["id"])["extraction_status"] is None, "nobody has asked for it"


def test_a_node_that_waits_for_its_text_is_not_embedded_without_it(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service(payload_roots=(str(tmp_path),))
    (tmp_path / "a.txt").write_text(RESUME)
    service.post("/nodes", {"payload_ref": (tmp_path / "a.txt").as_uri()})

    answer = requeue(service, status="queued", only_missing_embedding=True, backfill_ready=True)

    assert answer == {"requested": 1, "enqueued": 0, "backfilled": 0}
    assert [item.stage for item in service.items()] == ["text"]


@pytest.mark.parametrize("queue", ["extraction", "embedding"])
def test_a_node_whose_text_job_was_forgotten_begins_with_a_new_one(
    service: Service, queue: str
) -> None:
    upload = service.http.post("/upload", files=[("files", ("cv.txt", RESUME.encode()))]).json()
    with service.database.write() as tx:
        tx.execute(sa.delete(work_items))

    assert requeue(service, queue)["enqueued"] == 1
    service.work()

    node = service.node(upload["results"][0]["id"])
    assert node["text"] == RESUME
    assert node["embedding_status"] == "ready"
    assert service.count(texts) == 1


def test_what_is_not_known_is_refused(service: Service) -> None:
    service.post("/admin/embedding/requeue", {"only_nul_status": True}, 422)
    service.post("/admin/text/requeue", {}, 422)
    service.post("/admin/embedding/requeue", {"tenant_id": ""}, 422)
