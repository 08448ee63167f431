"""The flow `backfill` on a real Prefect server."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ParameterTypeError

from flows.backfill import backfill
from flows.ingest import ingest
from penstock.app import open_app
from penstock.backfill.backfill import BackfillStatus, list_backfills
from penstock.backfill.canary import promote_canary
from penstock.errors import NotFound, UsageError
from penstock.local.prefect_server import ServerAddress
from penstock.runs.up_to_date import Reason
from penstock.search.query import Filters
from penstock.store.schema import nodes, work_items
from tests.integration.test_flows import artifacts_of, write_documents

pytestmark = pytest.mark.usefixtures("prefect", "home")
NAMES = ("agnes", "boris", "chandra")


@pytest.fixture
def folder(tmp_path: Path, prefect: ServerAddress, home: Path) -> Path:
    """Documents that have been ingested."""
    del prefect, home
    folder = write_documents(tmp_path / "docs", *NAMES)
    assert ingest(source=str(folder))["counts"]["ready"] == 3
    return folder


def run_backfill(**parameters: Any) -> tuple[State[Any], FlowRun]:
    state: State[Any] = backfill(**parameters, return_state=True)
    assert state.state_details.flow_run_id is not None
    with get_client(sync_client=True) as client:
        return state, client.read_flow_run(state.state_details.flow_run_id)


def versions() -> set[str | None]:
    with open_app() as app, app.database.read() as tx:
        return set(tx.execute(sa.select(nodes.c.extraction_version)).scalars())


@pytest.mark.usefixtures("folder")
def test_a_bump_of_the_version_brings_every_node_up_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXTRACTION_VERSION", "2.0.0")

    state, flow_run = run_backfill(reasons=["outdated", "failed"])

    figures = state.result()
    assert (figures["status"], figures["enqueued"], figures["failed"]) == ("finished", 3, 0)
    assert versions() == {"2.0.0"}
    assert flow_run.name == "backfill default outdated, failed"
    assert "tenant:default" in flow_run.tags
    assert {one["type"] for one in artifacts_of(flow_run)} == {"progress", "markdown"}
    again = backfill(reasons=[Reason.OUTDATED, Reason.FAILED])
    assert (again["id"], again["enqueued"]) == (figures["id"] + 1, 0)


def test_a_dry_run_counts_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTRACTION_VERSION", "2.0.0")

    state, flow_run = run_backfill(dry_run=True, source=str(folder))

    found = state.result()
    assert (found["nodes"], found["cost_usd"], found["dry_run"]) == (3, 0.0, True)
    (artifact,) = artifacts_of(flow_run)
    assert "| outdated | 3 |" in artifact["data"]
    assert versions() == {"1.0.0"}
    with open_app() as app, app.database.read() as tx:
        assert list_backfills(tx, None, 9) == []


@pytest.mark.parametrize(
    ("parameters", "error", "complaint"),
    [
        ({"source": "nowhere"}, NotFound, "nowhere"),
        ({"reasons": ["stale"]}, UsageError, "belong together"),
        # These already in the form, before a flow run is made.
        ({"limit": 0}, ParameterTypeError, "limit: .* greater than or equal to 1"),
        ({"tenant": ""}, ParameterTypeError, "tenant: .* at least 1 character"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    parameters: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        backfill(**parameters)


@pytest.mark.usefixtures("folder")
def test_a_new_model_is_built_beside_the_old_one_and_taken_over_when_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find() -> int:
        with open_app() as app:
            return len(app.searcher.search("sluice gates", Filters("default"), "vector", 10))

    monkeypatch.setenv("EMBEDDING_BACKEND", "hash")
    assert find() == 3, "by the old vectors"

    figures = backfill(all_tenants=True)

    assert figures["vectors"] == "hash/words@64"
    assert find() == 3
    with open_app() as app, app.database.read() as tx:
        identities = sa.select(nodes.c.embedding_identity).distinct()
        assert tx.execute(identities).scalars().all() == ["hash/words@64"]


_KILLED = """
from flows.backfill import backfill
backfill(reasons=["outdated"])
"""


@pytest.mark.usefixtures("folder")
def test_a_flow_run_that_was_killed_is_taken_up_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXTRACTION_VERSION", "2.0.0")
    monkeypatch.setenv("PENSTOCK_BACKFILL_WINDOW", "2")
    monkeypatch.setenv("PENSTOCK_LEASE_SECONDS", "2")
    monkeypatch.setenv("PENSTOCK_HEARTBEAT_SECONDS", "0.5")
    monkeypatch.setenv("PENSTOCK_SWEEP_SECONDS", "1")
    monkeypatch.setenv("PENSTOCK_FAULTS", "extract.begun=kill")
    root = Path(__file__).parent.parent.parent
    died = subprocess.run(
        [sys.executable, "-c", _KILLED], cwd=root, capture_output=True, check=False, timeout=120
    )
    assert died.returncode != 0
    monkeypatch.delenv("PENSTOCK_FAULTS")
    with open_app() as app, app.database.read() as tx:
        (left,) = list_backfills(tx, None, 9)
    assert (left.status, left.enqueued) == (BackfillStatus.ACTIVE, 2)
    time.sleep(2.1)  # its leases run out
    # Those of the next one do not, however busy the machine is.
    monkeypatch.delenv("PENSTOCK_LEASE_SECONDS")
    monkeypatch.delenv("PENSTOCK_HEARTBEAT_SECONDS")

    figures = backfill(reasons=[Reason.OUTDATED])

    assert (figures["id"], figures["enqueued"]) == (left.id, 3)
    assert versions() == {"2.0.0"}
    with open_app() as app, app.database.read() as tx:
        own = work_items.c.priority == -10
        extracts = sa.select(work_items.c.node_id).where(own, work_items.c.stage == "extract")
        done = tx.execute(extracts).scalars().all()
    assert len(done) == len(set(done)) == 3


_KILLED_CANARY = """
from flows.backfill import backfill
backfill(reasons=["outdated"], canary=2)
"""


@pytest.mark.usefixtures("folder")
def test_a_canary_that_was_killed_is_taken_up_and_changes_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXTRACTION_VERSION", "2.0.0")
    monkeypatch.setenv("PENSTOCK_LEASE_SECONDS", "2")
    monkeypatch.setenv("PENSTOCK_HEARTBEAT_SECONDS", "0.5")
    monkeypatch.setenv("PENSTOCK_FAULTS", "canary.answered=kill")
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", _KILLED_CANARY]
    died = subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=120)
    assert died.returncode != 0
    monkeypatch.delenv("PENSTOCK_FAULTS")

    state, flow_run = run_backfill(reasons=["outdated"], canary=2)

    found = state.result()
    assert (found["id"], found["done"], found["failed"]) == (1, 2, 0)
    assert versions() == {"1.0.0"}
    assert {one["type"] for one in artifacts_of(flow_run)} == {"progress", "markdown"}
    held = backfill(reasons=[Reason.OUTDATED])
    assert (held["enqueued"], versions()) == (0, {"1.0.0"})
    with open_app() as app:
        promote_canary(app, found["id"])
    assert backfill(reasons=[Reason.OUTDATED])["enqueued"] == 3
    assert versions() == {"2.0.0"}
