"""Stage `embed`: the last one; it ends the document's part in its run."""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Passage
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
from penstock.search.passages import read_passages, store_passages
from penstock.search.vectors import active_identity, adopt_identity
from penstock.store.bulk import BulkStatement
from penstock.store.database import Tx
from penstock.store.schema import embeddings, nodes, texts
from penstock.text.passages import cut_passages

log = logging.getLogger(__name__)
# Enough to tell the passages of one document apart.
_HASH_BYTES = 16


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
    texts: tuple[str, ...]
    """What is embedded of each passage, before it is cut to a model's window."""
    cut: Sequence[Passage] | None
    """Its passages, if they are yet to be stored."""
    hash: str
    embedded_before: bool
    has_vector: bool
    unchanged: bool
    other_model: bool
    lacks_older: bool
    """Search uses the vectors of an older model, and this has none for its text."""

    @property
    def empty(self) -> bool:
        return not any(map(str.strip, self.texts))

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
        subjects = _load_subjects(tx, context.passage_chars, items, vectors, older)
        new = [s for s in subjects if s.outcome is Outcome.DONE]
        lacking = [s for s in subjects if s.lacks_older and not s.empty]
        stored = _read_stored(tx, [s for s in new if s.has_vector], vectors.identity)
        stored_older = _read_stored(tx, lacking, older.identity) if older else {}
    step = partial(context.steps.embed, reused=sum(s.unchanged for s in subjects))
    made = _embed(step, vectors.embedder, new, stored)
    if not new:
        step([], [])  # all is reused: that is to be seen in Prefect, too
    hit("embed.computed")
    good, bad = split_faults([s.item for s in new], made)
    found = {item.id: rows for item, rows in good}
    found_older = {} if older is None else _embed_older(older, lacking, stored_older)
    completed = [
        Completion(s.item, s.outcome, s.message(vectors.identity))
        for s in subjects
        if s.outcome is not Outcome.DONE or s.item.id in found
    ]
    by_item = {s.item.id: s for s in subjects}

    def write(tx: Tx, done: Sequence[Completion]) -> None:
        ours = [by_item[one.item.id] for one in done]
        if older is None and any(s.outcome is Outcome.DONE for s in ours):
            adopt_identity(tx, vectors.identity)
        _write_cut(tx, context, ours)
        _write_vectors(tx, ours, vectors.identity, found, stored)
        _write_statuses(tx, ours, vectors.identity)
        if older is not None:
            _write_vectors(tx, ours, older.identity, found_older, stored_older)

    return context.commit(claim, completed, bad, write)


@dataclass(frozen=True, slots=True)
class _Vector:
    """A vector, and the hash of what it is of; None: an earlier version kept none."""

    hash: bytes | None
    vector: bytes


_Stored = Mapping[int, Mapping[int, _Vector]]
"""By the `seq` of a node, and the position of a passage."""


def _read_stored(tx: Tx, subjects: Sequence[_Subject], identity: str) -> _Stored:
    c = embeddings.c
    found: defaultdict[int, dict[int, _Vector]] = defaultdict(dict)
    if subjects:
        own = sa.and_(tx.among(c.seq, [s.seq for s in subjects]), c.identity == identity)
        for row in tx.execute(sa.select(c.seq, c.position, c.hash, c.vector).where(own)):
            found[row.seq][row.position] = _Vector(row.hash, row.vector)
    return found


def _embed(
    step: Callable[[Sequence[str], Sequence[str]], list[bytes]],
    embedder: Embedder,
    subjects: Sequence[_Subject],
    stored: _Stored,
) -> list[list[_Vector] | Fault]:
    """A vector for each passage of each of these; what was embedded before is not again."""
    window = embedder.window_chars
    hashes = [[_short_hash(text[:window]) for text in s.texts] for s in subjects]
    known = [_reusable(s, stored) for s in subjects]
    # By subject and hash, since the same text has the same vector.
    wanted = {
        (number, text_hash): text[:window]
        for number, s in enumerate(subjects)
        for text_hash, text in zip(hashes[number], s.texts, strict=True)
        if text_hash not in known[number]
    }
    given = [*wanted.values()]
    keys = [
        f"{subjects[number].item.tenant_id}:{vector_key(embedder.identity, text)}"
        for (number, _), text in wanted.items()
    ]
    computed = compute(step, keys, given)
    faults: dict[int, Fault] = {}
    for (number, text_hash), vector in zip(wanted, computed, strict=True):
        if isinstance(vector, Fault):
            faults[number] = vector
        else:
            known[number][text_hash] = vector
    return [
        faults[number]
        if number in faults
        else [_Vector(text_hash, known[number][text_hash]) for text_hash in hashes[number]]
        for number in range(len(subjects))
    ]


def _reusable(subject: _Subject, stored: _Stored) -> dict[bytes, bytes]:
    if subject.item.payload.refresh:
        return {}
    before = stored.get(subject.seq, {}).values()
    return {one.hash: one.vector for one in before if one.hash is not None}


def _embed_older(
    older: Embedder, lacking: Sequence[_Subject], stored: _Stored
) -> dict[int, list[_Vector]]:
    """Vectors of the model that search uses now. One that cannot be made is no fault of the
    document, which is found again after the switch."""
    try:
        found = _embed(lambda _, some: older.embed(some), older, lacking, stored)
    except ConfigurationError as error:
        log.warning("new documents are not found by meaning before the switch: %s", error)
        return {}
    pairs = zip(lacking, found, strict=True)
    return {s.item.id: rows for s, rows in pairs if not isinstance(rows, Fault)}


def _short_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest()


def _write_cut(tx: Tx, context: StageContext, subjects: Sequence[_Subject]) -> None:
    """The passages of texts that an earlier version, or another setting, has not cut like this."""
    cut = {s.seq: s.cut for s in subjects if s.cut is not None}
    if cut:
        store_passages(tx, cut)
        now = sa.update(nodes).where(tx.among(nodes.c.seq, cut))
        tx.execute(now.values(passage_chars=context.passage_chars))


def _write_vectors(
    tx: Tx,
    subjects: Sequence[_Subject],
    identity: str,
    vectors: Mapping[int, Sequence[_Vector]],
    stored: _Stored,
) -> None:
    """Those that are new or other than before; those of passages that are no more are deleted."""
    rows: list[dict[str, Any]] = []
    for s in subjects:
        before, now = stored.get(s.seq, {}), vectors.get(s.item.id, ())
        rows += [
            {
                "seq": s.seq,
                "identity": identity,
                "position": position,
                "vector": one.vector,
                "hash": one.hash,
                "drift": _drift(before.get(position), one),
                "embedded_at": tx.now,
            }
            for position, one in enumerate(now)
            if before.get(position) != one or s.item.payload.refresh
        ]
        if now and len(now) <= max(before, default=0):
            c = embeddings.c
            gone = sa.and_(c.seq == s.seq, c.identity == identity, c.position >= len(now))
            tx.execute(sa.delete(embeddings).where(gone))
    _VECTOR_UPSERT.execute(tx, rows)


def _build_vector_upsert(tx: Tx) -> sa.Insert:
    insert = tx.insert(embeddings)
    fresh = {name: insert.excluded[name] for name in ("vector", "hash", "drift", "embedded_at")}
    conflict: dict[str, Any] = {"index_elements": ["seq", "identity", "position"], "set_": fresh}
    return insert.on_conflict_do_update(**conflict)


_VECTOR_UPSERT = BulkStatement(_build_vector_upsert)


def _drift(old: _Vector | None, new: _Vector) -> float | None:
    """1 − cosine between the vector before and the vector now; both are of unit length."""
    if old is None:
        return None
    import numpy as np

    return float(1.0 - np.dot(np.frombuffer(old.vector, "<f4"), np.frombuffer(new.vector, "<f4")))


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
    chars: int,
    items: Sequence[WorkItem],
    vectors: Vectors,
    older: Embedder | None,
) -> list[_Subject]:
    columns = (
        nodes.c.id,
        nodes.c.seq,
        nodes.c.profile,
        nodes.c.metadata,
        nodes.c.fields,
        nodes.c.embedded_hash,
        nodes.c.embedding_identity,
        nodes.c.passage_chars,
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
    stored = read_passages(tx, [row.seq for row in rows.values()])
    found: list[_Subject] = []
    for item in items:
        row, body = rows[item.node_id], rows[item.node_id].body or ""
        to_cut = row.passage_chars != chars
        cut = cut_passages(body, chars, row.metadata) if to_cut else None
        own = stored.get(row.seq, []) if cut is None else cut
        embedded = _embedded_texts(row, body, own)
        found.append(_subject(item, row, embedded, cut, vectors, older))
    return found


def _has_vector(embedder: Embedder) -> sa.Exists:
    c = embeddings.c
    return sa.exists().where(c.seq == nodes.c.seq, c.identity == embedder.identity, c.position == 0)


def _subject(
    item: WorkItem,
    row: sa.Row[Any],
    embedded: tuple[str, ...],
    cut: Sequence[Passage] | None,
    vectors: Vectors,
    older: Embedder | None,
) -> _Subject:
    text_hash = _hash(vectors.embedder, embedded)
    same = row.embedding_identity == vectors.identity and row.embedded_hash == text_hash
    known = same or (
        older is not None
        and row.embedding_identity == older.identity
        and row.embedded_hash == _hash(older, embedded)
    )
    return _Subject(
        item,
        row.seq,
        embedded,
        cut,
        text_hash,
        embedded_before=row.embedded_hash is not None,
        has_vector=row.has_vector,
        unchanged=same and row.has_vector and not item.payload.refresh,
        other_model=row.embedding_identity != vectors.identity,
        lacks_older=older is not None and not (known and row.has_older),
    )


def _hash(embedder: Embedder, embedded: Sequence[str]) -> str:
    """Of what this model would read."""
    read = "\f".join(text[: embedder.window_chars] for text in embedded)
    return vector_key(embedder.identity, read)


def _embedded_texts(row: sa.Row[Any], body: str, cut: Sequence[Passage]) -> tuple[str, ...]:
    """The first passage speaks for the document, with its title and fields; the others say what
    they are a part of."""
    first, *others = cut or [Passage(0, len(body))]
    title = row.title or None
    above = [title] if title else []
    return (
        _embedded_text(row, title, body[first.start : first.end]),
        *["\n".join([*above, *one.heading, body[one.start : one.end]]) for one in others],
    )


def _embedded_text(row: sa.Row[Any], title: str | None, text: str) -> str:
    # Before its extraction a node may have none; then it has no fields either, and any will do.
    name = row.profile or profile_names()[0]
    if name not in profile_names():
        return f"{title or ''}\n{text}".strip()
    return profile_named(name).embedded_text(row.fields, title, text)
