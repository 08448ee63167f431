"""Vector search: sqlite-vec on SQLite, pgvector with an HNSW index per identity on Postgres."""

import math

import sqlalchemy as sa

from penstock.search.query import Filters, Found
from penstock.store.database import Tx
from penstock.store.schema import embeddings, nodes

_INDEX_LOCK = int.from_bytes(b"hnsw", "big")


def search_vectors(
    tx: Tx, vector: bytes, identity: str, filters: Filters, limit: int
) -> list[Found]:
    """Nearest first, among vectors of exactly this identity."""
    distance = _distance(tx, vector, identity)
    statement = (
        sa.select(nodes.c.seq, distance.label("distance"))
        .join(embeddings, embeddings.c.seq == nodes.c.seq)
        # A vector of length zero, from a text without words, is at no distance from anything.
        .where(_of_identity(identity), *filters.conditions(tx), distance.is_not(None))
        .order_by(distance)
        .limit(limit)
    )
    rows = tx.execute(statement)
    return [Found(row.seq, 1.0 - row.distance) for row in rows if not math.isnan(row.distance)]


def ensure_index(tx: Tx, identity: str) -> None:
    """Postgres: an HNSW index over the vectors of one identity, made when it is first met."""
    if tx.connection.dialect.name != "postgresql":
        return
    import hashlib

    name = f"ix_embeddings_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if _has_index(tx, name):
        return
    # One at a time: two that make the same index at once fail, in spite of IF NOT EXISTS.
    tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_INDEX_LOCK)))
    quoted = identity.replace("'", "''")
    tx.connection.exec_driver_sql(
        f"CREATE INDEX IF NOT EXISTS {name} ON embeddings USING hnsw "
        f"((vector::vector({dimensions_of(identity)})) vector_cosine_ops) "
        f"WHERE identity = '{quoted}'"
    )


def _has_index(tx: Tx, name: str) -> bool:
    """Asked first, since CREATE INDEX waits for whoever is writing, also when there is one."""
    return tx.execute(sa.select(sa.func.to_regclass(name))).scalar_one() is not None


def dimensions_of(identity: str) -> int:
    return int(identity.rpartition("@")[2])


def _distance(tx: Tx, vector: bytes, identity: str) -> sa.ColumnElement[float]:
    if tx.connection.dialect.name != "postgresql":
        return sa.func.vec_distance_cosine(embeddings.c.vector, sa.literal(vector, sa.LargeBinary))
    from pgvector.sqlalchemy import VECTOR

    # Filters come after the index: it has to go on until enough of what it finds is wanted.
    tx.execute(sa.text("SET LOCAL hnsw.iterative_scan = strict_order"))
    typed = VECTOR(dimensions_of(identity))
    column = sa.cast(embeddings.c.vector, typed)
    return column.op("<=>", return_type=sa.Float())(
        sa.cast(sa.literal(vector, embeddings.c.vector.type), typed)
    )


def _of_identity(identity: str) -> sa.ColumnElement[bool]:
    # Written out, so that Postgres can see that the partial index of this identity applies.
    quoted = identity.replace("'", "''").replace(":", "\\:")
    return sa.text(f"embeddings.identity = '{quoted}'")  # type: ignore[return-value]
