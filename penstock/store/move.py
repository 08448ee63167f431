"""Copies a whole database into an empty one, as a rule from SQLite to Postgres.

Search indexes are built when all rows are there, which is several times faster. Sequences go on
from the counter, not from the largest row: logs still name rows that are gone.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from penstock.errors import StoreError, UsageError
from penstock.settings import mask_url
from penstock.store.columns import Json
from penstock.store.database import Database, Tx
from penstock.store.migration import check, current_revision, migrate
from penstock.store.schema import (
    ACTIVE_RUN,
    LEASED_ITEM,
    duties,
    embeddings,
    metadata,
    runs,
    sources,
    work_items,
    workers,
)

ReportProgress = Callable[[str, int, int], None]
"""Called with what is being copied, how much of it is done, and how much there is."""
MakeIndex = Callable[[Tx, str], None]
"""Makes the index for search among vectors of one identity."""

BATCH_ROWS = 1000
# An index that does not fit is built several times slower. Postgres takes what it needs of this.
_BUILD_MEMORY = "256MB"
_NO_NUMBER = re.compile("NaN|Infinity")
_SHOWN = 5


def move_database(
    source: Database, target: Database, make_index: MakeIndex, progress: ReportProgress
) -> dict[str, int]:
    """Copy every row; how many of each table. The source is only read."""
    if source.engine.url == target.engine.url:
        raise UsageError(
            f"{mask_url(target.url)} is the database that is used now: name another one, "
            "or name the one to move from in PENSTOCK_DSN"
        )
    check(source)
    with source.outside() as connection:
        _refuse_busy(connection)
    _refuse_foreign(target)
    migrate(target)
    with target.write(lasting=True) as tx:
        waiting_workers = _reserve(tx, target)
        with _indexed_afterwards(tx, make_index, progress):
            with _snapshot(source) as connection:
                _refuse_busy(connection)
                moved = {
                    table.name: _copy_table(connection, tx, table, progress)
                    for table in moved_tables()
                }
                _continue_numbers(connection, tx.connection)
            _compare_counts(source, tx, waiting_workers)
    return moved


def moved_tables() -> list[sa.Table]:
    """In an order in which no row refers to one that is not there yet."""
    # The lease on a task is held for seconds, by a process that works on that database.
    return [table for table in metadata.sorted_tables if table is not duties]


@contextmanager
def _snapshot(database: Database) -> Iterator[sa.Connection]:
    """All tables as they are at one moment, whatever is written meanwhile."""
    one_moment = "" if database.is_sqlite else " ISOLATION LEVEL REPEATABLE READ READ ONLY"
    with database.outside() as connection:
        connection.exec_driver_sql(f"BEGIN{one_moment}")
        yield connection


def _copy_table(
    source: sa.Connection, target: Tx, table: sa.Table, progress: ReportProgress
) -> int:
    """Copy every row, a batch at a time; how many there were."""
    total = _count_rows(source, table)
    done = 0
    progress(table.name, done, total)
    # JSON travels as text: as a value, JSON's null and no value at all would be the same None.
    columns, values = [], {}
    for column in table.c:
        name, is_json = f"b_{column.name}", isinstance(column.type, Json)
        columns.append((sa.cast(column, sa.Text) if is_json else column).label(name))
        bind = sa.bindparam(name, type_=sa.Text() if is_json else column.type)
        values[column.name] = sa.cast(bind, JSONB) if is_json and target.is_postgres else bind
    insert = sa.insert(table).values(values)
    texts = [f"b_{column.name}" for column in table.c if isinstance(column.type, Json)]
    rows = sa.select(*columns).order_by(*table.primary_key)
    answer = source.execute(rows.execution_options(yield_per=BATCH_ROWS))
    for part in answer.mappings().partitions():
        target.execute(
            insert, [{**row, **{name: _valid(row[name]) for name in texts}} for row in part]
        )
        done += len(part)
        progress(table.name, done, total)
    return done


def _count_rows(connection: sa.Connection, table: sa.Table) -> int:
    found: int = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    return found


def _valid(text: str | None) -> str | None:
    """Python writes and SQLite keeps numbers that JSON does not have, and Postgres refuses."""
    if text is None or not _NO_NUMBER.search(text):
        return text
    return json.dumps(json.loads(text, parse_constant=lambda _: None))


def _refuse_busy(source: sa.Connection) -> None:
    """Active runs and workers would go on writing to the old database."""
    joined = runs.join(sources, sources.c.id == runs.c.source_id)
    active = sa.select(runs.c.id, sources.c.name).select_from(joined).where(ACTIVE_RUN)
    found = [f"{row.id} ({row.name})" for row in source.execute(active.order_by(runs.c.id))]
    if found:
        raise StoreError(
            f"a database is moved only when no run is active, and these are: {_short(found)}. "
            "Wait until they end, go on with one that was interrupted (`penstock resume RUN`), "
            "or give one up (`penstock runs abort RUN`)"
        )
    owner, count = work_items.c.lease_owner, sa.func.count().label("jobs")
    leased = sa.select(owner, count).where(LEASED_ITEM).group_by(owner).order_by(owner)
    found = [f"{row.lease_owner} ({row.jobs} jobs)" for row in source.execute(leased)]
    if found:
        raise StoreError(
            f"a database is moved only when no worker uses it, and these hold jobs: "
            f"{_short(found)}. Stop them (Ctrl-C, or `penstock down`); what a dead one held is "
            "taken back by `penstock maintain`, as soon as its lease has run out"
        )


def _refuse_foreign(target: Database) -> None:
    """Our tables cannot be made where another program's have their names."""
    if current_revision(target) is not None:
        return
    with target.read() as tx:
        taken = sorted(metadata.tables.keys() & sa.inspect(tx.connection).get_table_names())
    if taken:
        raise StoreError(
            f"the database {mask_url(target.url)} has tables of another program "
            f"({_short(taken)}): name an empty database, as `createdb NAME` makes one"
        )


def _reserve(tx: Tx, target: Database) -> int:
    """Keep others from writing to the target, which must be empty; how many workers it has.

    Workers may wait there for work already, as those of `penstock up` do.
    """
    wanted = [table for table in moved_tables() if table is not workers]
    if tx.is_postgres:
        names = ", ".join(table.name for table in wanted)
        tx.connection.exec_driver_sql(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
    counted = [(table.name, _count_rows(tx.connection, table)) for table in wanted]
    found = [f"{count} in {name}" for name, count in counted if count]
    if found:
        raise StoreError(
            f"the database {mask_url(target.url)} is not empty, it has rows: {_short(found)}. "
            "Name an empty database, as `createdb NAME` makes one; nothing was changed"
        )
    return _count_rows(tx.connection, workers)


def _compare_counts(source: Database, tx: Tx, waiting_workers: int) -> None:
    """The target has what the source has by now, beside the workers that it had before."""
    with source.read() as now:
        _refuse_busy(now.connection)
        there = {table.name: _count_rows(now.connection, table) for table in moved_tables()}
    there[workers.name] += waiting_workers
    for table in moved_tables():
        copied = _count_rows(tx.connection, table)
        if copied != there[table.name]:
            raise StoreError(
                f"{table.name} has {there[table.name]} rows, and {copied} were copied: something "
                "was written meanwhile. Nothing was moved: stop every program that uses the "
                "database, and try again"
            )


def _short(things: list[str]) -> str:
    more = f" and {len(things) - _SHOWN} more" if len(things) > _SHOWN else ""
    return ", ".join(things[:_SHOWN]) + more


@contextmanager
def _indexed_afterwards(tx: Tx, make_index: MakeIndex, progress: ReportProgress) -> Iterator[None]:
    """Fill the tables inside; on Postgres, the search indexes are built at the end."""
    if not tx.is_postgres:
        yield
        return
    run = tx.connection.exec_driver_sql
    query = "SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_texts_search'"
    texts = run(f"{query} AND schemaname = current_schema()").scalars().all()
    run("DROP INDEX IF EXISTS ix_texts_search")
    yield
    run(f"SET LOCAL maintenance_work_mem = '{_BUILD_MEMORY}'")
    vectors = tx.execute(sa.select(embeddings.c.identity).distinct()).scalars().all()
    total = len(texts) + len(vectors)
    for done, definition in enumerate(texts):
        progress("search indexes", done, total)
        run(definition)
    for done, identity in enumerate(vectors, start=len(texts)):
        progress("search indexes", done, total)
        make_index(tx, identity)
    progress("search indexes", total, total)
    # Until its next look, Postgres would plan as if the tables were still empty.
    run("ANALYZE")


def _continue_numbers(source: sa.Connection, target: sa.Connection) -> None:
    """Set the counter of every table with numbered rows."""
    for table in moved_tables():
        column = table.autoincrement_column
        if column is not None and (last := _last_number(source, table, column)):
            _set_number(target, table, column, last)


def _last_number(source: sa.Connection, table: sa.Table, column: sa.Column[int]) -> int:
    largest = source.execute(sa.select(sa.func.max(column))).scalar_one_or_none()
    given = None
    if source.dialect.name == "postgresql":
        query = "SELECT pg_sequence_last_value(pg_get_serial_sequence(:table, :column)::regclass)"
        names = {"table": table.name, "column": column.name}
        given = source.execute(sa.text(query), names).scalar_one()
    elif _keeps_counter(table):
        query = "SELECT seq FROM sqlite_sequence WHERE name = :table"
        given = source.execute(sa.text(query), {"table": table.name}).scalar_one_or_none()
    return max(largest or 0, given or 0)


def _set_number(target: sa.Connection, table: sa.Table, column: sa.Column[int], last: int) -> None:
    names = {"table": table.name, "column": column.name, "last": last}
    if target.dialect.name == "postgresql":
        query = "SELECT setval(pg_get_serial_sequence(:table, :column), :last)"
        target.execute(sa.text(query), names)
    elif _keeps_counter(table):
        target.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :table"), names)
        row = "INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"
        target.execute(sa.text(row), names)


def _keeps_counter(table: sa.Table) -> bool:
    """Otherwise SQLite goes by the largest number that is there."""
    return bool(table.dialect_options["sqlite"]["autoincrement"])
