"""Something that one process at a time does, on one database; whoever dies lets go of it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import sqlalchemy as sa

from penstock.locks import hold_lock
from penstock.store.database import Database


@contextmanager
def only_one(database: Database, what: str) -> Iterator[bool]:
    """True for the one that may do it now; False for everybody who comes meanwhile."""
    if database.is_sqlite:
        yield from _by_file(database, what)
        return
    # Held by a transaction: a lock of the session would outlive it behind a pooler.
    with database.read() as tx:
        key = crc32(f"penstock {what}".encode())
        yield bool(tx.execute(sa.select(sa.func.pg_try_advisory_xact_lock(key))).scalar())


def _by_file(database: Database, what: str) -> Iterator[bool]:
    path = Path(str(database.engine.url.database))
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(path.with_name(f"{path.name}-{what}.lock"), 0))
            alone = True
        except TimeoutError:
            alone = False
        yield alone
