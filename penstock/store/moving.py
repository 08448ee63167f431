"""Moves everything in one database to an empty one: from SQLite to Postgres, as a rule.

The target gets all of it in one transaction. Whoever is killed half-way leaves it empty.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from penstock.store.database import Database, Tx
from penstock.store.migration import check, migrate
from penstock.store.moving_checks import (
    compare_counts,
    refuse_busy,
    refuse_foreign,
    refuse_same,
    reserve,
)
from penstock.store.moving_indexes import MakeIndex, indexed_afterwards
from penstock.store.moving_numbers import continue_numbers
from penstock.store.moving_rows import Tell, copy_table, moved_tables


def move_database(
    source: Database, target: Database, make_index: MakeIndex, tell: Tell
) -> dict[str, int]:
    """Copy every row; how many of each table. The source is only read."""
    refuse_same(source, target)
    check(source)
    with source.outside() as connection:
        refuse_busy(connection)
    refuse_foreign(target)
    migrate(target)
    with target.write() as tx:
        others = reserve(tx, target)
        with indexed_afterwards(tx, make_index, tell):
            moved = _copy_all(source, tx, tell)
            compare_counts(source, tx, others)
    return moved


def _copy_all(source: Database, tx: Tx, tell: Tell) -> dict[str, int]:
    with _snapshot(source) as connection:
        refuse_busy(connection)
        moved = {t.name: copy_table(connection, tx, t, tell) for t in moved_tables()}
        continue_numbers(connection, tx.connection)
    return moved


@contextmanager
def _snapshot(database: Database) -> Iterator[sa.Connection]:
    """All tables as they are at one moment, whoever writes meanwhile."""
    one_moment = "" if database.is_sqlite else " ISOLATION LEVEL REPEATABLE READ READ ONLY"
    with database.outside() as connection:
        connection.exec_driver_sql(f"BEGIN{one_moment}")
        yield connection
