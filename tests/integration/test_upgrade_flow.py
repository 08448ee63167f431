"""Flow runs of one version on a database of another: they fail readably, and no job is lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from prefect.client.schemas.objects import State

from flows.ingest import ingest
from flows.process import process
from penstock.app import open_app
from penstock.store.database import Database
from penstock.store.migration import HEAD, alembic_config, current_revision, migrate
from penstock.store.schema import work_items, workers
from tests.factories import make_item
from tests.together import wait_until

pytestmark = [pytest.mark.usefixtures("prefect", "home"), pytest.mark.both_databases]

OLDER, NEWER = "0010", "9999"


@pytest.fixture
def store(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database of the flows, with jobs that wait."""
    monkeypatch.setenv("PENSTOCK_DSN", empty_url)
    monkeypatch.setenv("EMBEDDING_BACKEND", "hash")
    with open_app() as app, app.database.write() as tx:
        app.queue.enqueue(tx, [make_item(), make_item()])
    database = Database(empty_url)
    yield database
    database.close()


def items(database: Database) -> list[dict[str, Any]]:
    with database.read() as tx:
        found = tx.execute(sa.text("SELECT * FROM work_items ORDER BY id")).mappings()
        return [dict(row) for row in found]


def fail(
    caplog: pytest.LogCaptureFixture, flow: Callable[..., Any], **parameters: Any
) -> tuple[str, str]:
    """The message and the log of a flow run that fails."""
    caplog.clear()
    state: State[Any] = flow(**parameters, return_state=True)
    assert state.is_failed()
    return state.message or "", caplog.text


def set_revision(database: Database, revision: str) -> None:
    with database.write() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": revision})


def test_an_older_version_fails_on_a_newer_database_and_its_jobs_stay(
    store: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    set_revision(store, NEWER)
    before = items(store)
    for flow, parameters in ((process, {}), (ingest, {"source": str(tmp_path)})):
        message, log = fail(caplog, flow, **parameters)
        assert f"newer Penstock (revision {NEWER}; this version knows up to {HEAD})" in message
        assert "upgrade Penstock" in message
        assert "sqlalchemy" not in log
        assert log.count("Traceback") == 1, "said once, by Prefect, with the lines of the flow"
    assert items(store) == before


@pytest.mark.parametrize("empty_url", ["postgres"], indirect=True)
def test_a_newer_version_fails_on_an_older_database_and_works_once_it_is_migrated(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with store.write() as tx:
        command.downgrade(alembic_config(tx.connection), OLDER)
    before = items(store)
    message, log = fail(caplog, process)
    assert f"is at revision {OLDER}, this version of Penstock needs {HEAD}" in message
    assert "`penstock migrate`" in message
    assert "sqlalchemy" not in log
    assert items(store) == before
    assert current_revision(store) == OLDER

    migrate(store)

    process()
    with store.read() as tx:
        left = tx.execute(sa.select(work_items.c.status)).scalars().all()
    assert "pending" not in left, "they were tried; their nodes do not exist"


def test_a_flow_run_whose_database_is_migrated_meanwhile_fails_with_one_message(
    store: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PENSTOCK_HEARTBEAT_SECONDS", "0.1")
    before = items(store)

    def migrate_it() -> None:
        wait_until(lambda: count_workers(store) > 0)
        set_revision(store, NEWER)

    with ThreadPoolExecutor(1) as pool:
        migrating = pool.submit(migrate_it)
        message, log = fail(caplog, process, stages=["embed"], forever=True)
        migrating.result()
    assert f"was migrated to revision {NEWER} while this version" in message
    assert "sqlalchemy" not in log
    assert items(store) == before


def count_workers(database: Database) -> int:
    with database.read() as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(workers)).scalar_one())
