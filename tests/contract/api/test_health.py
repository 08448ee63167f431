"""Whether the service lives, is ready, and how it is doing."""

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.local.valkey import ValkeyServer
from penstock.queue.heartbeat import Heartbeat
from penstock.store.schema import model_calls, work_items
from tests.contract.api.service import MakeService, Service, problem_of
from tests.contract.ingestion import make_text

BROKEN = Fault(ErrorClass.TIMEOUT, "it took too long")


def not_ready(service: Service) -> dict[str, Any]:
    """The problem of a service that lives, but cannot be used."""
    assert service.get("/health")["status"] == "healthy"
    problem = problem_of(service.http.get("/readyz"), 503)
    (broken,) = [name for name, check in problem["checks"].items() if not check["ok"]]
    assert problem["detail"].startswith(f"{broken}: ")
    return problem


def test_a_service_that_lives_says_so(service: Service) -> None:
    assert service.get("/health") == {"status": "healthy", "service": "penstock-api"}


def test_a_service_whose_parts_can_be_used_is_ready(make_service: MakeService, valkey: str) -> None:
    service = make_service(redis_url=valkey)

    ready = service.get("/readyz")

    assert ready == {
        "status": "ready",
        "checks": {name: {"ok": True} for name in ("database", "migrations", "raw_store", "redis")},
    }


def test_a_database_that_does_not_answer_is_named(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    def refuse(*_: Any) -> Any:
        raise OperationalError("connect", {}, Exception("connection refused"))

    monkeypatch.setattr(service.app.database.engine, "connect", refuse)
    problem = problem_of(service.http.get("/readyz"), 503)
    monkeypatch.undo()

    assert problem["checks"]["database"]["ok"] is False
    assert "connection refused" in problem["detail"]
    assert service.get("/readyz")["status"] == "ready", "it is back"


def test_a_schema_of_another_version_is_named(service: Service) -> None:
    with service.database.write() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))

    problem = not_ready(service)

    assert problem["checks"]["migrations"]["ok"] is False
    assert "penstock migrate" in problem["detail"]


@pytest.mark.full_suite
def test_a_redis_that_does_not_answer_is_named(make_service: MakeService, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey") as server:
        service = make_service(redis_url=server.start())
        assert service.get("/readyz")["status"] == "ready"

    problem = not_ready(service)

    assert problem["checks"]["redis"]["ok"] is False
    assert "REDIS_URL" in problem["detail"]


def test_a_raw_store_that_cannot_be_written_is_named(
    make_service: MakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service = make_service(raw_folder=Path("/proc/nowhere"))

    with caplog.at_level(logging.WARNING):
        problem = not_ready(service)

    assert problem["checks"]["raw_store"]["ok"] is False
    assert "raw bytes cannot be stored" in problem["detail"]
    # Whoever asks needs no token: where it lies is for the log.
    assert "/proc" not in str(problem)
    assert "/proc/nowhere" in caplog.text


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EROFS, None])
@pytest.mark.parametrize("broken", ["database", "raw_store"])
def test_a_disk_that_takes_no_more_is_named_without_its_folder(
    make_service: MakeService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    trouble: int | None,
) -> None:
    service = make_service(raw_folder=tmp_path / "raw")
    assert service.get("/readyz")["status"] == "ready"
    file = str(sa.make_url(service.app.database.url).database)
    folder = Path(file).parent if broken == "database" else tmp_path / "raw"
    write, usage = Path.write_bytes, shutil.disk_usage

    def write_bytes(path: Path, content: bytes) -> int:
        if trouble is not None and path.parent == folder:
            raise OSError(trouble, os.strerror(trouble), str(path))
        return write(path, content)

    def disk_usage(path: Path) -> Any:
        found = usage(path)
        return found._replace(free=1000) if trouble is None and path == folder else found

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    problem = not_ready(service)

    assert problem["checks"][broken]["ok"] is False
    assert os.strerror(trouble or errno.ENOSPC) in problem["detail"]
    assert str(folder) not in str(problem)
    assert str(tmp_path) not in str(problem)
    monkeypatch.undo()
    assert service.get("/readyz")["status"] == "ready", "it is mended"
    assert [one.name for one in folder.iterdir() if one.name.endswith(".probe")] == []


def test_the_metrics_are_what_prometheus_reads(make_service: MakeService) -> None:
    service = make_service(extraction={"enabled": True, "mode": "sync"})
    service.steps.on(Stage.EXTRACT, "dead", BROKEN, BROKEN)
    service.add(make_text("dead"))
    service.add(make_text("done"))
    service.work()
    service.add(make_text("waits"))
    with service.database.write() as tx:
        call = {
            "tenant_id": "default",
            "node_id": service.items()[0].node_id,
            "model": 'a "model"\n',
            "outcome": "ok",
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "seconds": 0.5,
            "cost_usd": 0.25,
            "called_at": tx.now,
        }
        tx.execute(sa.insert(model_calls).values(call))

    response = service.http.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert samples["penstock_queue_depth", "extraction"] == 1
    assert samples["penstock_queue_depth", "embedding"] == 0
    assert samples["penstock_queue_dlq", "extraction"] == 1
    assert samples["penstock_queue_retry", "extraction"] == 0
    assert samples["penstock_queue_processing", "extraction"] == 0
    assert samples["penstock_queue_oldest_pending_seconds", "extraction"] > 0
    assert samples["penstock_queue_done_per_second", "embedding"] == pytest.approx(2 / 60)
    assert samples["penstock_stage_latency_seconds", "0.5", "embedding"] >= 0
    assert samples["penstock_failed_attempts_total", "timeout"] == 2
    assert samples["penstock_items_completed_total",] == 3
    assert samples["penstock_model_calls_total", 'a "model"\n', "ok"] == 1
    assert samples["penstock_model_tokens_total", 'a "model"\n', "ok", "prompt"] == 10
    assert samples["penstock_model_cost_usd_total", 'a "model"\n', "ok"] == 0.25
    assert samples["penstock_fallback_rate",] == 0
    assert samples["penstock_workers",] == 0
    assert samples["penstock_active_runs",] == 0


def test_the_metrics_of_an_empty_store_are_zeros(service: Service) -> None:
    families = list(text_string_to_metric_families(service.http.get("/metrics").text))

    values = {sample.value for family in families for sample in family.samples}
    assert values == {0.0}
    assert {"penstock_queue_depth", "penstock_workers"} <= {family.name for family in families}


def test_living_workers_are_counted(service: Service) -> None:
    with Heartbeat(service.database, service.app.queue, every_seconds=20):
        assert "\npenstock_workers 1.0\n" in service.http.get("/metrics").text


def test_the_figures_agree_with_redis_when_nothing_moves(
    make_service: MakeService, valkey: str, redis_client: Redis
) -> None:
    service = make_service(redis_url=valkey)
    for name in "abc":
        service.add(make_text(name))

    assert redis_client.llen("embedding:queue") == 3
    assert 'penstock_queue_depth{queue="embedding"} 3.0' in service.http.get("/metrics").text
    assert service.count(work_items) == 3
