"""A lease on a task that one process at a time may do, such as recovery.

Not a database lock, which a halted process would keep. A process that takes longer than its lease
loses it, so two at once must be harmless.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import sqlalchemy as sa

from penstock.errors import StoreError
from penstock.store.database import Database
from penstock.store.schema import duties

HELD_SECONDS = 5.0


@contextmanager
def leader_lease(database: Database, name: str) -> Iterator[bool]:
    """True for the process that has the lease now, False for any other."""
    holder = uuid.uuid4().hex
    taken = _take(database, name, holder)
    try:
        yield taken
    finally:
        if taken:
            # Otherwise it runs out.
            with suppress(StoreError):
                _release(database, name, holder)


def _take(database: Database, name: str, holder: str) -> bool:
    with database.write() as tx:
        until = tx.now + timedelta(seconds=HELD_SECONDS)
        insert = tx.insert(duties).values(name=name, holder=holder, held_until=until)
        taken = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={"holder": insert.excluded.holder, "held_until": insert.excluded.held_until},
            where=duties.c.held_until <= tx.now,
        )
        return tx.execute(taken.returning(duties.c.name)).first() is not None


def _release(database: Database, name: str, holder: str) -> None:
    with database.write() as tx:
        own = sa.and_(duties.c.name == name, duties.c.holder == holder)
        tx.execute(sa.update(duties).where(own).values(holder=None, held_until=tx.now))
