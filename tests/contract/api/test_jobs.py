"""Jobs one by one: listed, shown, made, retried, cancelled, forgotten."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Claim, ItemStatus, Outcome
from penstock.store.schema import attempts, work_items
from tests.contract.api.service import RESUME, MakeService, Service
from tests.contract.ingestion import make_text

BROKEN = Fault(ErrorClass.TIMEOUT, "it took too long")
SYNC = {"enabled": True, "mode": "sync"}


def claim_all(service: Service) -> Claim:
    """A worker that is at everything that is due."""
    with service.database.write() as tx:
        claim = service.app.queue.claim(tx, "a worker")
        service.app.queue.start(tx, claim, claim.items)
    return claim


def kill(service: Service) -> dict[str, Any]:
    """A node whose extraction is dead, as it was answered."""
    service.steps.on(Stage.EXTRACT, "sluice", BROKEN, BROKEN)
    answer = service.add(extract_before_embed=True)
    service.work()
    return answer


def set_status(service: Service, job_id: int, status: str) -> None:
    with service.database.write() as tx:
        job = sa.update(work_items).where(work_items.c.id == job_id)
        tx.execute(job.values(status=status))


def ids(listed: Any) -> list[int]:
    return [job["id"] for job in listed["jobs"]]


class TestListing:
    def test_extractions_are_listed_newest_first(self, make_service: MakeService) -> None:
        service = make_service(extraction={"enabled": True})
        added = [service.add(make_text(name)) for name in "abc"]

        listed = service.get("/extraction-jobs")

        assert ids(listed) == [one["extraction_job_id"] for one in reversed(added)]
        assert listed["next_before"] is None
        job = listed["jobs"][0]
        assert job["status"] == "pending"
        assert job["node_id"] == added[-1]["id"]
        assert not {"payload", "lease_token"} & set(job)

    def test_other_stages_are_listed_when_asked_for(self, make_service: MakeService) -> None:
        service = make_service(extraction={"enabled": True})
        added = service.add()
        upload = service.http.post("/upload", files=[("files", ("a.txt", b"a"))]).json()

        assert ids(service.get("/extraction-jobs", stage="embed")) == [added["job_id"]]
        assert ids(service.get("/extraction-jobs", stage="text")) == [
            upload["results"][0]["job_id"]
        ]
        service.get("/extraction-jobs", 422, stage="crawl")

    def test_a_listing_is_narrowed(self, service: Service) -> None:
        dead = kill(service)
        alive = service.add(make_text("alive"), extract=True)

        assert ids(service.get("/extraction-jobs", status="failed")) == [dead["extraction_job_id"]]
        assert ids(service.get("/extraction-jobs", status="pending")) == [
            alive["extraction_job_id"]
        ]
        assert ids(service.get("/extraction-jobs", node_id=alive["id"])) == [
            alive["extraction_job_id"]
        ]
        assert ids(service.get("/extraction-jobs", error_class="timeout")) == [
            dead["extraction_job_id"]
        ]
        assert ids(service.get("/extraction-jobs", error_class="corruption")) == []
        assert ids(service.get("/extraction-jobs", run_id=1)) == []
        service.get("/extraction-jobs", 422, status="sleeping")
        service.get("/extraction-jobs", 404, node_id="nonsense")

    def test_a_long_listing_comes_in_pages(self, make_service: MakeService) -> None:
        service = make_service(extraction={"enabled": True})
        added = [service.add(make_text(name))["extraction_job_id"] for name in "abcde"]
        seen: list[int] = []
        before: dict[str, int] = {}

        while True:
            page = service.get("/extraction-jobs", limit=2, **before)
            seen += ids(page)
            if page["next_before"] is None:
                break
            before = {"before": page["next_before"]}

        assert seen == sorted(added, reverse=True)

    def test_jobs_are_counted_by_stage_and_status(self, service: Service) -> None:
        kill(service)
        service.add(make_text("waits"), extract=True)

        counted = service.get("/extraction-jobs/statistics")

        assert set(counted) == {"text", "extract", "embed"}
        assert all(set(one) == set(ItemStatus) for one in counted.values())
        assert counted["extract"]["failed"] == counted["extract"]["pending"] == 1
        assert counted["embed"]["complete"] == counted["embed"]["pending"] == 1
        assert counted["text"]["pending"] == 0

    def test_a_job_is_shown_with_the_history_of_its_failures(self, service: Service) -> None:
        dead = kill(service)

        job = service.get(f"/extraction-jobs/{dead['extraction_job_id']}")

        assert job["status"] == "failed"
        assert job["error_message"] == "it took too long"
        assert [one["attempt"] for one in job["history"]] == [1, 2]
        assert {one["error_class"] for one in job["history"]} == {"timeout"}

    @pytest.mark.parametrize("job_id", ["999999", "0", "-1", "x", str(10**30)])
    def test_a_job_that_is_not_there(self, service: Service, job_id: str) -> None:
        expected = 404 if job_id == "999999" else 422
        service.get(f"/extraction-jobs/{job_id}", expected)
        service.post(f"/extraction-jobs/{job_id}/retry", status=expected)
        service.post(f"/extraction-jobs/{job_id}/cancel", status=expected)
        service.delete(f"/extraction-jobs/{job_id}", expected)


class TestMaking:
    def test_a_node_is_extracted_when_somebody_asks(self, service: Service) -> None:
        node = service.add()
        service.work()

        made = service.post("/extraction-jobs", {"node_id": node["id"], "priority": 7})

        assert made["enqueued"] is True
        assert made["job"]["stage"] == "extract"
        assert made["job"]["priority"] == 7
        service.work()
        assert service.node(node["id"])["extraction_status"] == "ready"

    def test_an_active_job_is_answered_instead_of_a_second_one(
        self, make_service: MakeService
    ) -> None:
        service = make_service(extraction={"enabled": True})
        node = service.add()

        for stage, name in (("extract", "extraction_job_id"), ("embed", "job_id")):
            made = service.post("/extraction-jobs", {"node_id": node["id"], "stage": stage})
            assert made["enqueued"] is False
            assert made["job"]["id"] == node[name]
        assert len(service.items()) == 2

    def test_a_dead_one_is_revived_with_the_priority_that_is_asked_for(
        self, service: Service
    ) -> None:
        dead = kill(service)
        for _ in range(25):
            # Done since then, so that the dead one is far from the newest.
            service.post(f"/nodes/{dead['id']}/refresh")
            service.work()

        made = service.post("/extraction-jobs", {"node_id": dead["id"], "priority": 3})

        assert made["enqueued"] is True
        assert made["job"]["status"] == "pending"
        assert made["job"]["priority"] == 3

    def test_a_node_without_text_begins_with_its_text(
        self, make_service: MakeService, tmp_path: Path
    ) -> None:
        service = make_service(payload_roots=(str(tmp_path),))
        node = service.post("/nodes", {"payload_ref": (tmp_path / "none.txt").as_uri()})

        made = service.post("/extraction-jobs", {"node_id": node["id"], "stage": "embed"})

        assert made["enqueued"] is False
        assert (made["job"]["id"], made["job"]["stage"]) == (node["job_id"], "text")

    def test_a_node_that_is_not_there_gets_no_job(self, service: Service) -> None:
        for node_id in ("nonsense", "0190b3a2-0000-7000-8000-000000000000"):
            service.post("/extraction-jobs", {"node_id": node_id}, 404)
        service.post("/extraction-jobs", {"node_id": "x", "stage": "text"}, 422)


class TestRetrying:
    def test_a_failed_job_is_retried(self, service: Service) -> None:
        dead = kill(service)
        path = f"/extraction-jobs/{dead['extraction_job_id']}"

        retried = service.post(f"{path}/retry")

        assert (retried["status"], retried["attempts"]) == ("pending", 0)
        assert retried["error_message"] == "it took too long\n\nJob was manually retried."
        service.work()
        assert service.get(path)["status"] == "complete"
        assert service.node(dead["id"])["extraction_status"] == "ready"

    def test_a_job_under_way_is_taken_from_its_worker(self, service: Service) -> None:
        added = service.add()
        claim = claim_all(service)

        retried = service.post(f"/extraction-jobs/{added['job_id']}/retry")

        assert retried["status"] == "pending"
        assert retried["lease_owner"] is None
        assert "manually retried" in retried["error_message"]
        with service.database.write() as tx:
            done = service.app.queue.complete(tx, claim, claim.items, Outcome.DONE)
        assert done == [], "the worker that had it can no longer write"

    @pytest.mark.parametrize("status", ["pending", "retry_pending", "complete", "cancelled"])
    def test_other_jobs_are_not_retried(self, service: Service, status: str) -> None:
        added = service.add()
        set_status(service, added["job_id"], status)

        refused = service.post(f"/extraction-jobs/{added['job_id']}/retry", status=400)

        assert status in refused["detail"]
        assert service.get(f"/extraction-jobs/{added['job_id']}")["status"] == status

    def test_a_dead_job_with_a_successor_is_not_retried_beside_it(self, service: Service) -> None:
        dead = kill(service)
        service.post(f"/nodes/{dead['id']}/refresh")

        refused = service.post(f"/extraction-jobs/{dead['extraction_job_id']}/retry", status=400)

        assert "successor" in refused["detail"]


class TestCancelling:
    def test_a_waiting_job_is_cancelled(self, service: Service) -> None:
        added = service.add()

        cancelled = service.post(f"/extraction-jobs/{added['job_id']}/cancel")

        assert cancelled["status"] == "cancelled"
        service.work()
        assert service.node(added["id"])["embedding_status"] is None
        again = service.post(f"/extraction-jobs/{added['job_id']}/cancel", status=400)
        assert "cancelled" in again["detail"]

    def test_nothing_waits_for_a_cancelled_job(
        self, make_service: MakeService, tmp_path: Path
    ) -> None:
        service = make_service(extraction=SYNC, payload_roots=(str(tmp_path),))
        first = service.add()
        payload = service.post("/nodes", {"payload_ref": (tmp_path / "a.txt").as_uri()})

        for job_id in (first["extraction_job_id"], payload["job_id"]):
            service.post(f"/extraction-jobs/{job_id}/cancel")

        for node_id in (first["id"], payload["id"]):
            node = service.node(node_id)
            assert node["extraction_status"] is node["embedding_status"] is None

    def test_what_else_is_under_way_goes_on(self, make_service: MakeService) -> None:
        service = make_service(extraction={"enabled": True})
        added = service.add()

        service.post(f"/extraction-jobs/{added['extraction_job_id']}/cancel")

        assert service.node(added["id"])["embedding_status"] == "queued"
        service.work()
        assert service.node(added["id"])["embedding_status"] == "ready"
        assert service.node(added["id"])["extraction_status"] is None

    def test_a_worker_that_is_at_it_can_no_longer_write(self, service: Service) -> None:
        added = service.add()
        claim = claim_all(service)

        service.post(f"/extraction-jobs/{added['job_id']}/cancel")

        with service.database.write() as tx:
            assert service.app.queue.complete(tx, claim, claim.items, Outcome.DONE) == []


class TestForgetting:
    def test_an_ended_job_is_forgotten_with_its_history(self, service: Service) -> None:
        dead = kill(service)
        path = f"/extraction-jobs/{dead['extraction_job_id']}"

        service.delete(path)

        service.get(path, 404)
        assert service.count(attempts) == 0
        assert service.node(dead["id"])["text"] == RESUME

    def test_a_job_under_way_is_not_forgotten(self, service: Service) -> None:
        added = service.add()

        refused = service.delete(f"/extraction-jobs/{added['job_id']}", 400)

        assert "cancel it" in refused["detail"]
