"""Jobs that fail are tried again later and later, and in the end lie with the dead letters."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.app import retry_rules
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Claim, ItemStatus
from penstock.queue.queue import WorkQueue
from penstock.store.schema import work_items
from tests.contract.api.service import MakeService, Service
from tests.contract.ingestion import make_text

BROKEN = Fault(ErrorClass.UNAVAILABLE, "the embedder does not answer")


def kill(service: Service, *titles: str, **body: Any) -> list[dict[str, Any]]:
    """Nodes whose extraction is dead, as they were answered."""
    service.steps.on(Stage.EXTRACT, "mills", *[BROKEN] * 2 * len(titles))
    added = [service.add(make_text(t), extract_before_embed=True, **body) for t in titles]
    service.work()
    service.steps.trouble.clear()
    return added


def dead_letters(service: Service, **params: Any) -> list[int]:
    return [job["id"] for job in service.get("/admin/extraction/dlq", **params)["jobs"]]


def fail_once(service: Service, claim: Claim) -> Any:
    """Fail a job as its worker would; how it stands then."""
    with service.database.write() as tx:
        service.app.queue.fail(tx, claim, [(item, BROKEN) for item in claim.items])
        return tx.execute(sa.select(work_items)).one()


def test_an_embedding_is_tried_again_after_10_20_40_and_80_seconds_and_then_no_more(
    make_service: MakeService,
) -> None:
    service = make_service()
    service.app.queue = WorkQueue(retry_rules(service.settings))
    service.add()
    waits = []

    for _ in range(5):
        with service.database.write() as tx:
            tx.execute(sa.update(work_items).values(run_at=tx.now - timedelta(seconds=1)))
        with service.database.write() as tx:
            claim = service.app.queue.claim(tx, "a worker")
        row = fail_once(service, claim)
        waits.append((row.run_at - row.updated_at).total_seconds())

    assert row.status == ItemStatus.FAILED
    assert row.attempts == 5
    assert waits[4] == 0
    for waited, promised in zip(waits, (10, 20, 40, 80), strict=False):
        assert promised <= waited <= promised * 1.1, "a little more, never less"


def test_the_fifth_failure_of_an_embedding_is_its_last(service: Service) -> None:
    node = service.add()
    service.steps.on(Stage.EMBED, "sluice", *[RuntimeError("no memory")] * 5)

    service.work()

    shown = service.node(node["id"])
    assert shown["embedding_status"] == "failed"
    assert "no memory" in shown["embedding_error"]
    (letter,) = service.get("/admin/embedding/dlq")["jobs"]
    assert (letter["id"], letter["attempts"]) == (node["job_id"], 5)
    history = service.get(f"/extraction-jobs/{node['job_id']}")["history"]
    assert [one["attempt"] for one in history] == [1, 2, 3, 4, 5]


def test_dead_letters_are_listed_newest_first_page_by_page(service: Service) -> None:
    ids = [one["extraction_job_id"] for one in kill(service, "a", "b", "c")]

    page = service.get("/admin/extraction/dlq", limit=2)
    assert [job["id"] for job in page["jobs"]] == [ids[2], ids[1]]
    assert page["jobs"][0]["error_class"] == "unavailable"
    rest = service.get("/admin/extraction/dlq", limit=2, before=page["next_before"])
    assert [job["id"] for job in rest["jobs"]] == [ids[0]]
    assert rest["next_before"] is None
    assert service.get("/admin/embedding/dlq")["jobs"] == []


def test_dead_letters_are_replayed_with_their_full_budget(service: Service) -> None:
    nodes = kill(service, "a", "b")

    assert service.post("/admin/extraction/dlq/replay", {}) == {"replayed": 2}
    assert dead_letters(service) == []
    # Of two tries, the first fails once more.
    service.steps.on(Stage.EXTRACT, "mills", *[BROKEN] * len(nodes))
    service.work()

    for node in nodes:
        assert service.node(node["id"])["extraction_status"] == "ready"
    assert service.post("/admin/extraction/dlq/replay", {}) == {"replayed": 0}


def test_single_dead_letters_can_be_chosen(service: Service) -> None:
    first, second, third = [one["extraction_job_id"] for one in kill(service, "a", "b", "c")]

    body = {"ids": [second, 10**30, -1, 999_999]}
    assert service.post("/admin/extraction/dlq/replay", body) == {"replayed": 1}
    assert dead_letters(service) == [third, first]
    assert service.post("/admin/extraction/dlq/replay", {"limit": 1}) == {"replayed": 1}
    assert dead_letters(service) == [third], "without ids the oldest"
    assert service.post("/admin/extraction/dlq/replay", {"ids": []}) == {"replayed": 0}


def test_dead_letters_are_purged_by_age(service: Service) -> None:
    old, new = [one["extraction_job_id"] for one in kill(service, "a", "b")]
    with service.database.write() as tx:
        long_ago = sa.update(work_items).where(work_items.c.id == old)
        tx.execute(long_ago.values(finished_at=tx.now - timedelta(hours=2)))

    assert service.delete("/admin/extraction/dlq", 200, older_than_seconds=3600) == {"purged": 1}
    assert dead_letters(service) == [new]
    assert service.delete("/admin/embedding/dlq", 200) == {"purged": 0}
    assert service.delete("/admin/extraction/dlq", 200) == {"purged": 1}
    assert dead_letters(service) == []


def test_a_purged_node_can_still_be_requeued(service: Service) -> None:
    (node,) = kill(service, "a")
    service.delete("/admin/extraction/dlq", 200)

    answer = service.post("/admin/extraction/requeue", {"status": "failed"})
    service.work()

    assert answer["enqueued"] == 1
    assert service.node(node["id"])["extraction_status"] == "ready"


def test_a_dead_letter_with_a_successor_is_not_replayed_beside_it(service: Service) -> None:
    (node,) = kill(service, "a")
    service.post(f"/nodes/{node['id']}/refresh")

    assert service.post("/admin/extraction/dlq/replay", {}) == {"replayed": 0}


@pytest.mark.parametrize("age", ["-1", "nan", "inf", "soon"])
def test_an_age_is_a_number_of_seconds(service: Service, age: str) -> None:
    service.delete("/admin/extraction/dlq", 422, older_than_seconds=age)
