"""Transactions: committed whole or not at all, on connections that are found out when they die."""

import pytest
import sqlalchemy as sa

from penstock.errors import StoreUnavailable
from penstock.store.database import Database, Tx
from penstock.store.schema import sources
from tests.factories import add_source
from tests.together import run_together

pytestmark = pytest.mark.both_databases

on_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def names(database: Database) -> list[str]:
    with database.read() as tx:
        return sorted(tx.execute(sa.select(sources.c.name)).scalars())


def test_what_ends_well_is_committed_and_what_raises_is_not(database: Database) -> None:
    with database.write() as tx:
        add_source(tx, "kept")

    def fail() -> None:
        with database.write() as tx:
            add_source(tx, "undone")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert names(database) == ["kept"]


def test_functions_are_called_before_and_after_the_commit(database: Database) -> None:
    told: list[list[str]] = []

    def write_names(tx: Tx, things: list[str]) -> None:
        for name in things:
            add_source(tx, name)

    with database.write() as tx:
        tx.before_commit(write_names, ["a", "b"])
        tx.after_commit(told.append, ["one"])
        tx.after_commit(told.append, ["two"])
        assert told == []
    assert names(database) == ["a", "b"]
    assert [news for batch in told for news in batch] == ["one", "two"]


def test_the_time_has_a_zone_and_never_goes_back(database: Database) -> None:
    with database.read() as first, database.read() as second:
        assert first.now.utcoffset() is not None
        assert first.now <= second.now


def test_threads_write_beside_each_other(database: Database) -> None:
    def work(number: int) -> None:
        for n in range(5):
            with database.write() as tx:
                add_source(tx, f"{number}/{n}")

    run_together(4, work)
    assert len(names(database)) == 20


@on_postgres
def test_connections_that_died_in_the_pool_are_replaced(database: Database) -> None:
    def hold(_: int) -> None:
        with database.read() as tx:
            tx.execute(sa.text("SELECT pg_sleep(0.2)"))

    run_together(4, hold)
    killer = Database(database.url)
    kill = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with killer.read() as tx:
        assert len(tx.execute(kill).all()) >= 4
    killer.close()
    for number in range(6):
        with database.write() as tx:
            add_source(tx, f"{number}")
    assert len(names(database)) == 6


@on_postgres
def test_a_connection_that_dies_in_a_transaction_raises_and_the_next_one_works(
    database: Database,
) -> None:
    def die() -> None:
        with database.write() as tx:
            add_source(tx, "lost")
            tx.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(StoreUnavailable):
        die()
    with database.write() as tx:
        add_source(tx, "kept")
    assert names(database) == ["kept"]


@on_postgres
def test_a_server_that_is_not_there_is_unavailable(database: Database) -> None:
    del database
    nowhere = Database("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    with pytest.raises(StoreUnavailable, match="penstock doctor"), nowhere.read():
        pass
    nowhere.close()
