"""Deployments on a Prefect server on Postgres, run by process workers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa
from playwright.sync_api import Page
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import SCHEDULE_TYPES, IntervalSchedule
from prefect.states import Cancelling

from penstock.local.postgres import PostgresServer
from penstock.local.processes import free_port, wait_until
from penstock.runs.lifecycle import read_run, run_of_flow
from penstock.runs.run import Run, RunStatus
from penstock.store.schema import run_documents, workers
from penstock.testing import Reply
from penstock.testing.script import Behaviour, invalid_api_key
from tests.browser import keep_screenshot, open_browser, open_page
from tests.e2e.prefect_installation import ROOT, Installation, open_installation
from tests.faults.scenarios.audit import audit_run

pytestmark = pytest.mark.timeout(600)
# In the log of the run and in Prefect's.
FINISHED = "finished: 40 ready, 1 failed (empty 1)"


@pytest.fixture(scope="module")
def installed(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[Installation]:
    with open_installation(tmp_path_factory.mktemp("installation"), postgres) as found:
        found.start_worker()
        yield found


def run_of(installed: Installation, flow_run: FlowRun) -> Run:
    """The flow run is `Running` a moment before it has recorded its run."""
    found: list[Run] = []

    def is_recorded() -> bool:
        found.extend(filter(None, [run_of_flow(installed.app.database, str(flow_run.id))]))
        return bool(found)

    assert wait_until(is_recorded, 120, interval_seconds=0.1), installed.logs()
    return found[0]


def ready(installed: Installation, run_id: int) -> int:
    c = run_documents.c
    done = sa.select(sa.func.count()).where(c.run_id == run_id, c.status == "ready")
    with installed.app.database.read() as tx:
        return int(tx.execute(done).scalar_one())


def wait_for_ready(installed: Installation, run_id: int, count: int) -> None:
    assert wait_until(lambda: ready(installed, run_id) >= count, 120, interval_seconds=0.1)


def python(installed: Installation, code: str) -> Any:
    """What a program of the user's prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=installed.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def served(installed: Installation) -> Iterator[str]:
    """`penstock serve` beside the installation; its address."""
    address = f"http://127.0.0.1:{free_port()}"
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", "entrypoints.cli.main", "serve", "--port", port]
    server = subprocess.Popen(command, cwd=ROOT, env=installed.environment)

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/health").status_code == 200
        except httpx.HTTPError:
            return False

    try:
        assert wait_until(answers, 120)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=60)


# Four doors


def test_the_command_of_prefect_and_a_paused_pool_that_starts_nothing_until_it_goes_on(
    installed: Installation,
) -> None:
    source = installed.write_documents("by-command", 3)
    installed.pause_pool(True)
    try:
        flow_run = installed.deployment_run_by_command(
            "ingest/ingest", source=str(source), profile="document"
        )
        assert not wait_until(lambda: installed.state_of(flow_run) not in ("Scheduled", "Late"), 8)
    finally:
        installed.pause_pool(False)
    installed.wait_for_state(flow_run, "Completed")
    run = run_of(installed, flow_run)
    assert audit_run(installed.app.database, run.id, 3).problems == []
    found = installed.client.read_flow_run(flow_run.id)
    assert {"penstock", "tenant:default", f"source:{source}"} <= set(found.tags)
    assert found.name == f"ingest {source}"


def test_a_python_program_and_its_idempotency_key(installed: Installation) -> None:
    source = installed.write_documents("by-program", 3)
    code = f"""
import json
from prefect.deployments import run_deployment
def start():
    return run_deployment("ingest/ingest", parameters={{"source": {str(source)!r}}},
                          idempotency_key="once", timeout=120, poll_interval=1)
first, second = start(), start()
print(json.dumps([str(first.id), str(second.id), first.state_name]))
"""
    first, second, state = python(installed, code)
    assert first == second
    assert state == "Completed"


def test_a_flow_called_as_a_function(installed: Installation) -> None:
    source = installed.write_documents("by-call", 3)
    code = (
        f"import json; from flows.ingest import ingest; print(json.dumps(ingest({str(source)!r})))"
    )
    report = python(installed, code)
    assert report["counts"]["ready"] == 3


def test_the_http_api(installed: Installation) -> None:
    source = installed.write_documents("by-api", 3)
    installed.run("entrypoints.cli.main", "source", "add", "mills", str(source))
    with served(installed) as address, httpx.Client(base_url=address, timeout=60) as http:
        accepted = http.post("/runs", json={"source": "mills"})
        assert accepted.status_code == 202, accepted.text
        run_id = accepted.json()["run_id"]

        def is_over() -> bool:
            return bool(http.get(f"/runs/{run_id}").json()["status"] == "finished")

        assert wait_until(is_over, 120, interval_seconds=0.5), installed.logs()
    assert audit_run(installed.app.database, run_id, 3).problems == []


# Parameters, pauses, cancellation


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"source": "/data", "force": "perhaps"}, "'force'. Failure reason: 'perhaps' is not of"),
        ({"source": ""}, "'source'. Failure reason: '' should be non-empty"),
        ({"source": "/data", "tenant": " "}, "'tenant'. Failure reason: ' ' does not match"),
    ],
)
def test_wrong_parameters_are_refused_with_their_names(
    installed: Installation, wrong: dict[str, Any], reason: str
) -> None:
    deployment = installed.client.read_deployment_by_name("ingest/ingest")
    schema = deployment.parameter_openapi_schema or {}
    assert schema["properties"]["source"]["description"]
    refused = httpx.post(
        f"{installed.environment['PREFECT_API_URL']}/deployments/{deployment.id}/create_flow_run",
        json={"parameters": wrong},
        timeout=60,
    )
    assert refused.status_code in (409, 422)
    assert reason in refused.json()["detail"]


def test_a_failed_flow_run_says_why(installed: Installation) -> None:
    flow_run = installed.deployment_run("ingest/ingest", source="/nowhere/at/all")
    installed.wait_for_state(flow_run, "Failed")
    state = installed.client.read_flow_run(flow_run.id).state
    assert state is not None
    assert "/nowhere/at/all" in str(state.message)


def test_a_queue_lets_through_no_more_than_its_limit(installed: Installation) -> None:
    queue = installed.client.read_work_queue_by_name("llm", work_pool_name="penstock")
    assert queue.concurrency_limit == 2
    installed.client.update_work_queue(queue.id, concurrency_limit=1)
    runs = [installed.deployment_run("process/drain-extraction", forever=True) for _ in range(2)]

    def states() -> list[str]:
        return sorted(installed.state_of(run) for run in runs)

    try:
        assert wait_until(lambda: "Running" in states(), 180, interval_seconds=0.5), states()
        assert not wait_until(lambda: states() == ["Running", "Running"], 5), states()
        [first] = [run for run in runs if installed.state_of(run) == "Running"]
        installed.client.set_flow_run_state(first.id, Cancelling())
        installed.wait_for_state(first, "Cancelled")
        [second] = [run for run in runs if run.id != first.id]
        installed.wait_for_state(second, "Running")
    finally:
        installed.client.update_work_queue(queue.id, concurrency_limit=2)
        for run in runs:
            installed.client.set_flow_run_state(run.id, Cancelling())
    for run in runs:
        installed.wait_for_state(run, "Cancelled")


def test_a_cancelled_flow_run_leaves_an_aborted_run_behind(installed: Installation) -> None:
    # So slow that the run is not over before the cancellation has come to it.
    installed.models.always(None, Reply().after(5.0))
    source = installed.write_documents("cancelled", 60)
    flow_run = installed.deployment_run("ingest/ingest", source=str(source), profile="document")
    installed.wait_for_state(flow_run, "Running")
    run = run_of(installed, flow_run)
    wait_for_ready(installed, run.id, 1)
    installed.client.set_flow_run_state(flow_run.id, Cancelling())
    installed.wait_for_state(flow_run, "Cancelled")

    def ended() -> bool:
        with installed.app.database.read() as tx:
            return read_run(tx, run.id).status is RunStatus.ABORTED

    assert wait_until(ended, 120)
    installed.models.always(None, Reply())


def test_a_refused_key_suspends_the_flow_run_and_resume_goes_on_with_it(
    installed: Installation,
) -> None:
    installed.models.always(None, invalid_api_key())
    source = installed.write_documents("refused", 8)
    flow_run = installed.deployment_run("ingest/ingest", source=str(source), profile="document")
    installed.wait_for_state(flow_run, "Suspended")
    state = installed.client.read_flow_run(flow_run.id).state
    assert state is not None
    assert "GROQ_API_KEY" in str(state.message)
    assert "then resume this flow run" in str(state.message)
    run = run_of(installed, flow_run)
    assert run.paused_reason is not None

    installed.models.always(None, Reply())
    installed.client.resume_flow_run(flow_run.id)

    installed.wait_for_state(flow_run, "Completed")
    assert ready(installed, run.id) == 8


# Many workers


def test_helpers_share_a_run_and_the_death_of_a_worker_costs_nothing(
    installed: Installation,
) -> None:
    documents = 80
    # So slow that there is work left when the helpers have been started.
    installed.models.always(None, Reply().after(1.5))
    source = installed.write_documents("shared", documents)
    flow_run = installed.deployment_run("ingest/ingest", source=str(source), profile="document")
    victim = installed.start_worker("--limit", "1")
    helper = installed.deployment_run("process/drain-extraction", stages=[])
    second = installed.deployment_run("process/process")
    for one in (flow_run, helper, second):
        installed.wait_for_state(one, "Running", "Completed")
    run = run_of(installed, flow_run)
    wait_for_ready(installed, run.id, documents // 4)
    installed.kill_worker(victim)
    # A crashed one is started again.
    installed.wait_for_state(flow_run, "Completed", seconds=300)

    def over() -> bool:
        with installed.app.database.read() as tx:
            return not read_run(tx, run.id).status.active

    assert wait_until(over, 120, interval_seconds=0.5), installed.logs()
    assert run_of(installed, flow_run).id == run.id
    assert audit_run(installed.app.database, run.id, documents).problems == []
    with installed.app.database.read() as tx:
        helped = sa.select(sa.func.count()).where(workers.c.completed > documents // 10)
        assert int(tx.execute(helped.select_from(workers)).scalar_one()) >= 2
    installed.models.always(None, Reply())


def process_of(installed: Installation, flow_run: FlowRun) -> psutil.Process:
    """The one that a worker has started for a flow run."""
    for worker in installed.workers:
        for one in psutil.Process(worker.pid).children(recursive=True):
            if one.environ().get("PREFECT__FLOW_RUN_ID") == str(flow_run.id):
                return one
    raise AssertionError(f"no process runs {flow_run.name}\n{installed.logs()}")


def test_a_flow_run_whose_process_is_killed_is_started_again_and_lists_its_source_to_the_end(
    installed: Installation,
) -> None:
    documents = 60
    installed.models.always(None, Reply().after(1.0))
    source = installed.write_documents("killed", documents)
    flow_run = installed.deployment_run("ingest/ingest", source=str(source), profile="document")
    installed.wait_for_state(flow_run, "Running")
    run = run_of(installed, flow_run)
    wait_for_ready(installed, run.id, 1)
    process_of(installed, flow_run).kill()
    installed.wait_for_state(flow_run, "AwaitingRetry", "Pending", "Submitting")
    installed.wait_for_state(flow_run, "Completed")
    assert installed.client.read_flow_run(flow_run.id).run_count == 2
    assert audit_run(installed.app.database, run.id, documents).problems == []
    installed.models.always(None, Reply())


def test_the_other_deployments_complete(installed: Installation) -> None:
    names = ["recover/recover", "maintain/maintain", "process/drain-embedding"]
    flow_runs = [installed.deployment_run(name) for name in names]
    for flow_run in flow_runs:
        installed.wait_for_state(flow_run, "Completed")


def test_a_scheduled_backfill_fires_unless_its_deployment_is_paused(
    installed: Installation,
) -> None:
    client = installed.client
    deployment = client.read_deployment_by_name("backfill/backfill")
    [nightly] = deployment.schedules
    assert nightly.active
    # Again and again: a scheduler that is late would otherwise find the one time gone by.
    often: SCHEDULE_TYPES = IntervalSchedule(interval=timedelta(seconds=10))
    client.pause_deployment(deployment.id)
    [added] = client.create_deployment_schedules(deployment.id, [(often, True)])

    def states() -> set[str | None]:
        mine = DeploymentFilter(name=DeploymentFilterName(any_=["backfill"]))
        runs = client.read_flow_runs(deployment_filter=mine)
        return {run.state_name for run in runs if run.auto_scheduled}

    try:
        assert not wait_until(lambda: bool(states() - {"Scheduled"}), 15, interval_seconds=1)
        client.resume_deployment(deployment.id)
        fired = wait_until(lambda: "Completed" in states(), 150, interval_seconds=1)
        assert fired, f"{states()}\n{installed.logs()}"
    finally:
        client.delete_deployment_schedule(deployment.id, added.id)


# Pages. Last: a browser has an event loop in this thread.


def test_a_run_is_started_and_watched_on_a_page_and_found_in_prefects(
    installed: Installation,
) -> None:
    installed.models.always(None, Reply().after(0.3))
    source = installed.write_documents("by-page", 40)
    (source / "empty.txt").write_text("")
    installed.run("entrypoints.cli.main", "source", "add", "page-mills", str(source))
    with (
        served(installed) as address,
        open_browser() as browser,
        open_page(browser, address) as page,
    ):
        page.goto("/ui/runs")
        page.get_by_label("Source: its name, or a URL").fill("page-mills")
        page.get_by_role("button", name="Start a run").click()
        page.wait_for_url("**/ui/runs/*")
        run_id = page.url.rpartition("/")[2]
        summary = page.locator("#summary")
        summary.locator("[data-state=active]").wait_for()
        page.locator(".line").nth(3).wait_for(timeout=120_000)
        keep_screenshot(page, "dashboard-run-live")
        # Nobody loads the page again: it moves by itself, to the end.
        summary.get_by_text("finished", exact=True).wait_for(timeout=120_000)
        page.get_by_text("Run ended.").wait_for()
        page.locator(".line", has_text=FINISHED).wait_for()
        page.locator("#found").get_by_text("empty.txt", exact=True).wait_for()
        keep_screenshot(page, "dashboard-run-finished")
        flow_run = page.get_by_role("link", name="Flow run in Prefect").get_attribute("href")
        assert flow_run
        force_on_the_page(page, run_id)
        see_prefects_page(page, flow_run, run_id)
    installed.models.always(None, Reply())


def force_on_the_page(page: Page, run_id: str) -> None:
    page.once("dialog", lambda dialog: dialog.accept())
    page.goto("/ui/runs")
    page.get_by_role("button", name=f"Force run {run_id}", exact=True).click()
    page.wait_for_url(lambda url: url.rpartition("/")[2] not in ("runs", run_id))
    page.locator(".line", has_text=FINISHED).wait_for(timeout=120_000)


def see_prefects_page(page: Page, flow_run: str, run_id: str) -> None:
    page.goto(flow_run)
    page.get_by_text("ingest page-mills").first.wait_for()
    page.get_by_text("source:page-mills").first.wait_for()
    page.get_by_text("CompletedWithErrors").first.wait_for()
    page.get_by_text(re.compile(f"run {run_id} finished: 40 ready, .*1 failed")).first.wait_for()
    keep_screenshot(page, "prefect-flow-run")
    page.get_by_text("Artifacts", exact=True).last.click()
    for kind in ("", "-progress", "-failures"):
        page.get_by_text(f"ingest-page-mills{kind}", exact=True).last.wait_for()
    keep_screenshot(page, "prefect-artifacts")
    page.get_by_text("ingest-page-mills", exact=True).last.click()
    page.get_by_text("Slowest documents").first.wait_for()
    keep_screenshot(page, "prefect-summary")


def test_prefects_page_of_a_flow_run_tells_its_outcome(installed: Installation) -> None:
    """`make screenshots` puts what this keeps into the documentation."""
    paused = ingest_named(installed, "careers", invalid_api_key(), "Suspended")
    with_errors = ingest_named(installed, "papers", Reply(), "CompletedWithErrors", broken=2)
    for broken in (installed.folder / "papers").glob("*.pdf"):
        broken.unlink()
    (installed.folder / "papers").rename(installed.folder / "papers-moved")
    cached = ingest_named(installed, "papers-moved", Reply(), "Completed")
    ui = installed.environment["PREFECT_API_URL"].removesuffix("/api")
    with open_browser() as browser, open_page(browser, ui) as page:
        page.set_viewport_size({"width": 1280, "height": 1100})
        show_flow_run(page, paused, "Suspended", "GROQ_API_KEY")
        page.get_by_role("button", name="Resume").wait_for()
        show_details(page, "prefect-paused")
        show_flow_run(page, with_errors, "CompletedWithErrors", "2 documents failed with corr")
        keep_screenshot(page, "prefect-log")
        show_details(page, "prefect-completed-with-errors")
        show_flow_run(page, cached, "Completed", "6 reused")
        page.get_by_text("Task Runs", exact=True).first.click()
        page.get_by_text("Cached", exact=True).nth(1).wait_for()
        keep_screenshot(page, "prefect-cached")


def ingest_named(
    installed: Installation, name: str, models: Behaviour, state: str, broken: int = 0
) -> FlowRun:
    """A flow run over the folder of this name, which ends in that state."""
    installed.models.always(None, models)
    folder = installed.folder / name
    if not folder.exists():
        installed.write_documents(name, 6)
    for number in range(broken):
        (folder / f"damaged-{number}.pdf").write_bytes(b"%PDF-1.7 broken")
    installed.run("entrypoints.cli.main", "source", "add", name, str(folder))
    flow_run = installed.deployment_run("ingest/ingest", source=name, profile="document")
    installed.wait_for_state(flow_run, state)
    return flow_run


def show_flow_run(page: Page, flow_run: FlowRun, state: str, line: str) -> None:
    """Prefect's page of it, with this line of its log in view."""
    page.goto(f"/runs/flow-run/{flow_run.id}")
    page.get_by_text(state, exact=True).first.wait_for()
    told = page.get_by_text(re.compile(line)).last
    told.wait_for()
    told.scroll_into_view_if_needed()


def show_details(page: Page, name: str) -> None:
    """With the message of the state, below the graph."""
    page.get_by_text("Details", exact=True).first.click()
    page.get_by_text("State Message").first.wait_for()
    keep_screenshot(page, name)
