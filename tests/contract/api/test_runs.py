"""Runs over HTTP: listed, shown, started, aborted."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from entrypoints.api import prefect_runs
from entrypoints.api import starting as routes
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass, ServiceError
from penstock.local.prefect_server import ServerAddress, describe_refusal
from penstock.runs.lifecycle import pause_run
from penstock.sources.catalogue import SourceSettings, put_source
from penstock.store.database import Database
from penstock.store.schema import runs, sources, work_items
from tests.contract.api.service import MakeService, Service
from tests.contract.ingestion import Workplace, make_text
from tests.factories import TENANT

OURS = {"tenant_id": TENANT}
# Nobody listens there, and nobody is asked before a run has begun.
NO_S3 = {
    "s3_endpoint_url": "http://127.0.0.1:1",
    "s3_region": "us-east-1",
    "s3_access_key_id": "key",
    "s3_secret_access_key": "secret",
}


@pytest.fixture
def workplace(database: Database, tmp_path: Path) -> Any:
    workplace = Workplace(database, tmp_path / "work")
    yield workplace
    workplace.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The runs that a Prefect server was asked to do; there is none."""
    asked: list[int] = []

    def start(run: Any) -> str:
        asked.append(run.id)
        return f"flow-run-{run.id}"

    monkeypatch.setattr(routes, "start_ingest", start)
    return asked


@pytest.fixture
def no_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Any) -> str:
        raise ServiceError("Prefect cannot be asked: set PREFECT_API_URL")

    monkeypatch.setattr(routes, "start_ingest", start)


@contextmanager
def refused(monkeypatch: pytest.MonkeyPatch, kind: str, status: int) -> Iterator[None]:
    """Have Prefect, whose address holds credentials, fail at every request."""
    import httpx
    from prefect.exceptions import PrefectException, PrefectHTTPStatusError
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = "http://ops:hunter2@127.0.0.1:1/api"
    request = httpx.Request("GET", address)
    answer = httpx.Response(status, request=request)
    errors: dict[str, Exception] = {
        "status": PrefectHTTPStatusError(
            f"{status} for url {address}", request=request, response=answer
        ),
        "connection": httpx.ConnectError(f"no way to {address}"),
        "prefect": PrefectException(f"no way to {address}"),
    }

    def start(*_: Any) -> str:
        raise errors[kind]

    monkeypatch.setattr(prefect_runs, "_start", start)
    with temporary_settings({PREFECT_API_URL: address}):
        yield


def ingest(workplace: Workplace, *names: str) -> int:
    for name in names:
        workplace.write(f"{name}.txt", make_text(name))
    return workplace.ingest().run.id


class TestShowing:
    def test_runs_are_listed_newest_first(self, service: Service, workplace: Workplace) -> None:
        first, second = ingest(workplace, "a", "b"), ingest(workplace, "c")

        listed = service.get("/runs", **OURS)

        assert [run["run_id"] for run in listed] == [second, first]
        assert listed[1]["status"] == "finished"
        assert listed[1]["counts"]["ready"] == 2
        assert listed[0]["counts"]["skipped"] == 2
        assert [run["run_id"] for run in service.get("/runs", limit=1, **OURS)] == [second]
        assert service.get("/runs") == []

    def test_a_run_tells_what_became_of_each_document(
        self, service: Service, workplace: Workplace
    ) -> None:
        broken = Fault(ErrorClass.CORRUPTION, "it is broken")
        workplace.steps.on(Stage.TEXT, "bad", broken)
        run_id = ingest(workplace, "good", "bad")

        shown = service.get(f"/runs/{run_id}", **OURS)

        assert shown["counts"]["ready"] == shown["counts"]["error"] == 1
        assert [one["status"] for one in shown["documents"]] == ["error", "ready"]
        (failures,) = shown["failures"]
        assert failures["error_class"] == "corruption"
        assert service.get(f"/runs/{run_id}", documents=0, **OURS)["documents"] == []

    def test_a_run_that_is_not_there(self, service: Service) -> None:
        for path in ("/runs/1", "/runs/1/logs", "/runs/1/events"):
            service.get(path, 404)
        service.post("/runs/1/abort", status=404)
        for odd in ("0", "x", str(10**30)):
            service.get(f"/runs/{odd}", 422)

    def test_the_log_comes_in_pages(self, service: Service, workplace: Workplace) -> None:
        run_id = ingest(workplace, "a", "b", "c")
        whole = service.get(f"/runs/{run_id}/logs", **OURS)["lines"]
        seen: list[int] = []
        after = 0

        while lines := service.get(f"/runs/{run_id}/logs", after=after, limit=2, **OURS)["lines"]:
            seen += [line["seq"] for line in lines]
            after = lines[-1]["seq"]

        assert seen == [line["seq"] for line in whole] == sorted(set(seen))
        assert service.get(f"/runs/{run_id}/logs", after=after, **OURS) == {
            "lines": [],
            "next_after": after,
        }

    def test_the_log_is_narrowed_by_stage_and_level(
        self, service: Service, workplace: Workplace
    ) -> None:
        workplace.steps.on(Stage.TEXT, "bad", Fault(ErrorClass.CORRUPTION, "it is broken"))
        run_id = ingest(workplace, "good", "bad")

        def stages(**chosen: Any) -> set[str]:
            lines = service.get(f"/runs/{run_id}/logs", **chosen, **OURS)["lines"]
            return {line["stage"] for line in lines}

        assert stages(stage=["EMB", "llm"]) == {"EMB", "LLM"}
        assert stages(level="ERROR") == {"TXT"}
        for wrong in ({"stage": "SLEEP"}, {"level": "LOUD"}):
            service.get(f"/runs/{run_id}/logs", 400, **wrong, **OURS)
            service.get(f"/runs/{run_id}/events", 400, **wrong, **OURS)


class TestAborting:
    def test_what_is_not_done_is_cancelled_and_counted(
        self, service: Service, workplace: Workplace
    ) -> None:
        workplace.write("a.txt", make_text("a"))
        lease = workplace.open()
        workplace.admit(lease)

        aborted = service.post(f"/runs/{lease.run.id}/abort", params=OURS)

        assert aborted["status"] == "aborted"
        assert aborted["counts"]["pending"] == 1
        assert {item.status for item in service.items()} == {"cancelled"}
        again = service.post(f"/runs/{lease.run.id}/abort", params=OURS, status=400)
        assert "aborted already" in again["detail"]

    def test_nobody_aborts_the_run_of_another_tenant(
        self, service: Service, workplace: Workplace
    ) -> None:
        lease = workplace.open()

        service.post(f"/runs/{lease.run.id}/abort", status=404)

        assert service.get(f"/runs/{lease.run.id}", **OURS)["status"] == "ingesting"


class TestStarting:
    SITE = "https://careers.example.com/"

    def test_a_run_is_recorded_and_handed_to_prefect(
        self, service: Service, started: list[int]
    ) -> None:
        body = {"source": self.SITE, "profile": "job_posting", "documents": ["a"]}

        run = service.post("/runs", body, 202)

        assert started == [run["run_id"]]
        assert run["status"] == "pending"
        assert run["flow_run_id"] == f"flow-run-{run['run_id']}"
        assert service.get(f"/runs/{run['run_id']}")["status"] == "pending"

    def test_one_run_of_a_source_is_active_at_a_time(
        self, service: Service, started: list[int]
    ) -> None:
        first = service.post("/runs", {"source": self.SITE}, 202)

        refused = service.post("/runs", {"source": self.SITE}, 409)

        assert refused["active_run_id"] == first["run_id"]
        assert started == [first["run_id"]]

    @pytest.mark.usefixtures("no_prefect")
    def test_a_run_that_cannot_be_started_does_not_stand_in_the_way(self, service: Service) -> None:
        for _ in range(2):
            refused = service.post("/runs", {"source": self.SITE}, 503)
            assert "PREFECT_API_URL" in refused["detail"]
        assert {run["status"] for run in service.get("/runs")} == {"aborted"}

    @pytest.mark.usefixtures("no_prefect")
    def test_a_paused_run_keeps_its_work_when_it_cannot_be_started(
        self, service: Service, workplace: Workplace
    ) -> None:
        workplace.write("a.txt", make_text("a"))
        lease = workplace.open()
        workplace.admit(lease)
        pause_run(service.database, lease, "no key")

        service.post("/runs", {"source": lease.run.location, **OURS}, 503)

        assert service.get(f"/runs/{lease.run.id}", **OURS)["status"] == "ingesting"
        assert service.count(work_items, work_items.c.status == "pending") == 1

    def test_without_a_prefect_server_none_is_started_for_it(self, service: Service) -> None:
        refused = service.post("/runs", {"source": self.SITE}, 503)

        assert "PREFECT_API_URL" in refused["detail"]

    @pytest.mark.parametrize("kind", ["status", "connection", "prefect"])
    def test_what_opens_prefect_is_not_told_to_those_who_start_runs(
        self, service: Service, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        with refused(monkeypatch, kind, 500):
            told = [service.post("/runs", {"source": self.SITE}, 503)["detail"]]
        told += [service.get(f"/runs/{run['run_id']}") for run in service.get("/runs")]

        assert len(told) == 2
        assert "cannot be asked" in told[0]
        assert not [one for one in told if "hunter2" in str(one) or "ops" in str(one)]
        assert "PREFECT_API_URL" in told[0]
        assert kind != "status" or "500" in told[0]

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_prefect_server_that_lets_us_not_in_says_what_to_set(
        self, service: Service, monkeypatch: pytest.MonkeyPatch, status: int
    ) -> None:
        with refused(monkeypatch, "status", status):
            detail = service.post("/runs", {"source": self.SITE}, 503)["detail"]

        assert describe_refusal() in detail

    @pytest.mark.parametrize(
        "source", ["/etc/passwd", "/dev/zero", "file:///etc/passwd", ".", "nobody-knows", "~"]
    )
    def test_files_of_the_server_are_nobodys_business(
        self, service: Service, started: list[int], source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def look(*_: Any) -> Any:
            raise AssertionError("nothing is looked at")

        monkeypatch.setattr(service.app.sources.__class__, "recognise", look)

        refused = service.post("/runs", {"source": source}, 400)

        assert "penstock source add" in refused["detail"]
        assert started == []
        assert service.count(runs) == service.count(sources) == 0

    @pytest.mark.parametrize("source", ["s3://kept/store/raw/victim/", "s3://bb/docs/", "S3://bb"])
    def test_buckets_that_only_the_server_can_open_are_nobodys_business(
        self, make_service: MakeService, started: list[int], source: str
    ) -> None:
        service = make_service(raw_store="s3://kept/store", **NO_S3)

        refused = service.post("/runs", {"source": source}, 400)

        assert "PENSTOCK_API_S3_PREFIXES" in refused["detail"]
        assert started == []
        assert service.count(runs) == service.count(sources) == 0

    def test_places_in_s3_are_open_to_those_whom_the_operator_allowed_them(
        self, make_service: MakeService, started: list[int]
    ) -> None:
        allowed = ("s3://shared/", "acme=s3://bb/docs/")
        service = make_service(api_s3_prefixes=allowed, **NO_S3)

        def start(source: str, tenant_id: str, status: int) -> None:
            service.post("/runs", {"source": source, "tenant_id": tenant_id}, status)

        start("s3://shared/a/", "globex", 202)
        start("s3://bb/docs/cvs/", "acme", 202)
        start("s3://bb/docs/cvs/", "globex", 400)
        for elsewhere in (
            "s3://bb/",
            "s3://bb/doc",
            "s3://bb/docs",
            "s3://bb/docs/../",
            "s3://shared/../bb/",
            "s3://cc/docs/",
        ):
            start(elsewhere, "acme", 400)
        assert len(started) == 2

    def test_what_is_allowed_does_not_open_the_raw_store(
        self, make_service: MakeService, started: list[int]
    ) -> None:
        service = make_service(
            raw_store="s3://kept/store", api_s3_prefixes=("s3://kept/",), **NO_S3
        )

        for source in ("s3://kept/", "s3://kept/store/raw/victim/", "s3://kept//store/"):
            refused = service.post("/runs", {"source": source}, 400)
            assert "raw store" in refused["detail"]
        service.post("/runs", {"source": "s3://kept/docs/"}, 202)
        assert len(started) == 1

    def test_a_bucket_that_the_operator_named_is_ingested_by_its_name(
        self, make_service: MakeService, started: list[int]
    ) -> None:
        service = make_service(**NO_S3)
        for name in ("papers", "s3://bb/other/"):
            with service.database.write() as tx:
                location = "s3://bb/papers/" if name == "papers" else name
                put_source(tx, "default", name, "s3", location, SourceSettings())

        run = service.post("/runs", {"source": "papers"}, 202)

        assert started == [run["run_id"]]
        # Whoever started a run of an address has not been given it by that.
        service.post("/runs", {"source": "s3://bb/other/"}, 400)

    def test_what_cannot_be_a_source_is_refused(self, service: Service, started: list[int]) -> None:
        service.post("/runs", {"source": ""}, 422)
        service.post("/runs", {"source": "https://user:secret@example.com"}, 400)
        service.post("/runs", {"source": self.SITE, "profile": "recipe"}, 400)
        assert started == []


def test_runs_are_started_in_a_real_prefect(
    service: Service, prefect_server: ServerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
    from prefect.states import Crashed, Suspended

    # Others deploy on this server too.
    name = uuid.uuid4().hex
    monkeypatch.setattr(prefect_runs, "DEPLOYMENT", f"ingest/{name}")
    body = {"source": "https://careers.example.com/"}
    server = {
        PREFECT_API_URL: prefect_server.api_url,
        PREFECT_API_AUTH_STRING: prefect_server.auth_string,
    }
    with (
        temporary_settings(server),
        get_client(sync_client=True) as client,
    ):
        assert "deployments.install" in service.post("/runs", body, 503)["detail"]
        client.create_deployment(client.create_flow_from_name("ingest"), name)

        run = service.post("/runs", body, 202)
        flow_run = client.read_flow_run(uuid.UUID(run["flow_run_id"]))
        assert flow_run.parameters["run_id"] == run["run_id"]
        assert flow_run.parameters["tenant"] == "default"

        with service.database.write() as tx:
            tx.execute(sa.update(runs).values(lease_expires_at=tx.now))
        same = service.post("/runs", body, 202)
        assert same["flow_run_id"] == run["flow_run_id"], "it still waits for a worker"
        client.set_flow_run_state(flow_run.id, Crashed(), force=True)
        other = service.post("/runs", body, 202)
        assert other["run_id"] == run["run_id"]
        assert other["flow_run_id"] != run["flow_run_id"], "the first one cannot go on"

        suspended = uuid.UUID(other["flow_run_id"])
        client.set_flow_run_state(suspended, Suspended(timeout_seconds=600), force=True)
        resume = f"/runs/{run['run_id']}/resume"
        with service.database.write() as tx:
            later = tx.now + timedelta(seconds=60)
            tx.execute(sa.update(runs).values(flow_run_id=str(suspended), lease_expires_at=later))
        assert "by another flow" in service.post(resume, {}, 409)["detail"]
        with service.database.write() as tx:
            tx.execute(sa.update(runs).values(lease_expires_at=None))
        assert service.post(resume, {}, 202)["flow_run_id"] == str(suspended)
        resumed = client.read_flow_run(suspended).state
        assert resumed is not None
        assert resumed.is_scheduled()
