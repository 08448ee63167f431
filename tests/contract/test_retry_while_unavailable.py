"""Retrying while the database is unavailable, and leases on tasks for one process at a time."""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg import OperationalError

from penstock.errors import StoreConflict, StoreError, StoreUnavailable
from penstock.store import leader_lease as leases
from penstock.store import retry
from penstock.store.database import Database
from penstock.store.leader_lease import leader_lease
from penstock.store.schema import duties
from tests.factories import Desk, at, make_item
from tests.together import run_together, wait_until

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.001)


def failing(times: int, error: type[StoreError] = StoreUnavailable) -> Callable[[], int]:
    """Something that fails so often and then gives how often it was tried."""
    tries: list[int] = []

    def act() -> int:
        tries.append(1)
        if len(tries) <= times:
            raise error("away")
        return len(tries)

    return act


def test_a_call_is_retried_until_the_database_is_back() -> None:
    assert retry.retry_while_unavailable(failing(3))() == 4


def test_retrying_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "GIVE_UP_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable):
        retry.retry_while_unavailable(failing(10_000))()


def test_a_refused_statement_is_not_tried_again() -> None:
    with pytest.raises(StoreError):
        retry.retry_while_unavailable(failing(1, StoreError))()


def test_a_call_that_is_told_to_stop_does_not_wait() -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(StoreUnavailable):
        retry.retry_while_unavailable(failing(3), wait=stopping.wait)()


# SQLite has no server that could be away, and nobody who ends the transaction of another process.
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_connection_lost_in_a_transaction_is_an_unavailable_store(
    database: Database,
) -> None:
    def lose_connection() -> None:
        with database.write() as tx:
            own = tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
            with database.read() as other:
                other.execute(sa.text(f"SELECT pg_terminate_backend({own})"))
            tx.execute(sa.text("SELECT 1"))

    with pytest.raises(StoreUnavailable):
        lose_connection()
    with database.read() as tx:
        assert tx.execute(sa.text("SELECT 1")).scalar_one() == 1


def test_after_a_deadlock_alone_a_call_is_retried_at_once() -> None:
    pauses: list[float] = []
    act = failing(3, StoreConflict)
    assert retry.retry_after_deadlock(act, wait=pauses.append)() == 4
    assert pauses == [0, 0, 0]
    with pytest.raises(StoreUnavailable):
        retry.retry_after_deadlock(failing(1))()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_process_halted_in_a_transaction_does_not_keep_its_locks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.store.database._LEAST_IDLE_SECONDS", 2.0)
    desk = Desk(database)
    [item_id] = desk.enqueue(make_item())
    halted = Database(database.url, idle_seconds=2.0)

    def wake_up_late() -> None:
        with at(halted) as tx:
            assert desk.queue.claim(tx, "halted").ids == [item_id]
            assert not desk.claim(), "it is locked"
            wait_until(lambda: desk.claim().ids == [item_id])  # what it had locked is free
            tx.execute(sa.text("SELECT 1"))

    with closing(halted), pytest.raises(StoreUnavailable, match="idle"):
        wake_up_late()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_process_halted_between_the_rows_of_a_statement_does_not_keep_its_locks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres takes such a session for busy, not for idle."""
    monkeypatch.setattr("penstock.store.database._LEAST_IDLE_SECONDS", 0.5)
    desk = Desk(database)
    [item_id] = desk.enqueue(make_item())
    halted = Database(database.url, idle_seconds=0.5)

    def wake_up_late() -> None:
        with halted.write() as tx:
            driver: Any = tx.connection.connection.dbapi_connection
            with driver.pipeline(), driver.cursor() as cursor:
                cursor.execute("UPDATE work_items SET priority = 1 WHERE id = %s", [item_id])
                driver.pgconn.send_flush_request()
                driver.pgconn.flush()
                wait_until(lambda: not desk.claim(), 5)
                wait_until(lambda: desk.claim().ids == [item_id], 10)

    # The driver's own error, since the statement is the driver's own.
    with closing(halted), pytest.raises(OperationalError, match="closed the connection"):
        wake_up_late()


def test_one_process_at_a_time_has_the_lease(database: Database) -> None:
    inside = threading.Barrier(4, timeout=30)

    def take(_: int) -> bool:
        with leader_lease(database, "sweep") as ours:
            inside.wait()
            return ours

    for _ in range(5):
        assert sorted(run_together(4, take)) == [False, False, False, True]


def test_leases_of_two_tasks_are_independent(database: Database) -> None:
    with leader_lease(database, "sweep") as sweeps, leader_lease(database, "count") as counts:
        assert sweeps
        assert counts


def test_the_lease_of_a_dead_process_is_soon_free(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HELD_SECONDS", 2.0)
    dead = leader_lease(database, "sweep")
    assert dead.__enter__()
    with leader_lease(database, "sweep") as ours:
        assert not ours
    threading.Event().wait(2.1)
    with leader_lease(database, "sweep") as ours:
        assert ours
        dead.__exit__(None, None, None)
        with database.read() as tx:
            assert tx.execute(sa.select(duties.c.holder)).scalar_one() is not None, (
                "a process that wakes up late gives back only its own lease"
            )
