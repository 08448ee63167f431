"""Work is done by the extractor it was recorded for, whichever flow run comes by."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID

import psutil
import pytest
import sqlalchemy as sa
from prefect.blocks.core import Block
from pydantic import SecretStr

from blocks import GroqModels, TextEmbedder
from flows.backfill import backfill
from flows.ingest import ingest
from flows.process import process
from penstock.app import open_app
from penstock.documents import Stage
from penstock.errors import BudgetSpent, ConfigurationError, StagePaused
from penstock.runs.lifecycle import read_run
from penstock.runs.run import RunStatus
from penstock.runs.up_to_date import Reason
from penstock.store.schema import WAITING_ITEM, embeddings, nodes, work_items
from penstock.testing import GroqServer, Reply
from penstock.testing.script import invalid_api_key
from tests.integration.test_flows import run_flow, summary_of, write_documents
from tests.integration.test_models_flows import log_of
from tests.pages import ROOT
from tests.together import wait_until

pytestmark = pytest.mark.usefixtures("prefect", "home")

KEY = "gsk_very-secret-key"
BLOCK = "penstock-groq-models/of-this-test"
MODEL = "openai/gpt-oss-20b"


@pytest.fixture
def server() -> Iterator[GroqServer]:
    with GroqServer(api_key=KEY) as server:
        server.always(None, invalid_api_key())
        yield server


@pytest.fixture
def block(server: GroqServer) -> str:
    saved = GroqModels(api_key=SecretStr(KEY), base_url=server.base_url)
    saved.save("of-this-test", overwrite=True)
    return BLOCK


def models_of_nodes() -> set[str | None]:
    with open_app() as app, app.database.read() as tx:
        return set(tx.execute(sa.select(nodes.c.extraction_model)).scalars())


def count_undone() -> int:
    with open_app() as app, app.database.read() as tx:
        count = sa.select(sa.func.count()).select_from(nodes)
        return int(tx.execute(count.where(nodes.c.embedding_status.is_(None))).scalar_one())


def count_waiting() -> int:
    with open_app() as app, app.database.read() as tx:
        count = sa.select(sa.func.count()).select_from(work_items).where(WAITING_ITEM)
        return int(tx.execute(count).scalar_one())


def status_of_run() -> RunStatus:
    with open_app() as app, app.database.read() as tx:
        return read_run(tx, 1).status


def pause_with(source: Path, blocks: list[str] | None = None) -> None:
    with pytest.raises(StagePaused, match="GROQ_API_KEY"):
        ingest(source=str(source), blocks=blocks)
    assert count_waiting() > 0


def test_a_flow_run_without_the_block_loads_it_and_ends_the_work_with_it(
    tmp_path: Path, server: GroqServer, block: str
) -> None:
    pause_with(write_documents(tmp_path / "docs", "agnes", "boris", "chandra"), [block])
    server.always(None, Reply())

    assert process() >= 3

    assert status_of_run() is RunStatus.FINISHED
    assert models_of_nodes() == {MODEL}


def test_what_a_killed_run_left_is_done_by_its_models_and_its_embedder(
    tmp_path: Path, server: GroqServer, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TextEmbedder(backend="hash").save("of-this-test", overwrite=True)
    source = write_documents(tmp_path / "docs", *[f"miller-{n:02}" for n in range(24)])
    monkeypatch.setenv("PENSTOCK_LEASE_SECONDS", "2")
    monkeypatch.setenv("PENSTOCK_HEARTBEAT_SECONDS", "0.5")
    monkeypatch.setenv("PENSTOCK_BATCH_SIZE", "4")
    server.always(None, Reply().after(1.0))
    blocks = [block, "penstock-embedder/of-this-test"]
    code = f"from flows.ingest import ingest; ingest({str(source)!r}, blocks={blocks!r})"
    with killed(subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)):
        wait_until(lambda: MODEL in models_of_nodes())
    left = count_undone()
    server.always(None, Reply())

    wait_until(lambda: process() >= 0 and status_of_run() is RunStatus.FINISHED)

    assert left > 0
    assert models_of_nodes() == {MODEL}
    assert identities_of_vectors() == {"hash/words@64"}


@contextmanager
def killed(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """At the end, with all that it has started, at once."""
    try:
        yield
    finally:
        family = [psutil.Process(process.pid)]
        for one in [*family, *family[0].children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(timeout=30)


def identities_of_vectors() -> set[str]:
    with open_app() as app, app.database.read() as tx:
        return set(tx.execute(sa.select(embeddings.c.identity)).scalars())


def test_a_paused_run_leaves_a_summary_that_says_how_to_go_on(tmp_path: Path, block: str) -> None:
    source = write_documents(tmp_path / "docs", "agnes", "boris")

    _, flow_run = run_flow(source=str(source), blocks=[block])

    summary = summary_of(flow_run)
    assert ": paused" in summary
    assert "2 not done" in summary
    assert "penstock resume 1" in summary


def test_a_flow_run_waits_for_what_a_dead_worker_holds_and_does_it(
    tmp_path: Path, server: GroqServer, block: str
) -> None:
    pause_with(write_documents(tmp_path / "docs", "agnes", "boris", "chandra"), [block])
    server.always(None, Reply())
    with open_app() as app, app.database.write() as tx:
        claim = replace(app.queue, lease_seconds=3.0).claim(tx, "dead")
        app.queue.start(tx, claim, claim.items)
    assert (len(claim.items), count_waiting()) == (3, 0)

    assert process() >= 3

    assert status_of_run() is RunStatus.FINISHED
    assert models_of_nodes() == {MODEL}


def test_a_flow_run_of_one_stage_does_not_wait_for_others_of_another_configuration(
    tmp_path: Path, block: str
) -> None:
    pause_with(write_documents(tmp_path / "docs", "agnes", "boris"), [block])
    with open_app() as app, app.database.write() as tx:
        held = replace(app.queue, lease_seconds=600.0).claim(tx, "alive")
    assert {item.stage for item in held.items} == {Stage.EXTRACT}

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(copy_context().run, partial(process, stages=[Stage.TEXT]))
        try:
            assert working.result(60) == 0
        finally:
            with open_app() as app, app.database.write() as tx:
                app.queue.cancel(tx, work_items.c.lease_owner == "alive")


def test_a_flow_run_ends_when_all_that_is_left_is_of_a_run_that_may_cost_no_more(
    tmp_path: Path, server: GroqServer, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.always(None, Reply())
    monkeypatch.setenv("PENSTOCK_MAX_COST_USD_PER_RUN", "0.0000001")
    monkeypatch.setenv("EXTRACTION_CONCURRENCY", "1")
    source = write_documents(tmp_path / "docs", *[f"miller-{n:02}" for n in range(20)])
    with pytest.raises(BudgetSpent):
        ingest(str(source), blocks=[block])
    # As where to load blocks takes longer than that.
    monkeypatch.setattr("flows.process.LOOK_SECONDS", 0.0)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(copy_context().run, process)
        try:
            assert working.result(60) == 0
        finally:
            monkeypatch.delenv("PENSTOCK_MAX_COST_USD_PER_RUN")
    assert count_waiting() > 0


def test_work_whose_block_is_gone_is_left_alone_and_told(
    tmp_path: Path, server: GroqServer, block: str
) -> None:
    pause_with(write_documents(tmp_path / "docs", "agnes", "boris"), [block])
    server.always(None, Reply())
    Block.delete(block)
    waiting = count_waiting()

    state = process(return_state=True)

    assert (state.is_completed(), count_waiting()) == (True, waiting)
    assert models_of_nodes() == {None}
    flow_run_id = UUID(str(state.state_details.flow_run_id))
    wait_until(lambda: "left alone" in log_of(flow_run_id), seconds=30)
    assert block in log_of(flow_run_id)


def test_the_rules_never_end_what_models_of_the_environment_began(
    tmp_path: Path, server: GroqServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_documents(tmp_path / "docs", "agnes", "boris")
    with monkeypatch.context() as with_key:
        with_key.setenv("EXTRACTION_BASE_URL", server.base_url)
        with_key.setenv("GROQ_API_KEY", KEY)
        pause_with(source)
    server.always(None, Reply())

    process()
    with pytest.raises(ConfigurationError, match="begun with the models"):
        ingest(source=str(source))

    assert models_of_nodes() == {None}
    monkeypatch.setenv("EXTRACTION_BASE_URL", server.base_url)
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    assert ingest(source=str(source))["run_id"] == 1
    assert models_of_nodes() == {MODEL}


def test_a_recorded_run_goes_on_with_the_blocks_it_was_begun_with(
    tmp_path: Path, server: GroqServer, block: str
) -> None:
    source = write_documents(tmp_path / "docs", "agnes", "boris")
    pause_with(source, [block])
    server.always(None, Reply())

    assert ingest(str(source), run_id=1)["status"] == "finished"

    assert models_of_nodes() == {MODEL}


def test_a_backfill_finds_what_another_extractor_made_only_when_asked_for(
    tmp_path: Path, server: GroqServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(source=str(write_documents(tmp_path / "docs", "agnes", "boris")))
    assert models_of_nodes() == {"rules"}
    server.always(None, Reply())
    monkeypatch.setenv("EXTRACTION_BASE_URL", server.base_url)
    monkeypatch.setenv("GROQ_API_KEY", KEY)

    assert backfill(dry_run=True)["nodes"] == 0
    assert backfill(reasons=[Reason.EXTRACTOR])["enqueued"] == 2

    assert models_of_nodes() == {MODEL}
