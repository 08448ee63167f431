"""How a flow run and its run tell of each other: log lines, aborts, endings from outside."""

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
import sqlalchemy as sa
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_engine import run_flow as start_flow_run
from prefect.states import Crashed, Pending, Running

from flows.hooks import abort_cancelled_run, settle_run
from flows.ingest import ingest
from flows.recover import recover
from penstock import failpoints
from penstock.app import open_app
from penstock.events import read_log
from penstock.runs.execute import leave_runs, open_source_run
from penstock.runs.lifecycle import abort_run, begin_ingesting, read_run, take_run
from penstock.runs.run import RunStatus
from penstock.store.schema import runs
from tests.integration.test_flows import run_flow, write_documents
from tests.simulator import Site
from tests.together import wait_until

pytestmark = pytest.mark.usefixtures("prefect", "home")


def logs_of(flow_run: FlowRun) -> list[str]:
    with get_client(sync_client=True) as client:
        chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
        return [line.message for line in client.read_logs(chosen)]


def test_prefect_hears_of_the_run_and_the_store_of_every_document(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris")

    state, flow_run = run_flow(source=str(folder))

    assert state.is_completed()
    wait_until(lambda: any("finished: 2 ready" in line for line in logs_of(flow_run)))
    told = "\n".join(logs_of(flow_run))
    assert "listed: 2 documents, 0 gone" in told
    assert "agnes.txt" not in told
    with open_app() as app, app.database.read() as tx:
        lines = read_log(tx, 1)
    assert {line.stage for line in lines if line.document == "agnes.txt"} == {
        "CRL",
        "TXT",
        "LLM",
        "EMB",
    }


def test_an_abort_from_outside_fails_the_flow_run_with_its_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOW_PRIVATE_ADDRESSES", "true")
    monkeypatch.setenv("PENSTOCK_CRAWL_DELAY_SECONDS", "0")
    for number in range(60):
        site.page(f"/jobs/{number}", title=f"Keeper {number}")
    site.latency_seconds = 0.2

    def abort_soon() -> None:
        wait_until(lambda: len(site.requests()) > 6, seconds=100)
        with open_app() as app:
            abort_run(app.database, app.queue, 1, reason="enough for today")

    aborter = threading.Thread(target=abort_soon)
    aborter.start()
    began = time.monotonic()
    state, _ = run_flow(source=site.sitemap_url)
    aborter.join()

    assert state.is_failed()
    assert "aborted" in str(state.message)
    assert time.monotonic() - began < 120
    with open_app() as app, app.database.read() as tx:
        run = read_run(tx, 1)
    assert (run.status, run.error) == (RunStatus.ABORTED, "enough for today")


def taken_run(folder: Path, flow_run_id: str, *, listing: bool = True) -> int:
    with open_app() as app:
        run = open_source_run(app.sources, str(folder), "default")
        lease = take_run(app.database, run.id, lease_seconds=600, flow_run_id=flow_run_id)
        if listing:
            begin_ingesting(app.database, lease)
        return run.id


def ended_flow_run() -> Any:
    with get_client(sync_client=True) as client:
        return client.create_flow_run(ingest, name="ended from outside")


def test_a_cancelled_flow_run_aborts_its_run(tmp_path: Path) -> None:
    flow_run = ended_flow_run()
    run_id = taken_run(write_documents(tmp_path / "docs", "agnes"), str(flow_run.id))

    abort_cancelled_run(ingest, flow_run, flow_run.state)

    with open_app() as app, app.database.read() as tx:
        run = read_run(tx, run_id)
    assert (run.status, run.error) == (RunStatus.ABORTED, "its flow run was cancelled")
    assert run.finished_at is not None


def test_a_run_that_is_interrupted_before_its_work_begins_is_taken_up_at_once(
    tmp_path: Path,
) -> None:
    """The index is built and weights are loaded between the two."""
    with open_app() as app:
        run = open_source_run(
            app.sources, str(write_documents(tmp_path / "docs", "agnes")), "default"
        )
        with app.hold_run(run.id):
            leave_runs()
        with app.database.read() as tx:
            assert f"penstock resume {run.id}" in str(read_run(tx, run.id).paused_reason)
    state, _ = run_flow(source=run.location, run_id=run.id)
    assert state.is_completed()


@pytest.mark.parametrize("listing", [True, False])
def test_a_run_whose_flow_run_crashed_can_be_taken_up_at_once(
    tmp_path: Path, listing: bool
) -> None:
    """The index is built and weights are loaded before the listing begins."""
    folder = write_documents(tmp_path / "docs", "agnes")
    flow_run = ended_flow_run()
    run_id = taken_run(folder, str(flow_run.id), listing=listing)

    settle_run(ingest, flow_run, flow_run.state)

    report = ingest(source=str(folder))
    assert (report["run_id"], report["status"]) == (run_id, "finished")


def test_a_flow_run_that_is_started_again_begins_no_other_run_when_its_own_was_aborted(
    tmp_path: Path,
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes")
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(ingest, parameters={"source": str(folder)})
    run_id = taken_run(folder, str(flow_run.id))
    with open_app() as app:
        abort_run(app.database, app.queue, run_id, reason="the wrong folder")

    state = cast(State[Any], start_flow_run(ingest, flow_run=flow_run, return_type="state"))

    assert state.is_failed()
    assert f"run {run_id} was aborted: the wrong folder" in str(state.message)
    with open_app() as app, app.database.read() as tx:
        assert tx.execute(sa.select(runs.c.id)).scalars().all() == [run_id]


class HoursLater(datetime):
    """The clock of a process that runs when all workers have been away for hours."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "HoursLater":
        return super().now(tz) + timedelta(hours=3)


@pytest.fixture
def crashed_flow_run(tmp_path: Path) -> Iterator[UUID]:
    """One of a deployment, whose process was killed; there is no worker."""
    with get_client(sync_client=True) as client:
        deployed = client.create_deployment(client.create_flow(ingest), name="without a worker")
        parameters = {"source": str(tmp_path)}
        flow_run = client.create_flow_run_from_deployment(deployed, parameters=parameters)
        states: tuple[State[Any], ...] = (Pending(), Running(), Crashed())
        for state in states:
            client.set_flow_run_state(flow_run.id, state)
        yield flow_run.id
        client.delete_flow_run(flow_run.id)
        client.delete_deployment(deployed)


def test_what_crashed_before_all_workers_were_away_for_hours_is_started_again(
    crashed_flow_run: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.recover.datetime", HoursLater)

    recover()

    with get_client(sync_client=True) as client:
        state = client.read_flow_run(crashed_flow_run).state
    assert state is not None
    assert (state.name, "start 2 of at most 4" in str(state.message)) == ("AwaitingRetry", True)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The third document that is stored finds no room; there is room when the setting is gone."""
    monkeypatch.setenv("PENSTOCK_FAULTS", "raw.storing=full@3")
    yield
    failpoints.arm(None)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_pauses_the_run_and_with_room_again_it_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris", "clara", "dieter")

    state, _ = run_flow(source=str(folder))

    assert state.is_failed()
    with open_app() as app, app.database.read() as tx:
        run = read_run(tx, 1)
    assert run.status is RunStatus.INGESTING
    assert "Free disk space" in str(run.paused_reason)

    monkeypatch.delenv("PENSTOCK_FAULTS")
    report = ingest(source=str(folder))
    assert (report["run_id"], report["status"]) == (1, "finished")
    assert {name: count for name, count in report["counts"].items() if count} == {"ready": 4}
