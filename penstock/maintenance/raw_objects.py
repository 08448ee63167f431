"""Deletes raw bytes that nothing refers to any more.

Only tenants and sources that this database knows are looked at, and only keys of our form. Storing
bytes renews their time, and they are referred to within minutes: what is a day old or more is safe
to delete, and nothing younger is deleted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import Any

import sqlalchemy as sa

from penstock.crawl.rawstore import PAYLOADS, UPLOADS, RawStore, StoredObject
from penstock.documents import Stage
from penstock.errors import DocumentFault, ErrorClass
from penstock.maintenance.retention import Figure, before, read_pages
from penstock.queue.items import ACTIVE_STATUSES, ItemStatus, payload_value
from penstock.store.database import Database
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import ACTIVE_ITEM, nodes, sources, texts, work_items

ROWS = 10_000
TOGETHER = 500
UNFINISHED_DAYS = 1
# A store that refuses so often refuses everything.
MOST_FAILURES = 20
EXPIRED = "raw objects of expired documents"
UNREFERENCED = "raw objects that nothing refers to"
UNFINISHED = "unfinished raw files"
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
    for row in chain.from_iterable(read_pages(database, work_items.c.id, _items(), ROWS)):
        if row.raw_key is not None:
            found.add(row.raw_key)
    c = nodes.c
    keys = sa.select(c.seq.label("key"), c.raw_key, c.expired_at).where(c.raw_key.is_not(None))
    for row in chain.from_iterable(read_pages(database, c.seq, keys, ROWS)):
        if expired_before is not None and row.expired_at and row.expired_at < expired_before:
            found.expired[row.raw_key] = row.key
        else:
            found.add(row.raw_key)
    return found


def _items() -> sa.Select[Any]:
    """Items that are not done or can be replayed, and those that a text can still be read from."""
    c = work_items.c
    textless = (
        sa.exists()
        .where(nodes.c.id == c.node_id)
        .where(~sa.exists().where(texts.c.seq == nodes.c.seq))
    )
    needed = sa.or_(c.status.in_(_NEEDED), sa.and_(c.stage == Stage.TEXT, textless))
    key = payload_value("raw_key").as_string()
    return sa.select(c.id.label("key"), key.label("raw_key")).where(needed)


@dataclass(slots=True)
class RawObjects:
    """One pass over a raw store."""

    database: Database
    raw: RawStore
    now: datetime
    expired_days: int
    old_days: int
    dry_run: bool
    deleted: Counter[str] = field(default_factory=Counter)
    """Objects that were deleted, or, in a dry run, would be, by kind."""
    deleted_bytes: Counter[str] = field(default_factory=Counter)
    _failures: list[str] = field(default_factory=list)

    def tidy(self) -> list[Figure]:
        """Delete what can go; how much. What the store refuses is an error in the end."""
        references = find_references(self.database, before(self.now, self.expired_days))
        for tenant, source in _known_places(self.database):
            self._tidy_place(self.raw.list_objects(tenant, source), references)
        if self._failures:
            raise DocumentFault(
                ErrorClass.UNAVAILABLE,
                f"{len(self._failures)} could not be deleted; the first: {self._failures[0]}",
            )
        kinds = (EXPIRED, UNREFERENCED, UNFINISHED)
        return [Figure(kind, self.deleted[kind], self.deleted_bytes[kind]) for kind in kinds]

    def _tidy_place(self, found: Iterable[StoredObject], references: References) -> None:
        unneeded = (one for one in found if one.key not in references)
        while some := list(islice(unneeded, TOGETHER)):
            unfinished = [one for one in some if one.is_unfinished]
            whole = [one for one in some if not one.is_unfinished]
            gone = [one for one in whole if one.key in references.expired]
            others = [one for one in whole if one.key not in references.expired]
            self._delete(UNFINISHED, unfinished, UNFINISHED_DAYS)
            self._delete(EXPIRED, self._release(gone, references), self.expired_days)
            self._delete(UNREFERENCED, others, self.old_days)

    def _release(
        self, found: Sequence[StoredObject], references: References
    ) -> Sequence[StoredObject]:
        """Those whose documents no longer name them: first the name, then the bytes."""
        limit = before(self.now, self.expired_days)
        if limit is None or not found:
            return ()
        old = [one for one in found if one.stored_at < limit]
        if self.dry_run:
            return old
        released = _release(self.database, [references.expired[one.key] for one in old], limit)
        return [one for one in old if one.key in released]

    def _delete(self, kind: str, found: Sequence[StoredObject], days: int) -> None:
        limit = before(self.now, days)
        for one in found:
            if limit is not None and one.stored_at < limit and self._is_deleted(one, limit):
                self.deleted[kind] += 1
                self.deleted_bytes[kind] += one.size

    def _is_deleted(self, one: StoredObject, limit: datetime) -> bool:
        if self.dry_run:
            return True
        try:
            return self.raw.delete_older(one.key, limit)
        except DocumentFault as error:
            self._failures.append(str(error))
            if len(self._failures) >= MOST_FAILURES:
                raise
            return False


def _known_places(database: Database) -> list[tuple[str, str]]:
    """Tenants and sources of this database: another one's may lie in the same store."""
    with database.read() as tx:
        named = {(row.tenant_id, row.name) for row in tx.execute(sa.select(sources))}
        tenants = set(tx.execute(sa.select(nodes.c.tenant_id).distinct()).scalars())
    tenants |= {tenant for tenant, _ in named}
    return sorted(named | {(tenant, name) for tenant in tenants for name in (PAYLOADS, UPLOADS)})


@retry_while_unavailable
def _release(database: Database, numbers: Sequence[int], limit: datetime) -> set[str]:
    """Take the names of raw bytes from documents that are still expired and at rest."""
    with database.write() as tx:
        at_work = sa.exists().where(work_items.c.node_id == nodes.c.id, ACTIVE_ITEM)
        own = sa.and_(tx.among(nodes.c.seq, numbers), nodes.c.expired_at < limit, ~at_work)
        locked = sa.select(nodes.c.seq, nodes.c.raw_key).where(own, nodes.c.raw_key.is_not(None))
        rows = tx.execute(locked.with_for_update(skip_locked=True, of=nodes)).all()
        ours = tx.among(nodes.c.seq, [row.seq for row in rows])
        tx.execute(sa.update(nodes).where(ours).values(raw_key=None))
        return {row.raw_key for row in rows}
