"""A database is migrated when no worker uses it, and a worker of another version loses no job."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from penstock.app import App, open_app
from penstock.errors import SchemaMismatch, StoreError
from penstock.pipeline.worker import Worker
from penstock.settings import EmbeddingSettings, load_settings
from penstock.store.database import Database
from penstock.store.migration import (
    HEAD,
    alembic_config,
    current_revision,
    migrate,
    migrate_when_idle,
    pending_revisions,
)
from penstock.store.schema import work_items, workers
from tests.factories import make_item
from tests.together import wait_until

pytestmark = pytest.mark.both_databases

OLDER = "0010"
NEWER = "9999"
LEASE_SECONDS = 60.0


@pytest.fixture
def older(empty_url: str) -> Iterator[Database]:
    """A database that an older version has made."""
    database = Database(empty_url)
    migrate(database)
    with database.write() as tx:
        command.downgrade(alembic_config(tx.connection), OLDER)
    yield database
    database.close()


@pytest.fixture
def current(database: Database) -> Iterator[Database]:
    """One of this version, which it is again afterwards: the next test uses the same Postgres."""
    yield database
    set_revision(database, HEAD)


def add_worker(database: Database, age_seconds: float = 0.0, status: str = "running") -> None:
    with database.write() as tx:
        at = tx.now - timedelta(seconds=age_seconds)
        row = {"host": "mill", "pid": 7, "version": "0.0.9", "status": status}
        row |= {"id": "mill:7:abc", "started_at": at, "heartbeat_at": at}
        tx.execute(sa.insert(workers).values(row | {"completed": 0, "failed": 0}))


def end_worker(database: Database) -> None:
    with database.write() as tx:
        tx.execute(sa.update(workers).values(status="stopped"))


def set_revision(database: Database, revision: str) -> None:
    with database.write() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": revision})


def open_at(database: Database, home: Path, **settings: Any) -> App:
    embedding = EmbeddingSettings(backend="hash")
    return open_app(load_settings(home=home, dsn=database.url, embedding=embedding, **settings))


def test_a_database_that_a_worker_uses_is_refused_and_left_as_it_is(older: Database) -> None:
    add_worker(older)
    expected = rf"is at revision {OLDER}.*needs {HEAD}.*mill:7:abc \(version 0\.0\.9\).*--wait"
    with pytest.raises(StoreError, match=expected):
        migrate_when_idle(older, lease_seconds=LEASE_SECONDS)
    assert current_revision(older) == OLDER


@pytest.mark.parametrize(("age_seconds", "status"), [(61.0, "running"), (0.0, "stopped")])
def test_workers_that_are_lost_or_have_stopped_are_not_waited_for(
    older: Database, age_seconds: float, status: str
) -> None:
    add_worker(older, age_seconds, status)
    assert migrate_when_idle(older, lease_seconds=LEASE_SECONDS)
    assert current_revision(older) == HEAD


def test_workers_are_waited_for_until_they_have_ended(older: Database) -> None:
    add_worker(older)
    with ThreadPoolExecutor(1) as pool:
        migrating = pool.submit(
            migrate_when_idle, older, lease_seconds=LEASE_SECONDS, wait_seconds=60
        )
        assert not migrating.done()
        end_worker(older)
        assert migrating.result(timeout=60)
    assert current_revision(older) == HEAD


def test_what_is_to_be_done_is_listed_in_order(older: Database) -> None:
    expected = [f"{number:04}" for number in range(int(OLDER) + 1, int(HEAD) + 1)]
    assert [one.id for one in pending_revisions(older)] == expected
    assert all(one.what for one in pending_revisions(older))
    migrate(older)
    assert pending_revisions(older) == []


def test_workers_do_not_matter_when_there_is_nothing_to_do(database: Database) -> None:
    add_worker(database)
    assert not migrate_when_idle(database, lease_seconds=LEASE_SECONDS)


def test_a_new_version_opens_an_older_database_only_when_no_worker_uses_it(
    older: Database, tmp_path: Path
) -> None:
    add_worker(older)
    with pytest.raises(StoreError, match=rf"is at revision {OLDER}.*`penstock migrate"):
        open_at(older, tmp_path / "home")
    assert current_revision(older) == OLDER
    end_worker(older)
    if older.is_sqlite:
        open_at(older, tmp_path / "home").close()
        assert current_revision(older) == HEAD
    else:
        # Other machines may be about to use it: somebody has to say when.
        with pytest.raises(SchemaMismatch, match="Run `penstock migrate`"):
            open_at(older, tmp_path / "home")


@contextmanager
def working(app: App, **changed: Any) -> Iterator[tuple[Worker, Callable[[], None]]]:
    """A worker that has begun to look for work, and a function that waits for its end."""
    with app.heartbeat() as heartbeat, ThreadPoolExecutor(1) as pool:
        worker = app.worker(app.processor(), heartbeat)
        for name, value in changed.items():
            setattr(worker, name, value)
        running = pool.submit(worker.run, lambda: False)
        try:
            wait_until(lambda: bool(worker.running))
            yield worker, lambda: running.result(timeout=60)
        finally:
            worker.stop()


def items(database: Database) -> list[tuple[Any, ...]]:
    c = work_items.c
    with database.read() as tx:
        query = sa.select(c.id, c.status, c.attempts, c.rescues, c.lease_owner)
        return [tuple(row) for row in tx.execute(query.order_by(c.id))]


def test_a_running_worker_ends_with_one_message_when_the_database_is_migrated(
    current: Database, tmp_path: Path
) -> None:
    with (
        open_at(current, tmp_path / "home", heartbeat_seconds=0.05) as app,
        working(app) as (_, wait_for_end),
    ):
        set_revision(current, NEWER)
        with pytest.raises(SchemaMismatch, match=rf"migrated to revision {NEWER}.*{HEAD}.*start"):
            wait_for_end()
        with app.database.write() as tx:
            app.queue.enqueue(tx, [make_item()])
    assert [row[1:] for row in items(current)] == [("pending", 0, 0, None)]


def test_a_worker_that_survives_errors_says_so_once_and_claims_nothing(
    current: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_at(current, tmp_path / "home", heartbeat_seconds=0.05) as app:
        with working(app, survives_errors=True, threads=1) as (worker, _):
            set_revision(current, NEWER)
            wait_until(lambda: has_error(worker))
            with app.database.write() as tx:
                app.queue.enqueue(tx, [make_item()])
            for _ in range(3):
                worker.wake()
        told = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert len(told) == 1
        assert f"migrated to revision {NEWER}" in told[0].getMessage()
        assert [row[1:] for row in items(current)] == [("pending", 0, 0, None)]


def has_error(worker: Worker) -> bool:
    """Without work a thread looks again only when it polls, or is woken."""
    worker.wake()
    return worker.running[0].error is not None


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO work_items (tenant) VALUES ('acme')",
        "SELECT gone FROM work_items",
        "SELECT * FROM gone",
        "INSERT INTO workers (id) VALUES ('a worker without its other values')",
    ],
)
def test_a_statement_that_fits_another_schema_is_explained_without_sql(
    current: Database, statement: str
) -> None:
    migrate(current)
    set_revision(current, NEWER)
    expected = pytest.raises(SchemaMismatch, match=f"migrated to revision {NEWER}")
    with expected as raised, current.write() as tx:
        tx.execute(sa.text(statement))
    assert raised.value.__suppress_context__
    for word in ("gone", "workers", "INSERT", "SELECT"):
        assert word not in str(raised.value)


def test_a_wrong_statement_is_not_taken_for_another_schema(database: Database) -> None:
    migrate(database)
    with pytest.raises(StoreError, match="gone") as raised, database.read() as tx:
        tx.execute(sa.text("SELECT * FROM gone"))
    assert not isinstance(raised.value, SchemaMismatch)
