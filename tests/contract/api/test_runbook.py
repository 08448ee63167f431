"""The commands of the operators' runbooks, word for word, and what they answer."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.store.schema import embeddings, nodes, work_items
from tests.contract.api.service import MakeService, Service, answer_of
from tests.contract.ingestion import make_text

TENANT = "my_tenant"
BROKEN = Fault(ErrorClass.TIMEOUT, "it took too long")
EXTRACTS = {"enabled": True}


def curl(service: Service, path: str, data: str) -> Any:
    """As `curl -X POST … -H "Content-Type: application/json" -d …` sends it."""
    headers = {"Content-Type": "application/json"}
    return answer_of(service.http.post(path, content=data, headers=headers))


def add_nodes(service: Service, *titles: str, **body: Any) -> list[str]:
    return [service.add(make_text(title), **body)["id"] for title in titles]


def statuses(service: Service, name: str, ids: Sequence[str], tenant_id: str = TENANT) -> list[Any]:
    return [service.node(node_id, tenant_id=tenant_id)[name] for node_id in ids]


def lose_jobs(service: Service) -> None:
    """As if nodes had been made while nobody kept jobs."""
    with service.database.write() as tx:
        tx.execute(sa.delete(work_items))


def set_nodes(service: Service, ids: Sequence[str], **values: Any) -> None:
    with service.database.write() as tx:
        tx.execute(sa.update(nodes).where(nodes.c.id.in_(ids)).values(values))


class TestExtraction:
    def test_status(self, make_service: MakeService, valkey: str, redis_client: Redis) -> None:
        del redis_client
        service = make_service(extraction=EXTRACTS, redis_url=valkey)
        add_nodes(service, "a", "b", tenant_id=TENANT)
        add_nodes(service, "c", tenant_id=TENANT, extract=False)
        service.work()
        add_nodes(service, "d", tenant_id="another")

        assert answer_of(service.http.get(f"/admin/extraction/status?tenant_id={TENANT}")) == {
            "enabled": True,
            "mode": "async",
            "tenant_id": TENANT,
            "status_counts": {"ready": 2, "none": 1},
            "queue": {"queue": 1, "retry": 0, "dlq": 0},
        }

    def test_status_says_how_it_is_configured(self, make_service: MakeService) -> None:
        service = make_service(extraction={"mode": "sync"})

        status = service.get("/admin/extraction/status")

        assert (status["enabled"], status["mode"]) == (False, "sync")
        assert status["tenant_id"] == "default"
        assert status["status_counts"] == {}

    @pytest.mark.parametrize(
        "data",
        [
            '{"tenant_id":"my_tenant","only_null_status":true,"limit":2000}',
            '{"tenant_id":"my_tenant","only_null_status":true}',
        ],
    )
    def test_requeue_nodes_that_never_had_extraction(self, service: Service, data: str) -> None:
        ids = add_nodes(service, "a", "b", tenant_id=TENANT)
        others = add_nodes(service, "c")
        ready = add_nodes(service, "d", tenant_id=TENANT, extract=True)
        service.work()

        answer = curl(service, "/admin/extraction/requeue", data)

        assert answer == {"requested": 2, "enqueued": 2, "backfilled": 0}
        service.work()
        assert statuses(service, "extraction_status", [*ids, *ready]) == ["ready"] * 3
        assert statuses(service, "extraction_status", others, "default") == [None]

    @pytest.mark.parametrize("limit", [500, 2000])
    def test_requeue_failed_extractions(self, make_service: MakeService, limit: int) -> None:
        service = make_service(extraction=EXTRACTS)
        ids = add_nodes(service, "a", "b", tenant_id=TENANT)
        service.steps.on(Stage.EXTRACT, "mills", *[BROKEN] * 4)
        service.work()
        assert statuses(service, "extraction_status", ids) == ["failed"] * 2

        data = f'{{"tenant_id":"my_tenant","status":"failed","limit":{limit}}}'
        answer = curl(service, "/admin/extraction/requeue", data)

        assert answer == {"requested": 2, "enqueued": 2, "backfilled": 0}
        service.work()
        assert statuses(service, "extraction_status", ids) == ["ready"] * 2

    def test_force_re_extraction_by_a_new_version(self, make_service: MakeService) -> None:
        old = make_service(extraction={"enabled": True, "version": "1.0.0"})
        ids = add_nodes(old, "a", tenant_id=TENANT)
        old.work()
        assert statuses(old, "extraction_version", ids) == ["1.0.0"]

        new = make_service(extraction={"enabled": True, "version": "2026-02-05.1"})
        curl(new, "/admin/extraction/requeue", '{"tenant_id":"my_tenant","status":"ready"}')
        new.work()

        assert statuses(new, "extraction_version", ids) == ["2026-02-05.1"]

    def test_redis_tells_the_depth_and_clears_its_dead_letters(
        self, make_service: MakeService, valkey: str, redis_client: Redis
    ) -> None:
        service = make_service(extraction={"enabled": True, "mode": "sync"}, redis_url=valkey)
        ids = add_nodes(service, "dead", "alive", tenant_id=TENANT)
        assert depths(redis_client, "extraction") == (2, 0, 0)
        assert redis_client.get(f"extraction:tenant:pending:{TENANT}") == "2"
        assert redis_client.exists(f"extraction:pending:{ids[0]}") == 1

        service.steps.on(Stage.EXTRACT, "dead", BROKEN, BROKEN)
        service.work()

        assert depths(redis_client, "extraction") == (0, 0, 1)
        assert service.get("/admin/extraction/status")["queue"] == {
            "queue": 0,
            "retry": 0,
            "dlq": 1,
        }
        (letter,) = [json.loads(one) for one in redis_client.lrange("extraction:dlq", 0, -1)]
        assert letter.keys() >= {
            "job_id",
            "node_id",
            "tenant_id",
            "priority",
            "attempts",
            "enqueued_at",
            "error",
            "failed_at",
        }
        assert (letter["node_id"], letter["attempts"]) == (ids[0], 2)

        assert redis_client.delete("extraction:dlq") == 1
        service.app.recovery.run()

        assert depths(redis_client, "extraction") == (0, 0, 0), "cleared is cleared"
        listed = service.get("/admin/extraction/dlq", tenant_id=TENANT)["jobs"]
        assert [job["node_id"] for job in listed] == [ids[0]]
        service.post("/admin/extraction/dlq/replay", {"tenant_id": TENANT})
        assert depths(redis_client, "extraction") == (1, 0, 0)
        service.work()
        assert statuses(service, "extraction_status", ids) == ["ready", "ready"]


class TestEmbedding:
    QUEUED = (
        '{"tenant_id":"default","status":"queued","only_missing_embedding":true,'
        '"backfill_ready":true,"limit":2000}'
    )
    FAILED = (
        '{"tenant_id":"default","status":"failed","only_missing_embedding":true,'
        '"backfill_ready":true,"limit":2000}'
    )

    def test_status(self, make_service: MakeService, valkey: str, redis_client: Redis) -> None:
        service = make_service(redis_url=valkey)
        add_nodes(service, "a", "b")
        service.work()
        service.post("/nodes", {})
        service.work()
        add_nodes(service, "c")

        assert answer_of(service.http.get("/admin/embedding/status")) == {
            "enabled": True,
            "mode": "async",
            "tenant_id": "default",
            "status_counts": {"ready": 2, "skipped": 1, "queued": 1},
            "queue": {"queue": 1, "retry": 0, "dlq": 0},
        }
        assert depths(redis_client, "embedding") == (1, 0, 0)

    def test_status_of_embedding_inside_the_request(self, make_service: MakeService) -> None:
        service = make_service(embedding={"EMBEDDING_ASYNC": False})

        assert service.get("/admin/embedding/status")["mode"] == "sync"

    def test_nodes_are_queued_but_the_queue_is_empty(self, service: Service) -> None:
        whole, lost = add_nodes(service, "a", "b")
        service.work()
        again = add_nodes(service, "c")
        lose_jobs(service)
        set_nodes(service, [whole, lost], embedding_status="queued")
        with service.database.write() as tx:
            seq = tx.execute(sa.select(nodes.c.seq).where(nodes.c.id == lost)).scalar_one()
            tx.execute(sa.delete(embeddings).where(embeddings.c.seq == seq))

        answer = curl(service, "/admin/embedding/requeue", self.QUEUED)

        assert answer == {"requested": 3, "enqueued": 2, "backfilled": 1}
        assert statuses(service, "embedding_status", [whole], "default") == ["ready"]
        service.work()
        assert statuses(service, "embedding_status", [lost, *again], "default") == ["ready"] * 2
        assert statuses(service, "has_embedding", [lost, *again], "default") == [True, True]
        nothing = {"requested": 0, "enqueued": 0, "backfilled": 0}
        assert curl(service, "/admin/embedding/requeue", self.QUEUED) == nothing

    def test_nodes_that_wait_for_their_turn_are_not_doubled(self, service: Service) -> None:
        add_nodes(service, "a", "b")

        answer = curl(service, "/admin/embedding/requeue", self.QUEUED)

        assert answer == {"requested": 2, "enqueued": 0, "backfilled": 0}
        assert len(service.items()) == 2

    def test_nodes_are_ready_but_have_no_embedding(self, service: Service) -> None:
        ids = add_nodes(service, "a", "b")
        service.work()
        with service.database.write() as tx:
            tx.execute(sa.delete(embeddings))
        assert statuses(service, "has_embedding", ids, "default") == [False, False]

        data = '{"status":"ready","only_missing_embedding":true}'
        answer = curl(service, "/admin/embedding/requeue", data)
        service.work()

        assert answer == {"requested": 2, "enqueued": 2, "backfilled": 0}
        assert statuses(service, "has_embedding", ids, "default") == [True, True]

    def test_requeue_all_failed_nodes(
        self, make_service: MakeService, valkey: str, redis_client: Redis
    ) -> None:
        service = make_service(redis_url=valkey)
        ids = add_nodes(service, "a", "b")
        service.steps.on(Stage.EMBED, "mills", *[RuntimeError("no memory")] * 50)
        service.work()
        service.steps.trouble.clear()
        assert statuses(service, "embedding_status", ids, "default") == ["failed"] * 2
        assert depths(redis_client, "embedding") == (0, 0, 2)

        answer = curl(service, "/admin/embedding/requeue", self.FAILED)

        assert answer == {"requested": 2, "enqueued": 2, "backfilled": 0}
        assert depths(redis_client, "embedding")[:2] == (2, 0)
        service.work()
        assert statuses(service, "embedding_status", ids, "default") == ["ready"] * 2
        assert redis_client.delete("embedding:dlq") in (0, 1)
        service.app.recovery.run()
        assert depths(redis_client, "embedding") == (0, 0, 0)


def depths(client: Redis, queue: str) -> tuple[Any, Any, Any]:
    """LLEN queue, ZCARD retry, LLEN dlq."""
    return (
        client.llen(f"{queue}:queue"),
        client.zcard(f"{queue}:retry"),
        client.llen(f"{queue}:dlq"),
    )
