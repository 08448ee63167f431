"""Stage `embed`: the last one. What it completes is closed in the run."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from penstock.embed.embedder import Embedder
from penstock.faults import reach
from penstock.llm.profiles import profile_named, profile_names
from penstock.pipeline.batches import Line, compute, split_faults, update_nodes
from penstock.pipeline.choice import profile_of
from penstock.pipeline.closing import REFRESH, bury, close_documents, close_failed
from penstock.pipeline.telling import tell, tell_failures
from penstock.pipeline.vectors import Vectors, embed_older
from penstock.search.identity import adopt_identity
from penstock.store.database import Tx
from penstock.store.schema import embeddings, nodes, texts
from penstock.work.items import Claim, Outcome, WorkItem


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
    """Search looks among the vectors of an older model, and this has none for its text."""

    @property
    def empty(self) -> bool:
        return not self.text.strip()

    def story(self, identity: str) -> str:
        if self.unchanged:
            return "vector kept: what would be embedded is unchanged"
        if not self.embedded_before:
            return f"embedded by {identity}"
        reason = "other model" if self.other_model else "text changed"
        return (
            f"Triggered re-embed after extraction: node {self.item.node_id}, model {identity}, "
            f"reason {reason}"
        )


def process_embed(line: Line, claim: Claim, vectors: Vectors) -> Claim:
    """Embed these documents and close them; nothing follows."""
    items = line.begin(claim, claim.items)
    reach("embed.begun")
    with line.database.read() as tx:
        older = vectors.older(tx)
        subjects = _load_subjects(tx, line, items, vectors, older)
    to_embed = [s for s in subjects if not s.empty and not s.unchanged]
    computed = compute(line.steps.embed, _keys(to_embed), [s.text for s in to_embed])
    reach("embed.computed")
    good, bad = split_faults([s.item for s in to_embed], computed)
    found = {item.id: vector for item, vector in good}
    for_now = _embed_older(older, subjects) if older is not None else {}
    _Commit(line, claim, vectors.identity, older).write(subjects, found, for_now, bad)
    return replace(claim, items=())


def _embed_older(older: Embedder, subjects: Sequence[_Subject]) -> dict[int, bytes]:
    lacking = [s for s in subjects if s.lacks_older and not s.empty]
    cut = [s.whole[: older.window_chars] for s in lacking]
    vectors = embed_older(older, _keys(lacking), cut)
    pairs = zip(lacking, vectors, strict=True)
    return {s.item.id: vector for s, vector in pairs if vector is not None}


def _keys(subjects: Sequence[_Subject]) -> list[str]:
    return [f"{s.item.tenant_id}:{s.hash}" for s in subjects]


@dataclass(frozen=True, slots=True)
class _Commit:
    """Writes the vectors of one batch, and the ends of its documents, in one transaction."""

    line: Line
    claim: Claim
    identity: str
    older: Embedder | None

    def write(
        self,
        subjects: Sequence[_Subject],
        vectors: Mapping[int, bytes],
        for_now: Mapping[int, bytes],
        bad: Sequence[Any],
    ) -> None:
        by_item = {subject.item.id: subject for subject in subjects}
        done = [s.item for s in subjects if s.item.id in vectors]
        unchanged = [s.item for s in subjects if s.unchanged]
        empty = [s.item for s in subjects if not s.unchanged and s.empty]
        queue = self.line.queue
        with self.line.database.write() as tx:
            ours = queue.complete(tx, self.claim, done, Outcome.DONE)
            self._write_vectors(tx, [by_item[item.id] for item in ours], vectors)
            same = queue.complete(tx, self.claim, unchanged, Outcome.UNCHANGED)
            update_nodes(tx, [_status_row(tx, item, "ready", None) for item in same])
            self._write_older(tx, [by_item[item.id] for item in (*ours, *same)], for_now)
            skipped = queue.complete(tx, self.claim, empty, Outcome.SKIPPED)
            update_nodes(tx, [_status_row(tx, item, "skipped", "empty_text") for item in skipped])
            close_documents(tx, [*ours, *same, *skipped])
            verdicts = queue.fail(tx, self.claim, bad)
            tell_failures(tx, verdicts)
            tell(tx, [(item, by_item[item.id].story(self.identity)) for item in (*ours, *same)])
            tell(tx, [(item, "not embedded: it has no text") for item in skipped])
            dead = [verdict for verdict in verdicts if verdict.dead]
            bury(tx, dead)
            close_failed(tx, dead)
        self.line.tell([(item, None) for item in (*ours, *same, *skipped)], verdicts)

    def _write_vectors(
        self, tx: Tx, subjects: Sequence[_Subject], vectors: Mapping[int, bytes]
    ) -> None:
        if not subjects:
            return
        if self.older is None:
            adopt_identity(tx, self.identity)
        before = self._old_vectors(tx, [s.seq for s in subjects if s.embedded_before])
        rows = [
            _vector_row(tx, subject, self.identity, vectors[subject.item.id])
            | {"drift": _drift(before.get(subject.seq), vectors[subject.item.id])}
            for subject in subjects
        ]
        _upsert(tx, rows)
        update_nodes(tx, [self._node_row(tx, subject) for subject in subjects])

    def _write_older(
        self, tx: Tx, subjects: Sequence[_Subject], vectors: Mapping[int, bytes]
    ) -> None:
        if self.older is None:
            return
        identity = self.older.identity
        rows = [
            _vector_row(tx, subject, identity, vectors[subject.item.id])
            for subject in subjects
            if subject.item.id in vectors
        ]
        _upsert(tx, rows)

    def _old_vectors(self, tx: Tx, numbers: Sequence[int]) -> dict[int, bytes]:
        if not numbers:
            return {}
        query = sa.select(embeddings.c.seq, embeddings.c.vector).where(
            embeddings.c.seq.in_(numbers), embeddings.c.identity == self.identity
        )
        return {row.seq: row.vector for row in tx.execute(query)}

    def _node_row(self, tx: Tx, subject: _Subject) -> dict[str, Any]:
        return _status_row(tx, subject.item, "ready", None) | {
            "b_embedding_identity": self.identity,
            "b_embedded_hash": subject.hash,
            "b_embedded_at": tx.now,
        }


def _vector_row(tx: Tx, subject: _Subject, identity: str, vector: bytes) -> dict[str, Any]:
    return {
        "seq": subject.seq,
        "identity": identity,
        "vector": vector,
        "drift": None,
        "embedded_at": tx.now,
    }


def _upsert(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        insert = tx.insert(embeddings)
        fresh = {name: insert.excluded[name] for name in ("vector", "drift", "embedded_at")}
        conflict: dict[str, Any] = {"index_elements": ["seq", "identity"], "set_": fresh}
        tx.execute(insert.on_conflict_do_update(**conflict), rows)


def _status_row(tx: Tx, item: WorkItem, status: str, reason: str | None) -> dict[str, Any]:
    return {
        "b_id": item.node_id,
        "b_embedding_status": status,
        "b_embedding_reason": reason,
        "b_embedding_error": None,
        "b_updated_at": tx.now,
    }


def _load_subjects(
    tx: Tx, line: Line, items: Sequence[WorkItem], vectors: Vectors, older: Embedder | None
) -> list[_Subject]:
    columns = (
        nodes.c.id,
        nodes.c.seq,
        nodes.c.profile,
        nodes.c.metadata,
        nodes.c.media_type,
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
    return [_subject(line, item, rows[item.node_id], vectors, older) for item in items]


def _has_vector(embedder: Embedder) -> sa.Exists:
    return sa.exists().where(
        embeddings.c.seq == nodes.c.seq, embeddings.c.identity == embedder.identity
    )


def _subject(
    line: Line, item: WorkItem, row: sa.Row[Any], vectors: Vectors, older: Embedder | None
) -> _Subject:
    whole = _embedded_text(line, row)
    text_hash = _hash(vectors.embedder, whole)
    identity = vectors.identity
    same = row.embedding_identity == identity and row.embedded_hash == text_hash
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
        unchanged=same and row.has_vector and not item.payload.get(REFRESH),
        other_model=row.embedding_identity != identity,
        lacks_older=older is not None and not (known and row.has_older),
    )


def _hash(embedder: Embedder, whole: str) -> str:
    """Of what this model would read."""
    text = f"{embedder.identity}\n{whole[: embedder.window_chars]}"
    return hashlib.sha256(text.encode()).hexdigest()


def _embedded_text(line: Line, row: sa.Row[Any]) -> str:
    name = profile_of(row, line.default_profile)
    title, body = row.title or None, row.body or ""
    if name not in profile_names():
        return f"{title or ''}\n{body}".strip()
    return profile_named(name).embedded_text(row.fields, title, body)


def _drift(old: bytes | None, new: bytes) -> float | None:
    """1 − cosine between the vector before and the vector now; both are of unit length."""
    if old is None:
        return None
    import numpy as np

    return float(1.0 - np.dot(np.frombuffer(old, "<f4"), np.frombuffer(new, "<f4")))
