"""Vector search (sqlite-vec, pgvector), and which embedder's vectors it uses.

The store remembers one identity. When the settings name another model, its vectors are made
beside the old ones, and search changes over when they are complete.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.search.query import Filters, Found
from penstock.store.database import Database, Tx
from penstock.store.schema import embeddings, nodes, vector_identity

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
    if not tx.is_postgres:
        return
    name = f"ix_embeddings_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    # Asked first: CREATE INDEX waits for writers, also when the index is there.
    if tx.execute(sa.select(sa.func.to_regclass(name))).scalar_one() is not None:
        return
    # One at a time: two that make the same index at once fail, in spite of IF NOT EXISTS.
    tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_INDEX_LOCK)))
    quoted = identity.replace("'", "''")
    tx.connection.exec_driver_sql(
        f"CREATE INDEX IF NOT EXISTS {name} ON embeddings USING hnsw "
        f"((vector::vector({dimensions_of(identity)})) vector_cosine_ops) "
        f"WHERE identity = '{quoted}'"
    )


def prepare_index(database: Database, identity: str) -> None:
    """Create the index for vectors of this identity, before they are made."""
    with database.write() as tx:
        ensure_index(tx, identity)


def dimensions_of(identity: str) -> int:
    return int(identity.rpartition("@")[2])


def _distance(tx: Tx, vector: bytes, identity: str) -> sa.ColumnElement[float]:
    if not tx.is_postgres:
        return sa.func.vec_distance_cosine(embeddings.c.vector, sa.literal(vector, sa.LargeBinary))
    from pgvector.sqlalchemy import VECTOR

    # Filters come after the index: it has to go on until enough of its results pass them.
    tx.execute(sa.text("SET LOCAL hnsw.iterative_scan = strict_order"))
    typed = VECTOR(dimensions_of(identity))
    column = sa.cast(embeddings.c.vector, typed)
    return column.op("<=>", return_type=sa.Float())(
        sa.cast(sa.literal(vector, embeddings.c.vector.type), typed)
    )


def _of_identity(identity: str) -> sa.ColumnElement[bool]:
    # Written out, so that Postgres uses the partial index of this identity.
    quoted = identity.replace("'", "''").replace(":", "\\:")
    return sa.text(f"embeddings.identity = '{quoted}'")  # type: ignore[return-value]


# The share of nodes that may have failed for good: one broken document must not prevent the switch
# for ever, and a model that fails on all of them must not take over.
MOST_FAILED = 0.01
_SEARCH = "search"
_c = vector_identity.c


@dataclass(frozen=True, slots=True)
class Switch:
    """How far the change from one identity to another has come."""

    active: str
    wanted: str
    missing: int = 0
    """Nodes that search finds by their old vector and would not find by a new one."""
    failed: int = 0
    """The same, of nodes that could not be embedded by the new model."""
    nodes: int = 0
    """Nodes with an old vector."""

    @property
    def done(self) -> bool:
        return self.active == self.wanted

    @property
    def ready(self) -> bool:
        return self.missing == 0 and self.failed <= MOST_FAILED * self.nodes

    def as_json(self) -> dict[str, Any]:
        return {
            "active": self.active,
            "wanted": self.wanted,
            "pending": not self.done,
            "missing": self.missing,
            "failed": self.failed,
        }

    def __str__(self) -> str:
        if self.done:
            return self.active
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"search uses {self.active} until {self.wanted} is complete: "
            f"{self.missing} vectors are missing{failed}"
        )


def active_identity(tx: Tx) -> str | None:
    """The vectors that search looks among; None before anything was embedded."""
    found: str | None = tx.execute(
        sa.select(_c.identity).where(_c.name == _SEARCH)
    ).scalar_one_or_none()
    return found


def adopt_identity(tx: Tx, identity: str) -> None:
    """Let search use the first vectors there are; those of another identity wait for a switch."""
    row = {"name": _SEARCH, "identity": identity, "since": tx.now}
    tx.execute(tx.insert(vector_identity).values(row).on_conflict_do_nothing())


def look_at_switch(tx: Tx, wanted: str) -> Switch:
    """How far the vectors of the wanted identity are complete."""
    active = active_identity(tx) or wanted
    if active == wanted:
        return Switch(active, wanted)
    present = (
        sa.select(sa.func.count())
        .select_from(nodes.join(embeddings, embeddings.c.seq == nodes.c.seq))
        .where(embeddings.c.identity == active, nodes.c.expired_at.is_(None))
    )
    new = embeddings.alias("new")
    lacking = present.where(~sa.exists().where(new.c.seq == nodes.c.seq, new.c.identity == wanted))
    status = nodes.c.embedding_status
    # A text that has become empty has no vector any more.
    waiting = sa.or_(status.is_(None), status.not_in(["failed", "skipped"]))
    counted = [
        int(tx.execute(query).scalar_one())
        for query in (lacking.where(waiting), lacking.where(status == "failed"), present)
    ]
    return Switch(active, wanted, *counted)


def try_switch(database: Database, wanted: str) -> Switch:
    """Let search use these vectors if they are complete; how it stands after that."""
    with database.write() as tx:
        found = look_at_switch(tx, wanted)
        if found.done or not found.ready:
            return found
        row = sa.update(vector_identity).where(_c.name == _SEARCH, _c.identity == found.active)
        tx.execute(row.values(identity=wanted, previous=found.active, since=tx.now))
    return Switch(wanted, wanted)
