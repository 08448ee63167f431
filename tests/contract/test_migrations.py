"""The migrations build exactly the schema that the code works with, once, whoever starts first."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from penstock.errors import SchemaMismatch
from penstock.store.database import Database
from penstock.store.migration import HEAD, alembic_config, check, current_revision, migrate
from penstock.store.schema import metadata, nodes, run_documents, work_items
from tests.together import wait_until

pytestmark = pytest.mark.both_databases

# Full-text search is written by hand for each database; reflection cannot see through it.
_BY_HAND = ("texts_fts", "ix_texts_search", "ix_work_items_next", "ix_work_items_run_next")

_MIGRATE = """
import sys
from penstock.store.database import Database
from penstock.store.migration import migrate

database = Database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
migrate(database)
database.close()
"""


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    database = Database(empty_url)
    yield database
    database.close()


def is_compared(_object: Any, name: str | None, kind: str, reflected: bool, _other: Any) -> bool:
    by_hand = (name or "").startswith(_BY_HAND) or (
        reflected and (kind, name) == ("column", "search")
    )
    return not by_hand and name != "alembic_version"


def describe(database: Database) -> set[str]:
    """Every column with its type and every index with its condition, as the database has them."""
    with database.read() as tx:
        inspector = sa.inspect(tx.connection)
        columns = {
            f"{table}.{column['name']} {column['type']!r} {column['nullable']}"
            for table in metadata.tables.keys() & {*inspector.get_table_names()}
            for column in inspector.get_columns(table)
            if column["name"] != "search"
        }
        query = "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        if not database.is_sqlite:
            query = (
                "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' "
                "AND indexname NOT IN ('ix_texts_search', 'alembic_version_pkc')"
            )
        return columns | set(tx.execute(sa.text(query)).scalars())


def set_revision(database: Database, revision: str) -> None:
    with database.write() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": revision})


def test_an_empty_database_gets_the_schema_of_the_code(empty: Database) -> None:
    assert migrate(empty)
    with empty.read() as tx:
        options = {"include_object": is_compared, "compare_type": True}
        context = MigrationContext.configure(tx.connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_migrations_and_tables_give_the_same_columns_and_indexes(empty: Database) -> None:
    migrate(empty)
    migrated = describe(empty)
    with empty.write() as tx:
        for view in sa.inspect(tx.connection).get_view_names():
            tx.execute(sa.text(f"DROP VIEW {view}"))
        metadata.drop_all(tx.connection)
        metadata.create_all(tx.connection)
    assert migrated == describe(empty)


def test_head_is_what_alembic_says(empty: Database) -> None:
    with empty.read() as tx:
        script = ScriptDirectory.from_config(alembic_config(tx.connection))
    assert script.get_heads() == [HEAD]


def test_a_second_migration_does_nothing(empty: Database) -> None:
    assert current_revision(empty) is None
    assert migrate(empty)
    assert not migrate(empty)
    assert current_revision(empty) == HEAD
    check(empty)


def test_a_database_without_schema_is_not_taken_for_a_current_one(empty: Database) -> None:
    with pytest.raises(SchemaMismatch, match=r"is at revision none.*penstock migrate"):
        check(empty)


def test_a_newer_database_is_refused_and_left_as_it_is(empty: Database) -> None:
    migrate(empty)
    set_revision(empty, "9999")
    for refused in (migrate, check):
        with pytest.raises(SchemaMismatch, match=r"newer Penstock.*9999.*upgrade Penstock"):
            refused(empty)
    assert current_revision(empty) == "9999"


def downgrade(database: Database, revision: str) -> None:
    with database.write() as tx:
        command.downgrade(alembic_config(tx.connection), revision)


def test_the_newest_revision_can_be_taken_back(empty: Database) -> None:
    migrate(empty)
    newest = describe(empty)
    downgrade(empty, "0010")
    assert describe(empty) != newest
    assert migrate(empty)
    assert describe(empty) == newest


@pytest.mark.parametrize("empty_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("revision", ["0009", "0010"])
def test_indexes_are_built_while_others_write(empty: Database, revision: str) -> None:
    migrate(empty)
    downgrade(empty, revision)
    with ThreadPoolExecutor(1) as pool:
        with empty.write() as tx:
            # Nobody can build an index on a table before this has ended.
            tx.execute(sa.update(work_items).values(priority=1))
            migrating = pool.submit(migrate, empty)
            wait_until(lambda: is_building(empty))
            with empty.write() as other:
                other.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
                other.execute(sa.update(work_items).values(priority=2))
        assert migrating.result(timeout=60)
    check(empty)


@pytest.mark.full_suite
@pytest.mark.parametrize("empty_url", ["postgres"], indirect=True)
def test_a_migration_succeeds_while_workers_write(empty: Database) -> None:
    migrate(empty)
    for _ in range(3):
        downgrade(empty, "0009")
        with writing(empty):
            assert migrate(empty)
        check(empty)


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """Four threads that write all the while, to the tables in the order in which workers do."""
    stop = threading.Event()
    begun = [threading.Event() for _ in range(4)]

    def write(number: int) -> None:
        while not stop.is_set():
            with database.write() as tx:
                tx.execute(sa.update(work_items).values(priority=number))
                begun[number].set()
                # Long enough for the migration to take a lock in between.
                stop.wait(0.003)
                tx.execute(sa.update(nodes).values(updated_at=tx.now))
                tx.execute(sa.update(run_documents).values(updated_at=tx.now))

    with ThreadPoolExecutor(len(begun)) as pool:
        writers = [pool.submit(write, number) for number in range(len(begun))]
        try:
            assert all(one.wait(60) for one in begun)
            yield
        finally:
            stop.set()
        for writer in writers:
            writer.result()


@pytest.mark.parametrize("empty_url", ["postgres"], indirect=True)
def test_an_index_whose_building_was_interrupted_is_built_again(empty: Database) -> None:
    of_index = "indexrelid = 'ix_nodes_raw'::regclass"
    migrate(empty)
    newest = describe(empty)
    downgrade(empty, "0010")
    with empty.write() as tx:
        tx.execute(sa.text("CREATE INDEX ix_nodes_raw ON nodes (raw_key)"))
        tx.execute(sa.text(f"UPDATE pg_index SET indisvalid = false WHERE {of_index}"))
    migrate(empty)
    assert describe(empty) == newest
    with empty.read() as tx:
        valid = tx.execute(sa.text(f"SELECT indisvalid FROM pg_index WHERE {of_index}"))
        assert valid.scalar_one()


def is_building(database: Database) -> bool:
    """Whether somebody waits to build an index."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%' "
        "AND wait_event_type = 'Lock' AND datname = current_database()"
    )
    with database.read() as tx:
        return bool(tx.execute(sa.text(query)).scalar_one())


@pytest.mark.full_suite
def test_two_processes_that_migrate_at_once_both_succeed(empty_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _MIGRATE, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        errors = [process.communicate(timeout=60)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], errors
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    database = Database(empty_url)
    try:
        check(database)
    finally:
        database.close()
