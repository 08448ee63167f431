"""Jobs many at once, and those that workers are at, over HTTP."""

from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Outcome
from penstock.store.schema import work_items
from tests.contract.api.service import EVERYTHING, MakeService, Service
from tests.contract.api.test_jobs import claim_all
from tests.contract.ingestion import make_text
from tests.factories import read_rows

EXTRACTS = {"enabled": True, "mode": "sync"}
VERBS = {"retry": "retried", "cancel": "cancelled"}


@pytest.fixture
def service(make_service: MakeService) -> Service:
    return make_service(extraction=EXTRACTS)


def kill(service: Service, *titles: str, **body: Any) -> list[int]:
    """Extractions that are dead; their ids."""
    broken = Fault(ErrorClass.TIMEOUT, "it took too long")
    service.steps.on(Stage.EXTRACT, "mills", *[broken] * 2 * len(titles))
    added = [service.add(make_text(title), **body) for title in titles]
    service.work()
    return [one["extraction_job_id"] for one in added]


def act(service: Service, verb: str, body: Any, status: int = 200) -> dict[str, Any]:
    answer: dict[str, Any] = service.post(f"/extraction-jobs/{verb}", body, status)
    return answer


def status_of(service: Service, job_id: int) -> str:
    return str(service.get(f"/extraction-jobs/{job_id}")["status"])


def test_named_jobs_are_retried_and_the_others_refused_each_with_its_reason(
    service: Service,
) -> None:
    dead, also_dead = kill(service, "a", "b")
    waiting = service.add(make_text("waiting"))["extraction_job_id"]

    answer = act(service, "retry", {"ids": [dead, waiting, 4711, also_dead]})

    assert answer == {
        "requested": 4,
        "retried": 2,
        "refused": [
            {"id": 4711, "reason": "there is no job 4711"},
            {
                "id": waiting,
                "reason": f"job {waiting} is pending: only a job that is processing or failed can "
                "be retried",
            },
        ],
    }
    again = service.get(f"/extraction-jobs/{dead}")
    assert again["error_message"] == "it took too long\n\nJob was manually retried."
    assert len(again["history"]) == 2
    service.work()
    assert status_of(service, dead) == status_of(service, also_dead) == "complete"


def test_the_worker_of_a_retried_job_is_fenced_out(service: Service) -> None:
    added = service.add()
    claim = claim_all(service)

    answer = act(service, "retry", {"status": "processing"})

    assert answer == {"requested": 1, "retried": 1, "refused": []}
    with service.database.write() as tx:
        assert service.app.queue.complete(tx, claim, claim.items, Outcome.DONE) == []
    assert status_of(service, added["extraction_job_id"]) == "pending"


def test_jobs_are_cancelled_and_nothing_waits_for_them(service: Service) -> None:
    added = [service.add(make_text(title)) for title in "ab"]
    ids = [one["extraction_job_id"] for one in added]

    answer = act(service, "cancel", {"ids": ids})
    again = act(service, "cancel", {"ids": ids})

    assert answer == {"requested": 2, "cancelled": 2, "refused": []}
    assert [one["id"] for one in again["refused"]] == ids
    assert all("cancelled already" in one["reason"] for one in again["refused"])
    for one in added:
        node = service.node(one["id"])
        assert node["extraction_status"] is node["embedding_status"] is None


def test_a_filter_takes_what_the_listing_shows_for_it(service: Service) -> None:
    dead = kill(service, "a", "b")
    with service.database.write() as tx:
        embeds = work_items.c.stage == Stage.EMBED
        tx.execute(sa.update(work_items).where(embeds).values(status="failed"))
    listed = service.get("/extraction-jobs", status="failed")["jobs"]
    assert [job["id"] for job in listed] == dead[::-1]

    assert act(service, "retry", {"status": "failed"})["retried"] == 2
    assert {job["status"] for job in service.get("/extraction-jobs", stage="embed")["jobs"]} == {
        "failed"
    }
    answer = act(service, "retry", {"stage": "embed", "limit": 1})
    assert answer == {"requested": 1, "retried": 1, "refused": []}
    assert act(service, "retry", {"stage": "embed", "limit": 10**30})["retried"] == 1


def test_jobs_of_every_stage_may_be_named(service: Service) -> None:
    upload = service.http.post("/upload", files=[("files", ("a.txt", b"a"))]).json()
    text = upload["results"][0]["job_id"]
    extract = service.add()["extraction_job_id"]

    assert act(service, "cancel", {"ids": [text, extract]})["cancelled"] == 2


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("body", [{}, {"limit": 5}, {"tenant_id": "default"}, {"ids": None}])
def test_neither_ids_nor_a_filter_is_never_everything(
    service: Service, verb: str, body: Any
) -> None:
    service.add()
    claim_all(service)
    before = read_rows(service.database, *EVERYTHING)

    refused = act(service, verb, body, 400)

    assert "say which jobs" in refused["detail"]
    assert read_rows(service.database, *EVERYTHING) == before


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_list_names_nothing(service: Service, verb: str) -> None:
    service.add()

    nothing = {"requested": 0, VERBS[verb]: 0, "refused": []}
    assert act(service, verb, {"ids": []}) == nothing
    assert act(service, verb, {"ids": [], "status": "pending"}) == nothing


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "body",
    [
        {"ids": [0]},
        {"ids": [2**63]},
        {"ids": ["x"]},
        {"ids": list(range(1, 2002))},
        {"run_id": 2**63},
        {"status": "sleeping"},
        {"stage": "crawl"},
        {"error_class": "'; --"},
        {"status": "failed", "limit": 0},
        {"stauts": "failed"},
    ],
)
def test_what_cannot_be_meant_is_refused(service: Service, verb: str, body: Any) -> None:
    act(service, verb, body, 422)


def test_a_node_that_is_not_there_is_told(service: Service) -> None:
    act(service, "retry", {"node_id": "nonsense"}, 404)


def test_another_tenants_jobs_are_as_if_they_were_not_there(service: Service) -> None:
    [theirs] = kill(service, "theirs", tenant_id="globex")
    service.add(make_text("live"), tenant_id="globex")
    claim_all(service)
    before = read_rows(service.database, *EVERYTHING)

    for verb, done in VERBS.items():
        answer = act(service, verb, {"ids": [theirs]})
        reason = f"there is no job {theirs}"
        refused = [{"id": theirs, "reason": reason}]
        assert answer == {"requested": 1, done: 0, "refused": refused}
        for status in ("failed", "processing"):
            assert act(service, verb, {"status": status})["requested"] == 0
    assert service.get("/extraction-jobs/stuck") == {"jobs": [], "processing": 0}
    assert read_rows(service.database, *EVERYTHING) == before
    assert service.get("/extraction-jobs/stuck", tenant_id="globex")["processing"] == 1
    assert act(service, "retry", {"ids": [theirs], "tenant_id": "globex"})["retried"] == 1


def test_jobs_under_way_are_shown_with_who_holds_them(service: Service) -> None:
    added = [service.add(make_text(title)) for title in "ab"]
    claim_all(service)
    with service.database.write() as tx:
        job = sa.update(work_items).where(work_items.c.id == added[1]["extraction_job_id"])
        tx.execute(job.values(started_at=work_items.c.created_at))

    found = service.get("/extraction-jobs/stuck")

    assert found["processing"] == 2
    assert [job["id"] for job in found["jobs"]] == [
        added[1]["extraction_job_id"],
        added[0]["extraction_job_id"],
    ]
    assert {job["owner"] for job in found["jobs"]} == {"a worker"}
    assert {job["expired"] for job in found["jobs"]} == {False}
    assert len(service.get("/extraction-jobs/stuck", limit=1)["jobs"]) == 1
    assert service.get("/extraction-jobs/stuck", stage="embed") == {"jobs": [], "processing": 0}
    quiet = service.get("/extraction-jobs/stuck", min_inactive_seconds=3600)
    assert quiet == {"jobs": [], "processing": 2}
    assert service.get("/extraction-jobs/stuck", min_running_seconds=3600)["jobs"] == []


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_how_long_is_a_number_of_seconds(service: Service, seconds: str) -> None:
    service.get("/extraction-jobs/stuck", 422, min_inactive_seconds=seconds)
    service.get("/extraction-jobs/stuck", 422, min_running_seconds=seconds)
