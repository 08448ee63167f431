"""Models on the command line: a run that pauses, or is killed, and goes on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.store.database import Database, Tx
from penstock.store.schema import extractions, runs
from penstock.testing import GroqServer, hang
from tests.e2e.commands import CommandLine, end
from tests.e2e.test_commands import write_documents
from tests.together import wait_until

KEY = "gsk_very-secret-key"
RETIRED = "llama-3.1-8b-instant"


@pytest.fixture
def server() -> Iterator[GroqServer]:
    with GroqServer(api_key=KEY, retired=[RETIRED]) as server:
        yield server


@pytest.fixture
def models(penstock: CommandLine, server: GroqServer, tmp_path: Path) -> CommandLine:
    """A command line whose documents are extracted by models; nothing is cached from before."""
    settings = {
        "GROQ_API_KEY": KEY,
        "EXTRACTION_BASE_URL": server.base_url,
        "PREFECT_HOME": str(tmp_path / "prefect"),
    }
    return replace(penstock, settings=settings)


def test_a_paused_run_says_what_to_change_and_is_resumed(
    models: CommandLine, server: GroqServer, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris")
    old = {"EXTRACTION_PRIMARY_MODEL": RETIRED, "EXTRACTION_FALLBACK_MODEL": RETIRED}
    outdated = replace(models, settings=models.settings | old)

    told = outdated.run("ingest", folder)

    assert told.code == 1
    advice = "EXTRACTION_PRIMARY_MODEL=openai/gpt-oss-20b"
    assert advice in " ".join((told.out + told.err).split())
    run = models.run("run", "1", "--json").json
    assert (run["status"], run["counts"]["pending"]) == ("ingesting", 2)
    assert advice in run["paused_reason"]
    status = models.run("status")
    assert advice in " ".join((status.out + status.err).split())

    resumed = models.run("resume", "1", "--json")

    assert resumed.code == 0, resumed.err
    assert (resumed.json["run_id"], resumed.json["counts"]["ready"]) == (1, 2)
    assert resumed.json["llm_calls"] == server.count(status=200) == 2
    assert resumed.json["cost_usd"] > 0
    again = models.run("resume", "1")
    assert again.code != 0
    assert "finished" in again.out + again.err
    for done in (told, resumed, status):
        assert KEY not in done.out + done.err


def test_a_budget_stops_a_run_and_a_larger_one_goes_on(
    models: CommandLine, server: GroqServer, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", *(f"person{n}" for n in range(6)))
    poor = {"PENSTOCK_MAX_COST_USD_PER_RUN": "0.00005", "EXTRACTION_CONCURRENCY": "1"}

    told = replace(models, settings=models.settings | poor).run("ingest", folder, "--json")

    assert told.code == 1
    assert "penstock resume 1" in told.json["error"]
    assert server.count() < 6
    resumed = models.run("resume", "1", "--json")
    assert (resumed.code, resumed.json["counts"]["ready"]) == (0, 6)
    assert server.count() == 6


def test_a_killed_run_repeats_no_call_that_was_answered(
    models: CommandLine, server: GroqServer, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris", "chandra")
    short = {
        "PENSTOCK_LEASE_SECONDS": "2",
        "PENSTOCK_HEARTBEAT_SECONDS": "0.5",
        "PENSTOCK_SWEEP_SECONDS": "0.5",
    }
    quick = replace(models, settings=models.settings | short)
    server.always(None, hang(), when="Chandra")
    process = quick.start("ingest", folder)
    try:
        wait_until(lambda: server.count() >= 3 and kept_answers(models.home) == 2, 60)
    finally:
        end(process, signal.SIGKILL)
    server.reset()
    wait_until(lambda: is_abandoned(models.home), 60)
    # The leases of the next one do not run out, however busy the machine is.
    patient = {"PENSTOCK_SWEEP_SECONDS": "0.5"}

    resumed = replace(models, settings=models.settings | patient).run("resume", "1", "--json")

    assert resumed.code == 0, resumed.err
    assert resumed.json["counts"]["ready"] == 3
    assert [request.text.count("Chandra") > 0 for request in server.requests] == [True]


def kept_answers(home: Path) -> int:
    with opened(home) as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(extractions)).scalar_one())


def is_abandoned(home: Path) -> bool:
    with opened(home) as tx:
        return bool(tx.execute(sa.select(runs.c.lease_expires_at)).scalar_one() < tx.now)


@contextmanager
def opened(home: Path) -> Iterator[Tx]:
    database = Database(f"sqlite:///{home / 'penstock.db'}")
    try:
        with database.read() as tx:
            yield tx
    finally:
        database.close()
