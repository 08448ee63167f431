"""Stage `embed`: the last one; it ends the document's part in its run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault
from penstock.embed.embedder import Embedder
from penstock.errors import ConfigurationError
from penstock.failpoints import hit
from penstock.llm.profiles import profile_named, profile_names
from penstock.pipeline.keys import vector_key
from penstock.pipeline.stage import (
    Completion,
    StageContext,
    compute,
    split_faults,
    update_nodes,
)
from penstock.queue.items import Claim, Outcome, WorkItem
from penstock.search.vectors import active_identity, adopt_identity
from penstock.store.bulk import BulkStatement
from penstock.store.database import Tx
from penstock.store.schema import embeddings, nodes, texts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vectors:
    """The embedder of the settings, and a way to those of other identities."""

    embedder: Embedder
    others: Callable[[str], Embedder | None]

    @property
    def identity(self) -> str:
        return self.embedder.identity

    def older(self, tx: Tx) -> Embedder | None:
        """The embedder of the vectors that search uses, if it is not our own. New and changed
        documents get a vector of it too: else they would not be found before the switch."""
        active = active_identity(tx)
        return None if active in (None, self.identity) else self.others(str(active))


@dataclass(frozen=True, slots=True)
class _Subject:
    """One document as it would be embedded."""

    item: WorkItem
    seq: int
    whole: str
    """The text before it is cut to a model's window."""
    text: str
    hash: str
    embedded_before: bool
    unchanged: bool
    other_model: bool
    lacks_older: bool
    """Search uses the vectors of an older model, and this has none for its text."""

    @property
    def empty(self) -> bool:
        return not self.text.strip()

    @property
    def outcome(self) -> Outcome:
        if self.unchanged:
            return Outcome.UNCHANGED
        return Outcome.SKIPPED if self.empty else Outcome.DONE

    def message(self, identity: str) -> str:
        if self.unchanged:
            return "vector kept: what would be embedded is unchanged"
        if self.empty:
            return "not embedded: it has no text"
        if not self.embedded_before:
            return f"embedded by {identity}"
        reason = "other model" if self.other_model else "text changed"
        return (
            f"Triggered re-embed after extraction: node {self.item.node_id}, model {identity}, "
            f"reason {reason}"
        )


def process_embed(context: StageContext, claim: Claim, vectors: Vectors) -> list[WorkItem]:
    """Embed these documents and close them; nothing follows."""
    items = context.begin(claim, claim.items)
    hit("embed.begun")
    with context.database.read() as tx:
        older = vectors.older(tx)
        subjects = _load_subjects(tx, items, vectors, older)
    to_embed = [s for s in subjects if s.outcome is Outcome.DONE]
    step = partial(context.steps.embed, reused=sum(s.unchanged for s in subjects))
    texts_to_embed = [s.text for s in to_embed]
    # Also when all is reused: the step is to be seen in Prefect.
    computed = compute(step, _keys(to_embed), texts_to_embed) if to_embed else [*step([], [])]
    hit("embed.computed")
    good, bad = split_faults([s.item for s in to_embed], computed)
    found = {item.id: vector for item, vector in good}
    found_older = {} if older is None else _embed_older(older, subjects)
    completed = [
        Completion(s.item, s.outcome, s.message(vectors.identity))
        for s in subjects
        if s.outcome is not Outcome.DONE or s.item.id in found
    ]
    by_item = {s.item.id: s for s in subjects}

    def write(tx: Tx, done: Sequence[Completion]) -> None:
        ours = [by_item[one.item.id] for one in done]
        new = [s for s in ours if s.outcome is Outcome.DONE]
        if new and older is None:
            adopt_identity(tx, vectors.identity)
        _write_vectors(tx, new, vectors.identity, found)
        _write_statuses(tx, ours, vectors.identity)
        if older is not None:
            old = [s for s in ours if s.item.id in found_older]
            _write_vectors(tx, old, older.identity, found_older, measure_drift=False)

    return context.commit(claim, completed, bad, write)


def _embed_older(older: Embedder, subjects: Sequence[_Subject]) -> dict[int, bytes]:
    """Vectors of the model that search uses now. One that cannot be made is no fault of the
    document, which is found again after the switch."""
    lacking = [s for s in subjects if s.lacks_older and not s.empty]
    cut = [s.whole[: older.window_chars] for s in lacking]
    try:
        found = compute(lambda _, some: older.embed(some), _keys(lacking), cut)
    except ConfigurationError as error:
        log.warning("new documents are not found by meaning before the switch: %s", error)
        return {}
    pairs = zip(lacking, found, strict=True)
    return {s.item.id: vector for s, vector in pairs if not isinstance(vector, Fault)}


def _keys(subjects: Sequence[_Subject]) -> list[str]:
    return [f"{s.item.tenant_id}:{s.hash}" for s in subjects]


def _write_vectors(
    tx: Tx,
    subjects: Sequence[_Subject],
    identity: str,
    vectors: Mapping[int, bytes],
    *,
    measure_drift: bool = True,
) -> None:
    if not subjects:
        return
    numbers = [s.seq for s in subjects if s.embedded_before and measure_drift]
    c = embeddings.c
    query = sa.select(c.seq, c.vector).where(c.seq.in_(numbers), c.identity == identity)
    before = {row.seq: row.vector for row in tx.execute(query)} if numbers else {}
    rows = [
        {
            "seq": s.seq,
            "identity": identity,
            "vector": vectors[s.item.id],
            "drift": _drift(before.get(s.seq), vectors[s.item.id]),
            "embedded_at": tx.now,
        }
        for s in subjects
    ]
    _VECTOR_UPSERT.execute(tx, rows)


def _build_vector_upsert(tx: Tx) -> sa.Insert:
    insert = tx.insert(embeddings)
    fresh = {name: insert.excluded[name] for name in ("vector", "drift", "embedded_at")}
    conflict: dict[str, Any] = {"index_elements": ["seq", "identity"], "set_": fresh}
    return insert.on_conflict_do_update(**conflict)


_VECTOR_UPSERT = BulkStatement(_build_vector_upsert)


def _drift(old: bytes | None, new: bytes) -> float | None:
    """1 − cosine between the vector before and the vector now; both are of unit length."""
    if old is None:
        return None
    import numpy as np

    return float(1.0 - np.dot(np.frombuffer(old, "<f4"), np.frombuffer(new, "<f4")))


def _write_statuses(tx: Tx, subjects: Sequence[_Subject], identity: str) -> None:
    embedded: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for s in subjects:
        skipped = s.outcome is Outcome.SKIPPED
        row = {
            "id": s.item.node_id,
            "embedding_status": "skipped" if skipped else "ready",
            "embedding_reason": "empty_text" if skipped else None,
            "embedding_error": None,
            "updated_at": tx.now,
        }
        if s.outcome is Outcome.DONE:
            made = {"embedding_identity": identity, "embedded_hash": s.hash}
            embedded.append(row | made | {"embedded_at": tx.now})
        else:
            others.append(row)
    update_nodes(tx, embedded)
    update_nodes(tx, others)


def _load_subjects(
    tx: Tx,
    items: Sequence[WorkItem],
    vectors: Vectors,
    older: Embedder | None,
) -> list[_Subject]:
    columns = (
        nodes.c.id,
        nodes.c.seq,
        nodes.c.profile,
        nodes.c.fields,
        nodes.c.embedded_hash,
        nodes.c.embedding_identity,
        texts.c.title,
        texts.c.body,
        _has_vector(vectors.embedder).label("has_vector"),
        (_has_vector(older) if older else sa.false()).label("has_older"),
    )
    query = (
        sa.select(*columns)
        .outerjoin(texts, texts.c.seq == nodes.c.seq)
        .where(nodes.c.id.in_([item.node_id for item in items]))
    )
    rows = {row.id: row for row in tx.execute(query)}
    return [_subject(item, rows[item.node_id], vectors, older) for item in items]


def _has_vector(embedder: Embedder) -> sa.Exists:
    return sa.exists().where(
        embeddings.c.seq == nodes.c.seq, embeddings.c.identity == embedder.identity
    )


def _subject(
    item: WorkItem,
    row: sa.Row[Any],
    vectors: Vectors,
    older: Embedder | None,
) -> _Subject:
    whole = _embedded_text(row)
    text_hash = _hash(vectors.embedder, whole)
    same = row.embedding_identity == vectors.identity and row.embedded_hash == text_hash
    known = same or (
        older is not None
        and row.embedding_identity == older.identity
        and row.embedded_hash == _hash(older, whole)
    )
    return _Subject(
        item,
        row.seq,
        whole,
        whole[: vectors.embedder.window_chars],
        text_hash,
        embedded_before=row.embedded_hash is not None,
        unchanged=same and row.has_vector and not item.payload.refresh,
        other_model=row.embedding_identity != vectors.identity,
        lacks_older=older is not None and not (known and row.has_older),
    )


def _hash(embedder: Embedder, whole: str) -> str:
    """Of what this model would read."""
    return vector_key(embedder.identity, whole[: embedder.window_chars])


def _embedded_text(row: sa.Row[Any]) -> str:
    title, body = row.title or None, row.body or ""
    # Before its extraction a node may have none; then it has no fields either, and any will do.
    name = row.profile or profile_names()[0]
    if name not in profile_names():
        return f"{title or ''}\n{body}".strip()
    return profile_named(name).embedded_text(row.fields, title, body)
