"""Vector search (sqlite-vec, pgvector), and which embedder's vectors it uses.

A document has a vector for each of its passages, and is as near as the nearest of them. One that
an earlier version has embedded has a single vector, of its beginning, until a backfill.

Each identity has an index, made when it is first met. On Postgres it is HNSW, which finds nearly
all of the nearest. On SQLite it is a table of vectors rounded to bytes, apart by tenant, a quarter
of the size: all of a tenant are compared there, and the nearest again by their exact vectors.
Triggers keep that table as the vectors are. Without an index, every vector is compared.

The store remembers one identity. When the settings name another model, its vectors are made
beside the old ones, and search changes over when they are complete.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.search.query import Filters, Found, Scope
from penstock.store.database import Database, Tx
from penstock.store.schema import embeddings, nodes, vector_identity

_INDEX_LOCK = int.from_bytes(b"hnsw", "big")
# How many passages the index is asked for, for each document that is wanted: some are of the same
# one, rounding moves a vector by a few places, and HNSW passes over few. Filters pass over more.
_AGAIN, _AGAIN_FILTERED = 2, 8
_LEAST_AGAIN = 100
# If they are of too few documents, for so many times as many, at most what the table of vectors
# allows. HNSW goes on by itself when it has looked at as many as it allows at once.
_FURTHER, _MOST_AGAIN, _MOST_AT_ONCE = 4, 4000, 1000
# The key of a passage: what SQLite numbers vectors by has one number.
_POSITIONS = 1 << 16


def search_vectors(tx: Tx, vector: bytes, identity: str, scope: Scope, limit: int) -> list[Found]:
    """Documents by their nearest passage, which they are found with, nearest first; among vectors
    of exactly this identity."""
    if scope.few is None and _has_index(tx, identity):
        nearest = _nearest_hnsw if tx.is_postgres else _nearest_rounded
        for count in _counts(scope, limit):
            near = nearest(tx, vector, identity, scope, count)
            found = scope.first_passing(tx, _best_of_each(near), limit)
            if len(found) == limit:
                return found
            if len(near) < count:
                break
        # Fewer: the filters passed over most of the nearest. Without any, HNSW has gone on as far
        # as it goes.
        if found and tx.is_postgres and not scope.filters.narrow:
            return found
    return _search_all(tx, vector, identity, scope, limit)


def _counts(scope: Scope, limit: int) -> Iterator[int]:
    again = _AGAIN_FILTERED if scope.filters.narrow else _AGAIN
    count = max(limit * again, _LEAST_AGAIN)
    while count < _MOST_AGAIN:
        yield count
        count *= _FURTHER
    yield _MOST_AGAIN


def _best_of_each(near: Iterable[Found]) -> Iterator[Found]:
    """Each document once, with the first of its passages."""
    known: set[int] = set()
    for found in near:
        if found.seq not in known:
            known.add(found.seq)
            yield found


def _search_all(tx: Tx, vector: bytes, identity: str, scope: Scope, limit: int) -> list[Found]:
    """Exactly: every vector that the filters let through is compared."""
    measured = _measure(tx, vector, identity)
    if scope.few is None:
        joined = measured.join(nodes, nodes.c.seq == embeddings.c.seq)
        measured = joined.where(*scope.filters.conditions(tx))
    else:
        measured = measured.where(tx.among(embeddings.c.seq, scope.few))
    # Measured first: the index of Postgres would find some of them only.
    each = measured.cte("measured").prefix_with("MATERIALIZED")
    place = sa.func.row_number().over(partition_by=each.c.seq, order_by=each.c.distance)
    best = sa.select(each, place.label("place")).subquery("best")
    nearest = sa.select(best).where(best.c.place == 1).order_by(best.c.distance)
    return _as_found(tx.execute(nearest.limit(limit)))


def _nearest_hnsw(tx: Tx, vector: bytes, identity: str, scope: Scope, count: int) -> list[Found]:
    tx.execute(sa.text(f"SET LOCAL hnsw.ef_search = {min(count, _MOST_AT_ONCE)}"))
    # Tenants come after the index: it has to go on until enough of its results are of this one.
    tx.execute(sa.text("SET LOCAL hnsw.iterative_scan = strict_order"))
    # Other filters are asked of what was found: Postgres cannot tell how many they let through.
    own = Filters(scope.filters.tenant_id).conditions(tx)
    measured = _measure(tx, vector, identity).join(nodes, nodes.c.seq == embeddings.c.seq)
    return _as_found(tx.execute(measured.where(*own).order_by("distance").limit(count)))


def _nearest_rounded(tx: Tx, vector: bytes, identity: str, scope: Scope, count: int) -> list[Found]:
    # The nearest by what is rounded, each with its exact distance.
    nearest = sa.text(
        f"WITH near AS MATERIALIZED (SELECT rowid AS key FROM {index_name(identity)} "
        f"WHERE vector MATCH {_rounded(':vector')} AND k = :count AND tenant_id = :tenant_id) "
        "SELECT e.seq, e.position, vec_distance_cosine(e.vector, :vector) AS distance "
        f"FROM near CROSS JOIN embeddings AS e ON e.seq = near.key / {_POSITIONS} "
        f"AND e.identity = :identity AND e.position = near.key % {_POSITIONS} "
        "WHERE distance IS NOT NULL ORDER BY distance"
    )
    given = {"vector": vector, "count": count, "tenant_id": scope.filters.tenant_id}
    return _as_found(tx.execute(nearest, given | {"identity": identity}))


def _measure(tx: Tx, vector: bytes, identity: str) -> sa.Select[Any]:
    distance = _distance(tx, vector, identity)
    c = embeddings.c
    measured = sa.select(c.seq, c.position, distance.label("distance")).select_from(embeddings)
    # A vector of length zero, from a text without words, is at no distance from anything.
    return measured.where(_of_identity(identity), distance.is_not(None))


def _as_found(rows: Iterable[sa.Row[Any]]) -> list[Found]:
    return [
        Found(row.seq, 1.0 - row.distance, position=row.position)
        for row in rows
        if not math.isnan(row.distance)
    ]


def ensure_index(tx: Tx, identity: str) -> None:
    """An index over the vectors of one identity, made when it is first met."""
    # Asked first: on Postgres CREATE INDEX waits for writers, also when the index is there.
    if _has_index(tx, identity):
        return
    statements = _postgres_index(identity) if tx.is_postgres else _sqlite_index(identity)
    for statement in statements:
        tx.connection.exec_driver_sql(statement)


def _has_index(tx: Tx, identity: str) -> bool:
    name = index_name(identity)
    if tx.is_postgres:
        return tx.execute(sa.select(sa.func.to_regclass(name))).scalar_one() is not None
    known = sa.text("SELECT 1 FROM sqlite_master WHERE name = :name")
    return tx.execute(known, {"name": name}).first() is not None


def _postgres_index(identity: str) -> list[str]:
    return [
        # One at a time: two that make the same index at once fail, in spite of IF NOT EXISTS.
        f"SELECT pg_advisory_xact_lock({_INDEX_LOCK})",
        f"CREATE INDEX IF NOT EXISTS {index_name(identity)} ON embeddings USING hnsw "
        f"((vector::vector({dimensions_of(identity)})) vector_cosine_ops) "
        f"WHERE identity = {_quoted(identity)}",
    ]


def _sqlite_index(identity: str) -> list[str]:
    name, own = index_name(identity), _quoted(identity)
    insert = f"INSERT INTO {name} (rowid, tenant_id, vector)"
    tenant = "(SELECT tenant_id FROM nodes WHERE seq = new.seq)"
    # By VALUES: what SQLite sets down in between loses that it is a vector of bytes.
    insert_new = f"{insert} VALUES ({_key('new')}, {tenant}, {_rounded('new.vector')})"
    delete_old = f"DELETE FROM {name} WHERE rowid = {_key('old')}"
    return [
        # A tenant takes at least one chunk.
        f"CREATE VIRTUAL TABLE {name} USING vec0(tenant_id TEXT PARTITION KEY, "
        f"vector INT8[{dimensions_of(identity)}] distance_metric=L2, chunk_size=256)",
        f"{insert} SELECT {_key('embeddings')}, nodes.tenant_id, {_rounded('embeddings.vector')} "
        f"FROM embeddings JOIN nodes ON nodes.seq = embeddings.seq "
        f"WHERE embeddings.identity = {own}",
        f"CREATE TRIGGER {name}_insert AFTER INSERT ON embeddings WHEN new.identity = {own} "
        f"BEGIN {insert_new}; END",
        f"CREATE TRIGGER {name}_update AFTER UPDATE OF vector ON embeddings "
        f"WHEN new.identity = {own} BEGIN {delete_old}; {insert_new}; END",
        f"CREATE TRIGGER {name}_delete AFTER DELETE ON embeddings WHEN old.identity = {own} "
        f"BEGIN {delete_old}; END",
    ]


def _key(row: str) -> str:
    """Of a passage, in one number."""
    return f"{row}.seq * {_POSITIONS} + {row}.position"


def _rounded(vector: str) -> str:
    return f"vec_quantize_int8(vec_normalize({vector}), 'unit')"


def index_name(identity: str) -> str:
    return f"ix_embeddings_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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

    typed = VECTOR(dimensions_of(identity))
    column = sa.cast(embeddings.c.vector, typed)
    return column.op("<=>", return_type=sa.Float())(
        sa.cast(sa.literal(vector, embeddings.c.vector.type), typed)
    )


def _of_identity(identity: str) -> sa.ColumnElement[bool]:
    # Written out, so that Postgres uses the partial index of this identity.
    quoted = _quoted(identity).replace(":", "\\:")
    return sa.text(f"embeddings.identity = {quoted}")  # type: ignore[return-value]


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
        .where(embeddings.c.position == 0)
    )
    new = embeddings.alias("new")
    same = sa.and_(new.c.seq == nodes.c.seq, new.c.identity == wanted, new.c.position == 0)
    lacking = present.where(~sa.exists().where(same))
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
