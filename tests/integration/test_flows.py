"""The flows on a real Prefect server."""

import logging
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, State, TaskRun
from prefect.settings import (
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_RESULTS_PERSIST_BY_DEFAULT,
    temporary_settings,
)
from prefect.states import Suspended
from prefect.utilities.callables import parameter_schema

from flows.ingest import ingest
from flows.process import process
from flows.recover import recover
from penstock.app import open_app
from penstock.embed import embedder
from penstock.errors import PenstockError, RunRefused, StagePaused, UsageError
from penstock.local.prefect_server import ServerAddress
from penstock.runs.lifecycle import open_run, read_run, take_run
from penstock.runs.run import RunStatus, SourceSpec
from penstock.store.schema import runs
from tests.together import wait_until

pytestmark = pytest.mark.usefixtures("prefect", "home")

PROSE = (
    "{name} looks after the sluice gates of the upper reservoir and writes Python programs that "
    "plan when they open. In 2019 {name} moved the planning to PostgreSQL and trained two others."
)


def write_documents(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.txt").write_text(PROSE.format(name=name.capitalize()))
    return folder


def run_flow(**parameters: Any) -> tuple[State[Any], FlowRun]:
    state: State[Any] = ingest(**parameters, return_state=True)
    assert state.state_details.flow_run_id is not None
    with get_client(sync_client=True) as client:
        return state, client.read_flow_run(state.state_details.flow_run_id)


def test_a_folder_becomes_ready_documents_and_a_second_run_does_nothing(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris", "chandra")

    first = ingest(source=str(folder))
    second = ingest(source=str(folder))

    assert first["status"] == "finished"
    assert first["counts"] == {"pending": 0, "ready": 3, "skipped": 0, "error": 0, "expired": 0}
    assert (first["extractions"], first["embeddings"]) == (3, 3)
    assert second["counts"]["skipped"] == 3
    assert (second["extractions"], second["embeddings"]) == (0, 0)


def test_a_flow_run_is_named_tagged_and_leaves_artifacts(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "agnes")
    (folder / "empty.txt").write_bytes(b"")

    state, flow_run = run_flow(source=str(folder), tenant="acme")

    assert state.is_completed()
    assert flow_run.name == f"ingest {folder}"
    assert {"tenant:acme", f"source:{folder}"} <= set(flow_run.tags)
    artifacts = artifacts_of(flow_run)
    assert {"progress", "markdown", "table"} == {artifact["type"] for artifact in artifacts}
    table = next(artifact for artifact in artifacts if artifact["type"] == "table")
    assert "empty.txt" in table["data"]
    assert "0 bytes" in table["data"]
    summary = next(artifact for artifact in artifacts if artifact["type"] == "markdown")["data"]
    assert "slowest documents" in summary
    assert "`agnes.txt`" in summary
    assert "penstock jobs retry --run 1 --all" in summary


def artifacts_of(flow_run: FlowRun) -> list[dict[str, Any]]:
    with get_client(sync_client=True) as client:
        found = client.request(
            "POST",
            "/artifacts/filter",
            json={
                "flow_runs": FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id])).model_dump(
                    mode="json"
                )
            },
        )
    artifacts: list[dict[str, Any]] = found.json()
    return artifacts


def test_a_step_whose_documents_are_all_kept_is_shown_as_cached(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "dagny", "edgar")
    run_flow(source=str(folder))
    (folder / "more").mkdir()
    for path in [*folder.glob("*.txt")]:
        path.rename(folder / "more" / path.name)

    _, flow_run = run_flow(source=str(folder))

    states = task_states(flow_run, "admit", "extract text", "extract fields", "embed")
    assert states["extract text"] == "Completed"
    assert states["extract fields"] == "Cached"
    assert messages_of(flow_run)["extract fields"] == "2 reused, version 1.0.0"


def messages_of(flow_run: FlowRun) -> dict[str, str | None]:
    """What the states of its task runs say, by task."""
    of_this = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=of_this)
    return {_task_name(run): run.state.message for run in runs if run.state is not None}


def test_what_is_kept_is_found_for_each_document_of_a_batch(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "dagny", "edgar")
    run_flow(source=str(folder))
    other = write_documents(tmp_path / "others", "edgar", "fatima")

    _, flow_run = run_flow(source=str(other))

    assert "2 need review, 1 reused" in summary_of(flow_run)
    task_states(flow_run, "admit", "extract fields")
    assert messages_of(flow_run)["extract fields"] == "1 done, 1 reused, version 1.0.0"


def test_a_step_that_fails_for_all_its_documents_is_shown_as_failed(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "one.pdf").write_bytes(b"%PDF-1.7 broken")

    _, flow_run = run_flow(source=str(folder))

    states = task_states(flow_run, "admit", "extract text")
    assert states["extract text"] == "Failed"


def test_no_text_is_kept_by_prefect(tmp_path: Path) -> None:
    run_flow(source=str(write_documents(tmp_path / "docs", "gunhild")))

    stored = [path for path in PREFECT_LOCAL_STORAGE_PATH.value().rglob("*") if path.is_file()]
    assert not [path for path in stored if b"Gunhild" in path.read_bytes()]


def test_prefects_own_setting_keeps_the_report_of_a_run_and_nothing_of_its_tasks(
    tmp_path: Path,
) -> None:
    stored = tmp_path / "stored"
    with temporary_settings(
        {PREFECT_RESULTS_PERSIST_BY_DEFAULT: True, PREFECT_LOCAL_STORAGE_PATH: stored}
    ):
        _, flow_run = run_flow(source=str(write_documents(tmp_path / "docs", "gunhild")))
        files = [path.read_bytes() for path in stored.rglob("*") if path.is_file()]
        with get_client(sync_client=True) as client:
            kept = client.read_flow_run(flow_run.id).state
        assert kept is not None
        assert kept.result()["counts"]["ready"] == 1

    assert len(files) == 1


def test_a_run_that_fails_leaves_its_summary_too(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "one.pdf").write_bytes(b"%PDF-1.7 broken")

    _, flow_run = run_flow(source=str(folder))

    summary = summary_of(flow_run)
    assert ": error" in summary
    assert "1 of 1 documents failed (corruption 1)" in summary


def summary_of(flow_run: FlowRun) -> str:
    [summary] = [one["data"] for one in artifacts_of(flow_run) if one["type"] == "markdown"]
    return str(summary)


def _task_name(run: TaskRun) -> str:
    """Without the batch it was for: `extract text, run 7, 2 documents`, `admit run 7, …`."""
    return run.name.partition(",")[0].partition(" run ")[0]


def task_states(flow_run: FlowRun, *wanted: str) -> dict[str, str | None]:
    """By task; the server hears of task runs a moment after they have ended."""
    found: dict[str, str | None] = {}

    def are_known() -> bool:
        with get_client(sync_client=True) as client:
            runs = client.read_task_runs(
                flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
            )
        found.update({_task_name(run): run.state_name for run in runs})
        return all(found.get(name) in ("Completed", "Cached", "Failed") for name in wanted)

    wait_until(are_known, seconds=60)
    return found


def test_a_new_extraction_version_extracts_again_without_parsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_documents(tmp_path / "docs", "fatima", "gorm")
    ingest(source=str(folder))
    monkeypatch.setenv("EXTRACTION_VERSION", "2.0.0")

    _, flow_run = run_flow(source=str(folder))

    states = task_states(flow_run, "admit", "extract fields")
    assert states["extract fields"] == "Completed"
    assert "extract text" not in states
    # The fields are as before, and so is what is embedded of the document.
    assert task_states(flow_run, "embed")["embed"] == "Cached"
    assert messages_of(flow_run)["embed"] == "2 reused"


def test_a_source_that_does_not_exist_fails_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such-folder"):
        ingest(source=str(tmp_path / "no-such-folder"))


def test_a_failed_listing_fails_the_flow_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOW_PRIVATE_ADDRESSES", "true")
    with pytest.raises(PenstockError, match=r"run \d+ failed: "):
        ingest(source="http://127.0.0.1:9/")


def test_a_second_run_of_a_source_is_refused_and_names_the_active_one(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "hilde")
    with open_app() as app:
        spec = SourceSpec("default", str(folder), "folder", str(folder))
        active = open_run(app.database, spec, profile=None, force=False)
        take_run(app.database, active.id, lease_seconds=60)

    with pytest.raises(RunRefused, match=f"run {active.id} "):
        ingest(source=str(folder))


def test_a_recorded_run_is_taken_up_by_its_number(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "ivo")
    with open_app() as app:
        spec = SourceSpec("default", str(folder), "folder", str(folder))
        recorded = open_run(app.database, spec, profile=None, force=False)

    with pytest.raises(UsageError, match=f"run {recorded.id} is one of {folder}"):
        ingest("elsewhere", run_id=recorded.id)
    assert ingest(str(folder), run_id=recorded.id)["run_id"] == recorded.id


def test_a_run_that_is_taken_up_elsewhere_leaves_no_suspended_flow_run(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "jorunn")
    with get_client(sync_client=True) as client, open_app() as app:
        suspended = client.create_flow_run(ingest, state=Suspended(timeout_seconds=600)).id
        spec = SourceSpec("default", str(folder), "folder", str(folder))
        recorded = open_run(app.database, spec, profile=None, force=False)
        with app.database.write() as tx:
            tx.execute(sa.update(runs).values(flow_run_id=str(suspended)))

        _, flow_run = run_flow(source=str(folder), run_id=recorded.id)

        state = client.read_flow_run(suspended).state
    assert state is not None
    assert state.is_cancelled()
    assert state.message == f"run {recorded.id} went on as {flow_run.name}"


def test_the_form_of_an_ingest_asks_for_its_source() -> None:
    assert parameter_schema(ingest).required == ["source"]


def test_a_configuration_fault_pauses_the_run_and_the_next_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_documents(tmp_path / "docs", "jarle", "kari")
    # An earlier test of this process may have loaded the model.
    embedder._load_model.cache_clear()
    with monkeypatch.context() as broken:
        broken.setattr(embedder, "find_spec", lambda _: None)
        with pytest.raises(StagePaused, match="pip install wordllama"):
            ingest(source=str(folder))
    with open_app() as app, app.database.read() as tx:
        paused = read_run(tx, 1)
    assert paused.status is RunStatus.INGESTING
    assert "wordllama" in (paused.paused_reason or "")

    finished = ingest(source=str(folder))

    assert finished["run_id"] == 1
    assert finished["counts"]["ready"] == 2


def test_process_does_what_others_left_and_recover_finds_all_clear(tmp_path: Path) -> None:
    admit_without_processing(write_documents(tmp_path / "docs", "lars", "maja"))

    assert process() >= 2
    assert recover() == {"freed": 0, "rescued": 0, "dead": 0, "finished_runs": 0}
    with open_app() as app, app.database.read() as tx:
        assert read_run(tx, 1).status is RunStatus.FINISHED


def admit_without_processing(folder: Path) -> None:
    """Leave a run whose documents are recorded and whose flow is gone."""
    from penstock.runs.execute import admit_listed, list_source

    with open_app() as app:
        spec = SourceSpec("default", str(folder), "folder", str(folder))
        run = open_run(app.database, spec, profile=None, force=False)
        lease = take_run(app.database, run.id, lease_seconds=60)
        admission = app.admission(lease)
        discover = partial(list_source, app.sources, run)
        fetch, admit = admission.fetch_batches, admission.record
        assert sum(admit_listed(app.database, lease, discover, fetch, admit))


def test_two_process_flows_side_by_side_do_no_document_twice(
    tmp_path: Path, prefect: ServerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    del prefect
    names = [f"person{number:03}" for number in range(60)]
    admit_without_processing(write_documents(tmp_path / "docs", *names))
    monkeypatch.setenv("PENSTOCK_BATCH_SIZE", "4")
    monkeypatch.setenv("PENSTOCK_TEXT_PROCESSES", "1")
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", "from flows.process import process; print(process())"]
    started = [
        subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=300) for process in started]

    assert [process.returncode for process in started] == [0, 0], ended
    with open_app() as app, app.database.read() as tx:
        from penstock.runs.report import report_run

        report = report_run(tx, 1)
    assert report.run.status is RunStatus.FINISHED
    assert {stage.worked for stage in report.stages.values()} == {60}
    assert {stage.total for stage in report.stages.values()} == {60}


def test_the_final_state_tells_the_outcome_and_a_warning_each_class_of_failure(
    tmp_path: Path,
) -> None:
    folder = write_documents(tmp_path / "docs", "olga", "pavel")
    for name in ("one", "two"):
        (folder / f"{name}.pdf").write_bytes(b"%PDF-1.7 broken")

    state, flow_run = run_flow(source=str(folder))

    assert (state.is_completed(), state.name) == (True, "CompletedWithErrors")
    assert state.message is not None
    assert state.message.startswith("2 ready, ")
    assert "2 failed (corruption 2)" in state.message
    warnings = [line for line in logs_of(flow_run, logging.WARNING) if "failed with" in line]
    assert len(warnings) == 1
    assert "2 documents failed with corruption, such as one.pdf: " in warnings[0]
    assert state.result()["counts"]["error"] == 2


def logs_of(flow_run: FlowRun, level: int) -> list[str]:
    """The log lines of a flow run of this level, when the last has arrived."""
    found: list[str] = []

    def have_arrived() -> bool:
        with get_client(sync_client=True) as client:
            wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
            lines = client.read_logs(wanted)
        found[:] = [line.message for line in lines if line.level == level]
        # Those of its tasks come before.
        own = [line.message for line in lines if line.task_run_id is None]
        return any("Finished in state" in message for message in own)

    wait_until(have_arrived, seconds=30)
    return found


def test_a_run_whose_documents_all_fail_has_failed_in_every_view(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.pdf").write_bytes(b"%PDF-1.7 broken")

    state, _ = run_flow(source=str(folder))

    assert (state.is_failed(), state.name) == (True, "Failed")
    assert "2 of 2 documents failed (corruption 2)" in (state.message or "")
    with open_app() as app, app.database.read() as tx:
        run = read_run(tx, 1)
    assert run.status is RunStatus.ERROR
    assert run.error == "2 of 2 documents failed (corruption 2)"


@pytest.mark.parametrize(("max_failed", "name"), [(0.5, "CompletedWithErrors"), (0.3, "Failed")])
def test_a_run_fails_above_the_share_that_may(tmp_path: Path, max_failed: float, name: str) -> None:
    folder = write_documents(tmp_path / "docs", "quirin")
    (folder / "one.pdf").write_bytes(b"%PDF-1.7 broken")

    state, _ = run_flow(source=str(folder), max_failed=max_failed)

    assert state.name == name


def test_all_runs_of_a_source_leave_their_summaries_under_one_key(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "rosa")

    shown = [artifacts_of(run_flow(source=str(folder))[1]) for _ in range(2)]

    keys = [{one["key"] for one in artifacts} for artifacts in shown]
    assert keys[0] == keys[1]
    assert any(key.startswith("ingest-") and not key.endswith("-progress") for key in keys[0])
    assert all(key.startswith("ingest-") for key in keys[0])
