"""Waiting for a database that is away, and duties that one process at a time has."""

import threading
from collections.abc import Callable
from contextlib import closing

import pytest
import sqlalchemy as sa

from penstock.errors import StoreError, StoreUnavailable
from penstock.store import duty as duties_of
from penstock.store import patience
from penstock.store.database import Database
from penstock.store.duty import duty
from penstock.store.schema import duties
from tests.factories import Desk, at, make_item
from tests.together import run_together

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_SECONDS", 0.001)


def failing(times: int, error: type[StoreError] = StoreUnavailable) -> Callable[[], int]:
    """Something that fails so often and then gives how often it was tried."""
    tries: list[int] = []

    def act() -> int:
        tries.append(1)
        if len(tries) <= times:
            raise error("away")
        return len(tries)

    return act


def test_what_the_database_missed_is_done_when_it_is_back() -> None:
    assert patience.patient(failing(3))() == 4


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable):
        patience.patient(failing(10_000))()


def test_a_refused_statement_is_not_tried_again() -> None:
    with pytest.raises(StoreError):
        patience.patient(failing(1, StoreError))()


def test_whoever_is_told_to_stop_does_not_wait() -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(StoreUnavailable):
        patience.until_back(failing(3), stopping.wait)


# SQLite has no server that could be away, and nobody who ends the transaction of another process.
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_connection_lost_in_a_transaction_is_a_database_away(database: Database) -> None:
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


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_process_halted_in_a_transaction_does_not_keep_its_locks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.store.database._LEAST_IDLE_SECONDS", 0.2)
    desk = Desk(database)
    [item_id] = desk.enqueue(make_item())
    halted = Database(database.url, idle_seconds=0.2)

    def wake_up_late() -> None:
        with at(halted) as tx:
            assert desk.queue.claim(tx, "halted").ids == [item_id]
            assert not desk.claim(), "it is locked"
            threading.Event().wait(0.6)
            assert desk.claim().ids == [item_id], "what it had locked is free"
            tx.execute(sa.text("SELECT 1"))

    with closing(halted), pytest.raises(StoreUnavailable, match="idle"):
        wake_up_late()


def test_one_at_a_time_has_a_duty(database: Database) -> None:
    inside = threading.Barrier(4, timeout=30)

    def take(_: int) -> bool:
        with duty(database, "sweep") as ours:
            inside.wait()
            return ours

    for _ in range(5):
        assert sorted(run_together(4, take)) == [False, False, False, True]


def test_duties_are_independent_of_each_other(database: Database) -> None:
    with duty(database, "sweep") as sweeps, duty(database, "count") as counts:
        assert sweeps
        assert counts


def test_the_duty_of_one_that_died_at_it_is_soon_free(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties_of, "HELD_SECONDS", 0.2)
    dead = duty(database, "sweep")
    assert dead.__enter__()
    with duty(database, "sweep") as ours:
        assert not ours
    threading.Event().wait(0.25)
    with duty(database, "sweep") as ours:
        assert ours
        dead.__exit__(None, None, None)
        with database.read() as tx:
            assert tx.execute(sa.select(duties.c.holder)).scalar_one() is not None, (
                "one that wakes up late lays down only its own"
            )
