"""Before anything is written there has to be room for it, whoever counts."""

from typing import Any

import pytest
from redis import Redis

from penstock.documents import Stage
from penstock.local.valkey import ValkeyServer
from penstock.settings import EmbeddingSettings
from penstock.store.schema import nodes, work_items
from tests.contract.api.service import EVERYTHING, MakeService, Service
from tests.factories import read_rows
from tests.together import run_together

GOOD = {"props": {"text": "sluice gates"}}


@pytest.fixture(params=["database", pytest.param("redis", marks=pytest.mark.full_suite)])
def counted_by(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a service whose room is counted in the database, or in Redis."""
    if request.param == "database":
        return {}
    client: Redis = request.getfixturevalue("redis_client")
    assert client.ping()
    return {"redis_url": request.getfixturevalue("valkey")}


@pytest.fixture
def stopped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a Valkey that is not there any more."""
    server = ValkeyServer(tmp_path_factory.mktemp("stopped"))
    address = server.start()
    server.stop()
    return address


def limit(depth: int = 5000, tenant: int = 2000) -> dict[str, int]:
    return {"queue_max_depth": depth, "tenant_max_pending": tenant}


def refuse(service: Service, path: str, body: Any, status: int = 429) -> dict[str, Any]:
    """The problem of a request that changes nothing."""
    before = read_rows(service.database, *EVERYTHING)
    problem: dict[str, Any] = service.post(path, body, status)
    assert read_rows(service.database, *EVERYTHING) == before
    return problem


def test_a_full_queue_refuses_until_it_has_room(
    make_service: MakeService, counted_by: dict[str, Any]
) -> None:
    service = make_service(embedding=limit(depth=2), **counted_by)
    service.add(tenant_id="acme")
    service.add(tenant_id="globex")

    refused = refuse(service, "/nodes", GOOD)

    assert "total depth" in refused["detail"]
    assert "2" in refused["detail"]
    assert "no room for 1 more" in refused["detail"]
    assert "try again" in refused["detail"]
    service.work()
    service.add()


def test_a_tenant_may_have_only_so_much_under_way(
    make_service: MakeService, counted_by: dict[str, Any]
) -> None:
    service = make_service(embedding=limit(tenant=1), **counted_by)
    service.add(tenant_id="acme")

    refused = refuse(service, "/nodes", {**GOOD, "tenant_id": "acme"})

    assert "tenant" in refused["detail"]
    service.add(tenant_id="globex")
    service.work()
    service.add(tenant_id="acme")


def test_a_batch_without_room_for_all_of_it_is_refused_whole(
    make_service: MakeService, counted_by: dict[str, Any]
) -> None:
    service = make_service(embedding=limit(depth=3), **counted_by)
    service.add()

    refuse(service, "/nodes/batch", {"nodes": [GOOD] * 3, "continue_on_error": True})

    assert service.post("/nodes/batch", {"nodes": [GOOD] * 2})["created"] == 2


def test_the_queue_of_extractions_is_bounded_too(
    make_service: MakeService, counted_by: dict[str, Any]
) -> None:
    service = make_service(embedding=limit(depth=1), **counted_by)
    service.add(extract_before_embed=True)

    refused = refuse(service, "/nodes", {**GOOD, "extract": True})

    assert "extraction" in refused["detail"]
    service.add()


@pytest.mark.parametrize("bound", [limit(depth=20), limit(tenant=20)])
def test_eight_at_once_never_pass_the_limit(
    make_service: MakeService, counted_by: dict[str, Any], bound: dict[str, int]
) -> None:
    service = make_service(embedding=bound, **counted_by)

    def send(number: int) -> list[int]:
        batch = {"nodes": [GOOD] * (1 + number % 3)}
        return [service.http.post("/nodes/batch", json=batch).status_code for _ in range(4)]

    statuses = [status for some in run_together(8, send) for status in some]

    assert set(statuses) == {200, 429}
    waiting = service.count(work_items)
    assert 18 <= waiting <= 20, "no more, and no less than what would still have fitted"
    assert service.count(nodes) == waiting


@pytest.mark.full_suite
def test_a_redis_that_is_down_refuses_and_writes_nothing(
    make_service: MakeService, stopped: str
) -> None:
    service = make_service(redis_url=stopped)

    for path, body in [("/nodes", GOOD), ("/nodes/batch", {"nodes": [GOOD]})]:
        refused = refuse(service, path, body, 503)
        assert "REDIS_URL" in refused["detail"]
    upload = service.http.post("/upload", files=[("files", ("a.txt", b"text"))])
    assert upload.status_code == 503
    assert service.count(nodes) == 0
    assert service.raw_files() == []


@pytest.mark.full_suite
def test_a_redis_that_is_down_is_done_without_where_that_is_allowed(
    make_service: MakeService, stopped: str
) -> None:
    embedding = {"queue_require_redis": False, **limit(depth=2)}
    service = make_service(redis_url=stopped, embedding=embedding)

    answer = service.add()
    service.work()

    assert service.node(answer["id"])["embedding_status"] == "ready"
    service.add()
    service.add()
    refuse(service, "/nodes", GOOD)


def test_what_was_accepted_while_redis_was_away_is_mirrored_when_it_is_back(
    make_service: MakeService, stopped: str, redis_client: Redis, valkey: str
) -> None:
    away = make_service(redis_url=stopped, embedding={"queue_require_redis": False})
    away.add()

    back = make_service(redis_url=valkey)
    back.app.recovery.run()

    assert redis_client.llen("embedding:queue") == 1
    assert back.get("/admin/embedding/status")["queue"] == {"queue": 1, "retry": 0, "dlq": 0}


def test_work_under_way_counts_for_its_tenant_but_not_as_waiting(
    make_service: MakeService, counted_by: dict[str, Any]
) -> None:
    service = make_service(embedding=limit(depth=1, tenant=2), **counted_by)
    service.add()
    with service.database.write() as tx:
        claim = service.app.queue.claim(tx, "a worker", stages=[Stage.EMBED])
    assert len(claim.items) == 1

    service.add()
    refuse(service, "/nodes", GOOD)


def test_limits_are_those_of_the_runbook_unless_told() -> None:
    assert EmbeddingSettings().queue_max_depth == 5000
    assert EmbeddingSettings().tenant_max_pending == 2000


def test_a_refusal_keeps_no_room(make_service: MakeService, counted_by: dict[str, Any]) -> None:
    service = make_service(embedding=limit(depth=3), **counted_by)
    for _ in range(5):
        refuse(service, "/nodes/batch", {"nodes": [GOOD] * 4})

    assert service.post("/nodes/batch", {"nodes": [GOOD] * 3})["created"] == 3
    assert service.count(work_items) == 3
