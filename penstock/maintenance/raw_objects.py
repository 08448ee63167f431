"""Raw bytes that nobody needs any more: of documents long gone, older versions, unfinished files.

Only what lies under tenants and sources that this database knows is looked at, and only what has
the form of our keys. Whoever stores bytes gives them a new time, and refers to them within minutes;
so nothing that is a day old or more can be about to be referred to, and nothing younger is deleted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from penstock.crawl.rawstore import PAYLOADS, UPLOADS, RawStore, StoredObject
from penstock.errors import DocumentFault, ErrorClass
from penstock.maintenance.keeping import before
from penstock.maintenance.outcome import Figure
from penstock.maintenance.references import References, find_references
from penstock.store.database import Database
from penstock.store.patience import patient
from penstock.store.schema import ACTIVE_ITEM, nodes, sources, work_items

TOGETHER = 500
UNFINISHED_DAYS = 1
# A store that refuses so often refuses everything.
MOST_TROUBLE = 20


@dataclass(slots=True)
class Tally:
    """Objects of one kind that were deleted, or would be."""

    what: str
    objects: int = 0
    size: int = 0

    def add(self, one: StoredObject) -> None:
        self.objects += 1
        self.size += one.size

    @property
    def figure(self) -> Figure:
        return Figure(self.what, self.objects, self.size)


@dataclass(slots=True)
class RawObjects:
    """One pass over a raw store."""

    database: Database
    raw: RawStore
    now: datetime
    expired_days: int
    old_days: int
    dry_run: bool
    expired: Tally = field(default_factory=lambda: Tally("raw objects of expired documents"))
    old: Tally = field(default_factory=lambda: Tally("raw objects that nothing refers to"))
    unfinished: Tally = field(default_factory=lambda: Tally("unfinished raw files"))
    _trouble: list[str] = field(default_factory=list)

    def tidy(self) -> list[Figure]:
        """Delete what can go; how much. What the store refuses is an error in the end."""
        references = find_references(self.database, before(self.now, self.expired_days))
        for tenant, source in _known_places(self.database):
            self._tidy_place(self.raw.list_objects(tenant, source), references)
        if self._trouble:
            raise DocumentFault(
                ErrorClass.UNAVAILABLE,
                f"{len(self._trouble)} could not be deleted; the first: {self._trouble[0]}",
            )
        return [self.expired.figure, self.old.figure, self.unfinished.figure]

    def _tidy_place(self, found: Iterable[StoredObject], references: References) -> None:
        unneeded = (one for one in found if one.key not in references)
        for some in _in_chunks(unneeded):
            self._delete(
                self.unfinished, [one for one in some if one.is_unfinished], UNFINISHED_DAYS
            )
            whole = [one for one in some if not one.is_unfinished]
            gone = [one for one in whole if one.key in references.expired]
            others = [one for one in whole if one.key not in references.expired]
            self._delete(self.expired, self._release(gone, references), self.expired_days)
            self._delete(self.old, others, self.old_days)

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

    def _delete(self, tally: Tally, found: Sequence[StoredObject], days: int) -> None:
        limit = before(self.now, days)
        if limit is None:
            return
        for one in found:
            if one.stored_at < limit and self._is_deleted(one, limit):
                tally.add(one)

    def _is_deleted(self, one: StoredObject, limit: datetime) -> bool:
        if self.dry_run:
            return True
        try:
            return self.raw.delete_older(one.key, limit)
        except DocumentFault as error:
            self._trouble.append(str(error))
            if len(self._trouble) >= MOST_TROUBLE:
                raise
            return False


def _known_places(database: Database) -> list[tuple[str, str]]:
    """Tenants and sources of this database: another one's may lie in the same store."""
    with database.read() as tx:
        named = {(row.tenant_id, row.name) for row in tx.execute(sa.select(sources))}
        tenants = set(tx.execute(sa.select(nodes.c.tenant_id).distinct()).scalars())
    tenants |= {tenant for tenant, _ in named}
    return sorted(named | {(tenant, name) for tenant in tenants for name in (PAYLOADS, UPLOADS)})


@patient
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


def _in_chunks(found: Iterable[StoredObject]) -> Iterator[list[StoredObject]]:
    rest = iter(found)
    while some := list(islice(rest, TOGETHER)):
        yield some
