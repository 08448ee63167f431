"""Documents extracted by models, in flows on a real Prefect server."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

from flows.ingest import ingest
from flows.process import process
from penstock.app import open_app
from penstock.errors import StagePaused
from penstock.runs.lifecycle import read_run
from penstock.runs.run import Run, RunStatus
from penstock.testing import GroqServer, server_error
from tests.integration.test_flows import artifacts_of, run_flow, task_states, write_documents
from tests.together import wait_until

pytestmark = pytest.mark.usefixtures("prefect", "home")

KEY = "gsk_very-secret-key"
RETIRED = "llama-3.1-8b-instant"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GroqServer]:
    with GroqServer(api_key=KEY, retired=[RETIRED]) as server:
        monkeypatch.setenv("EXTRACTION_BASE_URL", server.base_url)
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        yield server


def first_run() -> Run:
    with open_app() as app, app.database.read() as tx:
        return read_run(tx, 1)


def log_of(flow_run_id: UUID) -> str:
    with get_client(sync_client=True) as client:
        of_this = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run_id]))
        return "\n".join(line.message for line in client.read_logs(log_filter=of_this))


def test_a_run_shows_what_its_models_cost_and_never_the_key(
    tmp_path: Path, prefect_home: Path, server: GroqServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTRACTION_RETRY_BASE_SECONDS", "0.1")
    folder = write_documents(tmp_path / "docs", "agnes", "boris")
    server.always(None, server_error(), when="Boris")

    _, flow_run = run_flow(source=str(folder))

    artifacts = artifacts_of(flow_run)
    summary = next(one["data"] for one in artifacts if one["type"] == "markdown")
    assert "model calls" in summary
    assert "$0.0000 " not in summary
    failures = next(one["data"] for one in artifacts if one["type"] == "table")
    assert "HTTP 500" in failures
    wait_until(lambda: "run 1 finished" in log_of(flow_run.id))
    assert KEY not in str(artifacts) + log_of(flow_run.id)
    written = [path for path in prefect_home.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if KEY.encode() in content_of(path)] == []


def content_of(path: Path) -> bytes:
    """Nothing, if the server, which others use too, has deleted it meanwhile."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def test_the_same_question_is_not_asked_again(tmp_path: Path, server: GroqServer) -> None:
    run_flow(source=str(write_documents(tmp_path / "docs", "chandra", "dagny")))

    _, flow_run = run_flow(source=str(write_documents(tmp_path / "copies", "chandra", "dagny")))

    assert task_states(flow_run, "extract fields")["extract fields"] == "Cached"
    assert server.count() == 2


def test_retired_models_pause_the_run_and_a_worker_with_mended_settings_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: GroqServer
) -> None:
    folder = write_documents(tmp_path / "docs", "edgar", "fatima")
    with monkeypatch.context() as old:
        old.setenv("EXTRACTION_PRIMARY_MODEL", RETIRED)
        old.setenv("EXTRACTION_FALLBACK_MODEL", RETIRED)
        with pytest.raises(StagePaused, match="EXTRACTION_PRIMARY_MODEL=openai/gpt-oss-20b"):
            ingest(source=str(folder))
        paused = first_run()
        assert paused.status is RunStatus.INGESTING
        assert "EXTRACTION_PRIMARY_MODEL=openai/gpt-oss-20b" in (paused.paused_reason or "")

    assert process() >= 2

    assert first_run().status is RunStatus.FINISHED
    assert server.count(status=200) == 2
