"""Has a database count on from where another one has come to, so that no id is given twice.

The counter, not the largest row, is what counts: logs and figures still name rows that are gone.
"""

from collections.abc import Iterator

import sqlalchemy as sa

from penstock.store.moving_rows import moved_tables


def continue_numbers(source: sa.Connection, target: sa.Connection) -> None:
    """Set the counter of every table with numbered rows."""
    for table, column in _numbered():
        last = _last_number(source, table, column)
        if last:
            _set_number(target, table, column, last)


def _numbered() -> Iterator[tuple[sa.Table, sa.Column[int]]]:
    for table in moved_tables():
        if table.autoincrement_column is not None:
            yield table, table.autoincrement_column


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
    if target.dialect.name == "postgresql":
        query = "SELECT setval(pg_get_serial_sequence(:table, :column), :last)"
        names = {"table": table.name, "column": column.name}
        target.execute(sa.text(query), {**names, "last": last})
    elif _keeps_counter(table):
        names = {"table": table.name}
        target.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :table"), names)
        row = sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)")
        target.execute(row, {**names, "last": last})


def _keeps_counter(table: sa.Table) -> bool:
    """Otherwise SQLite goes by the largest number that is there."""
    return bool(table.dialect_options["sqlite"]["autoincrement"])
