"""Two and four process workers on one run: each has its share, and nothing is done twice."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from prefect.states import Cancelling

from penstock.local.postgres import PostgresServer
from penstock.runs.lifecycle import run_of_flow
from penstock.store.schema import workers
from penstock.testing import Reply
from tests.e2e.prefect_installation import Installation, open_installation
from tests.faults.scenarios.audit import audit_run

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def installed(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[Installation]:
    with open_installation(tmp_path_factory.mktemp("installation"), postgres) as found:
        found.start_worker()
        yield found


def completed_by_owner(installed: Installation) -> dict[str, int]:
    c = workers.c
    with installed.app.database.read() as tx:
        return {str(owner): int(done) for owner, done in tx.execute(sa.select(c.id, c.completed))}


@pytest.mark.parametrize("count", [2, 4])
def test_workers_share_a_run_and_finish_it_once(installed: Installation, count: int) -> None:
    documents = 30 * count
    installed.models.always(None, Reply().after(0.5))
    source = installed.write_documents(f"shared-by-{count}", documents)
    added = [installed.start_worker("--limit", "1") for _ in range(count - 1)]
    before = set(completed_by_owner(installed))
    helpers = [installed.deployment_run("process/process", forever=True) for _ in added]
    for helper in helpers:
        installed.wait_for_state(helper, "Running")
    flow_run = installed.deployment_run("ingest/ingest", source=str(source), profile="document")
    installed.wait_for_state(flow_run, "Completed", seconds=180)
    for helper in helpers:
        installed.client.set_flow_run_state(helper.id, Cancelling())
    for helper in helpers:
        installed.wait_for_state(helper, "Cancelled")
    run = run_of_flow(installed.app.database, str(flow_run.id))
    assert run is not None
    assert audit_run(installed.app.database, run.id, documents).problems == []
    now = completed_by_owner(installed)
    shares = [done for owner, done in now.items() if owner not in before and done]
    # One more where the scheduled `process` has come by.
    assert len(shares) >= count, shares
    # Text, extraction and embedding of each document, and none of them twice.
    assert sum(shares) == 3 * documents, shares
    installed.models.always(None, Reply())
    for worker in added:
        installed.kill_worker(worker)
