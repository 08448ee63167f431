"""Copies the rows of a table from one database to another, as exactly as both can hold them."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from penstock.store.columns import Json
from penstock.store.database import Tx
from penstock.store.schema import duties, metadata

Tell = Callable[[str, int, int], None]
"""Told what is being moved, how much of it is done, and how much there is."""

BATCH_ROWS = 1000
_NO_NUMBER = re.compile("NaN|Infinity")


def moved_tables() -> list[sa.Table]:
    """In an order in which no row refers to one that is not there yet."""
    # A duty is held for seconds, by a process that works on that database.
    return [table for table in metadata.sorted_tables if table is not duties]


def copy_table(source: sa.Connection, target: Tx, table: sa.Table, tell: Tell) -> int:
    """Copy every row, without ever holding more than a batch; how many there were."""
    total = count_rows(source, table)
    done = 0
    tell(table.name, done, total)
    insert = _insert(table, to_postgres=target.connection.dialect.name == "postgresql")
    for rows in _read(source, table):
        target.execute(insert, rows)
        done += len(rows)
        tell(table.name, done, total)
    return done


def count_rows(connection: sa.Connection, table: sa.Table) -> int:
    found: int = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    return found


def _read(source: sa.Connection, table: sa.Table) -> Iterator[list[dict[str, Any]]]:
    columns = [_as_read(column).label(f"b_{column.name}") for column in table.c]
    query = sa.select(*columns).order_by(*table.primary_key)
    answer = source.execute(query.execution_options(yield_per=BATCH_ROWS))
    documents = [f"b_{column.name}" for column in table.c if _is_json(column)]
    for part in answer.mappings().partitions():
        yield [{**row, **{name: _valid(row[name]) for name in documents}} for row in part]


def _insert(table: sa.Table, *, to_postgres: bool) -> sa.Insert:
    values: dict[str, sa.ColumnElement[Any]] = {}
    for column in table.c:
        as_text = _is_json(column)
        bind = sa.bindparam(f"b_{column.name}", type_=sa.Text() if as_text else column.type)
        values[column.name] = sa.cast(bind, JSONB) if as_text and to_postgres else bind
    return sa.insert(table).values(values)


def _as_read(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    # As a value, JSON's null and no value at all would be the same None.
    return sa.cast(column, sa.Text) if _is_json(column) else column


def _is_json(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, Json)


def _valid(text: str | None) -> str | None:
    """Python writes and SQLite keeps numbers that JSON does not have, and Postgres refuses."""
    if text is None or not _NO_NUMBER.search(text):
        return text
    return json.dumps(json.loads(text, parse_constant=lambda _: None))
