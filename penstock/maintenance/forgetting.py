"""Deletes many rows in small transactions, so that nobody waits for it."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Database, Tx
from penstock.store.patience import patient

log = logging.getLogger(__name__)

ROWS = 2000
TOLD_EVERY_SECONDS = 5.0
Rows = Sequence[sa.Row[Any]]


def _nothing(_: object, __: Rows) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Old:
    """Rows of one table that nobody needs any more."""

    name: str
    key: sa.Column[Any]
    """By which they are gone through, in its order; unique among these rows."""
    conditions: tuple[sa.ColumnElement[bool], ...]
    columns: tuple[sa.Column[Any], ...] = ()
    """What the two below have to know of the rows, beside their keys."""
    prepare: Callable[[Database, Rows], None] = field(default=_nothing)
    """Done before they are deleted, outside that transaction."""
    account: Callable[[Tx, Rows], None] = field(default=_nothing)
    """Done together with the deletion, for exactly those that are deleted."""

    @property
    def table(self) -> sa.Table:
        return self.key.table

    def select(self) -> sa.Select[Any]:
        return sa.select(self.key.label("key"), *self.columns).where(*self.conditions)


def count_old(database: Database, old: Old) -> int:
    """How many there are."""
    with database.read() as tx:
        counted = sa.select(sa.func.count()).select_from(old.table).where(*old.conditions)
        return int(tx.execute(counted).scalar_one())


def forget(database: Database, old: Old) -> int:
    """Delete them all; how many.

    They are looked for without any lock. Then those that were found are deleted, if they are still
    old and nobody is changing them at this moment: who is deleting never waits for anybody.
    Interrupted, it has deleted what it has; two at once share the work.
    """
    forgotten, told_at = 0, time.monotonic()
    for rows in _find(database, old):
        old.prepare(database, rows)
        began = time.monotonic()
        forgotten += _delete(database, old, [row.key for row in rows])
        ended = time.monotonic()
        if ended - told_at > TOLD_EVERY_SECONDS:
            log.info("%s: %d forgotten so far", old.name, forgotten)
            told_at = ended
        # The others' turn: SQLite has one writer, and does not let the one that waits go first.
        time.sleep(ended - began)
    return forgotten


def _find(database: Database, old: Old) -> Iterator[Rows]:
    last: Any = None
    while rows := _find_some(database, old, last):
        yield rows
        last = rows[-1].key


@patient
def _find_some(database: Database, old: Old, last: Any) -> Rows:
    some = old.select().order_by(old.key).limit(ROWS)
    if last is not None:
        # On from there: Postgres would walk again and again through what was deleted before.
        some = some.where(old.key > last)
    with database.read() as tx:
        return tx.execute(some).all()


@patient
def _delete(database: Database, old: Old, keys: list[Any]) -> int:
    with database.write() as tx:
        still = old.select().where(tx.among(old.key, keys)).order_by(old.key)
        rows = tx.execute(still.with_for_update(skip_locked=True, of=old.table)).all()
        old.account(tx, rows)
        own = tx.among(old.key, [row.key for row in rows])
        # With the conditions: the key may be unique among these rows alone.
        tx.execute(sa.delete(old.table).where(own, *old.conditions))
        return len(rows)
