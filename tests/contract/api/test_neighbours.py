"""What one caller does, or one setting says, costs nobody else anything."""

from typing import Any

import pytest

from penstock.documents import Stage
from penstock.errors import ConfigurationError
from penstock.settings import load_settings
from penstock.store.schema import work_items
from tests.contract.api.service import RESUME, MakeService, Service


def s3_settings(access: Any) -> dict[str, Any]:
    return {
        "s3_endpoint_url": access.endpoint_url,
        "s3_region": access.region,
        "s3_access_key_id": access.access_key_id,
        "s3_secret_access_key": access.secret_access_key,
    }


def test_a_bucket_that_a_caller_made_up_pauses_nobody(
    make_service: MakeService, s3_access: Any
) -> None:
    service = make_service(**s3_settings(s3_access))
    bad = service.post(
        "/nodes", {"payload_ref": "s3://no-such-bucket-at-all/key.txt", "tenant_id": "evil"}
    )
    upload = service.http.post("/upload", files=[("files", ("a.txt", RESUME.encode()))]).json()[
        "results"
    ][0]
    service.work()
    assert service.node(upload["id"])["embedding_status"] == "ready"
    assert (
        service.get("/extraction-jobs", stage="text", tenant_id="evil")["jobs"][0]["status"]
        == "failed"
    )
    assert bad


def test_a_node_whose_payload_cannot_be_read_does_not_stay_queued(service: Service) -> None:
    node = service.post("/nodes", {"payload_ref": "file:///etc/passwd"})
    service.work()
    shown = service.node(node["id"])
    assert shown["embedding_status"] in ("failed", "skipped"), shown["embedding_status"]
    assert shown["extraction_status"] is None, "nobody asked for an extraction"


@pytest.mark.parametrize("count", [80, 150, 400])
def test_long_queries_can_be_searched(service: Service, count: int) -> None:
    service.get("/search", q=" ".join(f"w{n}" for n in range(count)))


def test_a_short_secret_is_not_told() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(api_jwt_secret="hunter2")
    assert "hunter2" not in str(caught.value)


def test_redis_down_is_ready_where_it_is_not_required(make_service: MakeService) -> None:
    service = make_service(
        redis_url="redis://127.0.0.1:1/0", embedding={"queue_require_redis": False}
    )
    service.add()
    service.get("/readyz")


def test_neighbours_of_a_deleted_node_pay_nothing(service: Service) -> None:
    gone, stays = service.add("one"), service.add("two")

    class Deleting:
        def started(self, items: Any) -> None:
            if len(items) == 2:
                service.delete(f"/nodes/{gone['id']}")

        def completed(self, item: Any, result: Any) -> None: ...
        def failed(self, verdict: Any) -> None: ...

    with service.database.write() as tx:
        claim = service.app.queue.claim(tx, "w", stages=[Stage.EMBED])
    service.app.processor(service.steps).observed_by(Deleting()).process(claim)
    (item,) = service.items(work_items.c.id == stays["job_id"])
    assert item.attempts == 0, item.error_message
