"""Behind PgBouncer in transaction mode, where each transaction may have another session."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.local.postgres import PostgresServer
from penstock.maintenance.maintenance import BUSY_TABLES, vacuum
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.items import NewItem
from penstock.store.database import Database, new_node_id
from penstock.store.migration import HEAD, current_revision, migrate
from penstock.store.schema import extractions, work_items, workers
from penstock.testing import GroqServer
from tests.contract.ingestion import counts, make_text
from tests.contract.modelling import KEY, ModelWorkplace, make_answer
from tests.factories import TENANT, read_rows
from tests.pooler import SESSIONS, Pooler, running_pooler
from tests.postgres import EmptiedDatabase, new_database
from tests.together import run_together, wait_until

pytestmark = pytest.mark.full_suite

IDLE_SECONDS = 77


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[Pooler]:
    with running_pooler(postgres) as pooler:
        yield pooler


@pytest.fixture
def direct_url(emptied_database: EmptiedDatabase) -> Iterator[str]:
    with emptied_database.lend() as url:
        yield url


@pytest.fixture
def pooled(direct_url: str, pooler: Pooler) -> Iterator[Database]:
    database = Database(pooler.url(direct_url), idle_seconds=IDLE_SECONDS)
    yield database
    database.close()


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Without the pooler."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def advisory_locks(url: str) -> int:
    [(count,)] = ask(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    return int(count)


def session_of(database: Database) -> int:
    with database.read() as tx:
        return int(tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())


def test_transactions_of_one_connection_have_different_sessions(pooled: Database) -> None:
    """What the other tests rest on: more connections than sessions, which take turns."""
    found = run_together(3 * SESSIONS, lambda _: {session_of(pooled) for _ in range(50)})
    assert len(set().union(*found)) <= SESSIONS
    assert max(map(len, found)) > 1


def test_statements_that_are_often_repeated_find_their_session(pooled: Database) -> None:
    def repeat(number: int) -> int:
        done = 0
        for turn in range(40):
            with pooled.write() as tx:
                query = sa.select(workers.c.id).where(workers.c.id == f"{number}-{turn}")
                done += tx.execute(query).first() is None
        return done

    assert run_together(3 * SESSIONS, repeat) == [40] * (3 * SESSIONS)


def test_every_transaction_is_ended_when_idle_for_long_and_no_other_client_is(
    pooled: Database, direct_url: str, pooler: Pooler
) -> None:
    show = sa.text("SHOW idle_in_transaction_session_timeout")

    def limit(_: int) -> set[str]:
        found = set()
        for _ in range(20):
            with pooled.read() as tx:
                found.add(str(tx.execute(show).scalar_one()))
        return found

    assert set().union(*run_together(3 * SESSIONS, limit)) == {f"{IDLE_SECONDS}s"}
    [(usual,)] = ask(direct_url, str(show))
    others = [ask(pooler.url(direct_url), str(show)) for _ in range(4 * SESSIONS)]
    assert others == [[(usual,)]] * len(others)


def test_two_that_migrate_at_once_build_one_schema_and_leave_no_lock(
    postgres: PostgresServer, pooler: Pooler
) -> None:
    with new_database(postgres, "template1", "penstock_pooled") as url:
        databases = [Database(pooler.url(url)) for _ in range(2)]
        try:
            done = run_together(2, lambda number: migrate(databases[number]))
            assert sorted(done) == [False, True] or done == [True, True]
            assert current_revision(databases[0]) == HEAD
            assert advisory_locks(url) == 0
        finally:
            for database in databases:
                database.close()


def test_a_run_by_several_threads_does_each_document_once(
    pooled: Database, direct_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    with GroqServer(make_answer(), api_key=KEY) as server:
        place = ModelWorkplace(pooled, tmp_path, server, batch_size=8)
        try:
            for number in range(60):
                place.write(f"{number:03}.txt", make_text(f"Mill {number}"))
            assert counts(place.ingest()) == {"ready": 60}
            assert server.count() == 60
        finally:
            place.close()
    assert len(read_rows(pooled, extractions)) == 60
    assert advisory_locks(direct_url) == 0


def test_maintenance_vacuums_every_table(pooled: Database) -> None:
    assert vacuum(pooled, dry_run=False) == f"{len(BUSY_TABLES)} tables looked at"


def test_leases_are_renewed_and_a_worker_that_lost_one_writes_nothing(
    pooled: Database, tmp_path: Path
) -> None:
    with GroqServer(make_answer()) as server:
        place = ModelWorkplace(pooled, tmp_path, server)
        try:
            queue = place.app.queue
            with pooled.write() as tx:
                queue.enqueue(tx, [NewItem(TENANT, new_node_id(), Stage.EXTRACT)])
            with Heartbeat(pooled, queue, every_seconds=0.05) as heartbeat:
                with pooled.write() as tx:
                    claim = queue.claim(tx, heartbeat.owner)
                first = _lease_end(pooled)
                wait_until(lambda: _lease_end(pooled) > first)
            place.expire_leases()
            place.app.recovery.run()
            with pooled.write() as tx:
                other = queue.claim(tx, "another")
                assert len(other.items) == 1
                assert queue.start(tx, claim, claim.items) == []
                assert len(queue.start(tx, other, other.items)) == 1
        finally:
            place.close()


def _lease_end(database: Database) -> datetime:
    with database.read() as tx:
        found: datetime = tx.execute(sa.select(work_items.c.lease_expires_at)).scalar_one()
        return found
