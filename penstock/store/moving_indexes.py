"""What search needs beside the rows: made when all rows are there, which is several times faster
than keeping it up row by row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.moving_rows import Tell
from penstock.store.schema import embeddings

MakeIndex = Callable[[Tx, str], None]
"""Makes what search by vectors of one identity needs."""

# An index that does not fit is built several times slower. Postgres takes what it needs of this.
_BUILD_MEMORY = "256MB"


@contextmanager
def indexed_afterwards(tx: Tx, make_index: MakeIndex, tell: Tell) -> Iterator[None]:
    """Fill the tables inside; the indexes of texts and vectors are built at the end."""
    if tx.connection.dialect.name != "postgresql":
        yield
        return
    texts = _set_aside_text_indexes(tx)
    yield
    tx.connection.exec_driver_sql(f"SET LOCAL maintenance_work_mem = '{_BUILD_MEMORY}'")
    vectors = tx.execute(sa.select(embeddings.c.identity).distinct()).scalars().all()
    total = len(texts) + len(vectors)
    for done, definition in enumerate(texts):
        tell("search indexes", done, total)
        tx.connection.exec_driver_sql(definition)
    for done, identity in enumerate(vectors, start=len(texts)):
        tell("search indexes", done, total)
        make_index(tx, identity)
    tell("search indexes", total, total)
    # Until it looks by itself, Postgres would plan as if the tables were still empty.
    tx.connection.exec_driver_sql("ANALYZE")


def _set_aside_text_indexes(tx: Tx) -> list[str]:
    """Drop them; how to make them again."""
    query = "SELECT indexname, indexdef FROM pg_indexes WHERE indexname = 'ix_texts_search'"
    found = tx.connection.exec_driver_sql(f"{query} AND schemaname = current_schema()").all()
    for name, _ in found:
        tx.connection.exec_driver_sql(f"DROP INDEX {name}")
    return [definition for _, definition in found]
