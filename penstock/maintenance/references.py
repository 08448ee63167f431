"""Which raw objects something refers to."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.store.database import Database
from penstock.store.patience import patient
from penstock.store.schema import nodes, texts, work_items
from penstock.work.items import ACTIVE_STATUSES, ItemStatus

ROWS = 10_000
_NEEDED = (*ACTIVE_STATUSES, ItemStatus.FAILED)


@dataclass(frozen=True, slots=True)
class References:
    """Keys that are needed, and those of documents that expired long ago.

    Of needed keys only a hash is held, of which millions fit into memory. Two keys that share one
    are both kept.
    """

    expired: dict[str, int] = field(default_factory=dict)
    """By key: the `seq` of its node."""
    _needed: set[int] = field(default_factory=set)

    def __contains__(self, key: str) -> bool:
        return hash(key) in self._needed

    def add(self, key: str) -> None:
        self._needed.add(hash(key))


def find_references(database: Database, expired_before: datetime | None) -> References:
    """Everything that refers to raw bytes now.

    Items come before nodes: one that is completed in between has handed its key to its node.
    """
    found = References()
    for row in _pages(database, work_items.c.id, _items()):
        if row.raw_key is not None:
            found.add(row.raw_key)
    for row in _pages(database, nodes.c.seq, _nodes()):
        if expired_before is not None and row.expired_at and row.expired_at < expired_before:
            found.expired[row.raw_key] = row.key
        else:
            found.add(row.raw_key)
    return found


def _items() -> sa.Select[Any]:
    """What is not done, what can be replayed, and whatever a text could still be read from."""
    c = work_items.c
    textless = (
        sa.exists()
        .where(nodes.c.id == c.node_id)
        .where(~sa.exists().where(texts.c.seq == nodes.c.seq))
    )
    needed = sa.or_(c.status.in_(_NEEDED), sa.and_(c.stage == Stage.TEXT, textless))
    key = sa.type_coerce(c.payload, sa.JSON())["raw_key"].as_string()
    return sa.select(c.id.label("key"), key.label("raw_key")).where(needed)


def _nodes() -> sa.Select[Any]:
    c = nodes.c
    return sa.select(c.seq.label("key"), c.raw_key, c.expired_at).where(c.raw_key.is_not(None))


def _pages(database: Database, key: sa.Column[Any], query: sa.Select[Any]) -> Iterator[sa.Row[Any]]:
    """A page at a time: no transaction lasts as long as all of it."""
    last = -1
    while rows := _page(database, query.where(key > last).order_by(key).limit(ROWS)):
        yield from rows
        last = rows[-1].key


@patient
def _page(database: Database, query: sa.Select[Any]) -> list[sa.Row[Any]]:
    with database.read() as tx:
        return list(tx.execute(query))
