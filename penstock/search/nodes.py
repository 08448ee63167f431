"""Nodes as people and programs see them, with the history of their extractions."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

import sqlalchemy as sa

from penstock.documents import FieldEvidence, hash_text
from penstock.errors import NotFound, UsageError
from penstock.store.database import Tx
from penstock.store.schema import (
    corrections,
    embeddings,
    extractions,
    nodes,
    run_documents,
    sources,
    texts,
)

_STAGE = ("status", "reason", "error")
_EXTRACTION = (
    *[f"extraction_{name}" for name in (*_STAGE, "model", "confidence", "version")],
    "extracted_at",
)
_EMBEDDING = (*[f"embedding_{name}" for name in (*_STAGE, "identity")], "embedded_at")


MOST_VERSIONS = 100


def show_node(tx: Tx, tenant_id: str, node_id: str) -> dict[str, Any]:
    """One node with its text, fields and everything known about its processing."""
    query = (
        _select(nodes, texts.c.body)
        .outerjoin(texts, texts.c.seq == nodes.c.seq)
        .where(nodes.c.tenant_id == tenant_id, nodes.c.id == valid_node_id(node_id))
    )
    row = tx.execute(query).first()
    if row is None:
        raise NotFound(f"there is no node {node_id}; `penstock nodes` lists them")
    vector = sa.select(embeddings.c.drift).where(
        embeddings.c.seq == row.seq,
        embeddings.c.identity == row.embedding_identity,
        embeddings.c.position == 0,
    )
    found = tx.execute(vector).first()
    return _summary(row) | {
        "text": row.body or "",
        "fields": dict(row.fields),
        "evidence": shown_evidence(row.evidence or {}),
        "corrections": _list_corrections(tx, row),
        "extraction_profile_hash": row.extraction_profile_hash,
        "metadata": dict(row.metadata) | given_part(row, "metadata"),
        "has_embedding": found is not None,
        "embedding_drift": found.drift if found else None,
        "raw_key": row.raw_key,
        "payload_ref": (row.given or {}).get("payload_ref"),
        "content_hash": row.content_hash,
        "created_at": _iso(row.created_at),
    }


def list_nodes(
    tx: Tx,
    tenant_id: str,
    *,
    run_id: int | None = None,
    needs_review: bool = False,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Nodes, oldest first, without their texts; with `needs_review`, only those present that need
    it."""
    query = _select(nodes).where(nodes.c.tenant_id == tenant_id).order_by(nodes.c.seq).limit(limit)
    if needs_review:
        query = query.where(nodes.c.needs_review, nodes.c.expired_at.is_(None))
    if run_id is not None:
        # Joined: the run may have few documents, and the tenant many nodes.
        query = query.join(run_documents, run_documents.c.node_id == nodes.c.id)
        query = query.where(run_documents.c.run_id == run_id)
    return [_summary(row) for row in tx.execute(query)]


def _list_corrections(tx: Tx, row: sa.Row[Any]) -> list[dict[str, Any]]:
    """Oldest first; those that do not hold were made for another text or profile."""
    c = corrections.c
    names = ("field", "value", "before", "author", "reason", "corrected_at")
    query = sa.select(c.profile, c.text_hash, *[c[name] for name in names])
    now = (row.profile, hash_text(row.body or ""))
    return [
        {name: _iso(getattr(one, name)) for name in names}
        | {"holds": (one.profile, one.text_hash) == now}
        for one in tx.execute(query.where(c.node_id == row.id).order_by(c.id))
    ]


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """Which of the nodes that need review."""

    tenant_id: str
    source: str | None = None
    profile: str | None = None
    reason: str | None = None
    """`missing` for those that lack any required field, `missing:title` for those without this."""

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        c = nodes.c
        found = [c.tenant_id == self.tenant_id, c.needs_review, c.expired_at.is_(None)]
        if self.source is not None:
            found.append(sources.c.name == self.source)
        if self.profile is not None:
            found.append(c.profile == self.profile)
        if self.reason is not None:
            written = sa.cast(c.review_reasons, sa.Text())
            ends = ('"',) if ":" in self.reason else ('"', ":")
            held = [written.contains(f'"{self.reason}{end}', autoescape=True) for end in ends]
            found.append(sa.or_(*held))
        return found


def list_for_review(
    tx: Tx, wanted: ReviewFilter, limit: int, after: str | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """Nodes present that need review, with their fields: those first whose least sure required
    field is least sure, in tenths, and of these the newest. The second value is where the next page
    begins."""
    c = nodes.c
    place = sa.tuple_(c.review_value, c.seq)
    query = _select(nodes).where(*wanted.conditions())
    if after is not None:
        query = query.where(place < sa.tuple_(*map(sa.literal, _read_place(after))))
    query = query.order_by(c.review_value.desc(), c.seq.desc()).limit(limit + 1)
    rows = tx.execute(query).all()
    shown = rows[:limit]
    more = f"{shown[-1].review_value}.{shown[-1].seq}" if len(rows) > limit else None
    return [_for_review(row) for row in shown], more


def _read_place(after: str) -> tuple[int, int]:
    value, _, seq = after.partition(".")
    if not (after.isascii() and value.isdecimal() and seq.isdecimal() and len(after) < 20):
        raise UsageError(f"after={after} is no place in the queue: use `next` of the page before")
    return int(value), int(seq)


def _for_review(row: sa.Row[Any]) -> dict[str, Any]:
    evidence = shown_evidence(row.evidence or {})
    return _summary(row) | {"fields": dict(row.fields), "evidence": evidence}


def _select(*columns: Any) -> sa.Select[Any]:
    named = sa.select(*columns, sources.c.name.label("source_name"))
    return named.select_from(nodes).outerjoin(sources, sources.c.id == nodes.c.source_id)


def _summary(row: sa.Row[Any]) -> dict[str, Any]:
    extraction = {name: _iso(getattr(row, name)) for name in _EXTRACTION}
    return {
        "id": row.id,
        "tenant_id": row.tenant_id,
        "source": row.source_name,
        "external_id": row.external_id,
        "url": row.url,
        "title": row.title,
        "profile": row.profile,
        "profile_basis": row.profile_basis,
        "profile_reason": row.profile_reason,
        "media_type": row.media_type,
        # Fields and extraction marks together, as consumers of props expect.
        "props": given_part(row, "props") | dict(row.fields) | extraction,
        "classes": list((row.given or {}).get("classes", ())),
        **extraction,
        "needs_review": row.needs_review,
        "review_reasons": list(row.review_reasons or ()),
        **{name: _iso(getattr(row, name)) for name in _EMBEDDING},
        "updated_at": _iso(row.updated_at),
        "expired_at": _iso(row.expired_at),
    }


def shown_evidence(stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The confidence of each field, and for each of its values where it stands in the text; null
    for one that the text does not support."""
    found = {name: FieldEvidence.from_json(one) for name, one in stored.items()}
    return {
        name: {
            "confidence": one.confidence,
            "places": [None if place is None else place._asdict() for place in one.places],
        }
        for name, one in found.items()
    }


def given_part(row: sa.Row[Any], name: str) -> dict[str, Any]:
    """A part of what came with a node over HTTP."""
    return dict((row.given or {}).get(name) or {})


def _iso(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def valid_node_id(node_id: str) -> str:
    try:
        return str(uuid.UUID(node_id))
    except ValueError:
        raise NotFound(f"{node_id!r} is not a node id; `penstock nodes` lists them") from None


@dataclass(frozen=True, slots=True)
class ExtractionVersion:
    """One extraction, and how its fields differ from those of the one before it."""

    id: int
    version: str
    model: str
    confidence: float
    fallback_reason: str | None
    profile: str
    extracted_at: datetime
    run_id: int | None
    fields: dict[str, Any]
    changed: dict[str, tuple[Any, Any]]
    """Old and new value by name; None where there was none."""


def extraction_versions(tx: Tx, tenant_id: str, node_id: str) -> list[ExtractionVersion]:
    """The newest first, a hundred at most."""
    c = extractions.c
    own = sa.and_(c.tenant_id == tenant_id, c.node_id == valid_node_id(node_id))
    shown = [c[name] for name in ExtractionVersion.__dataclass_fields__ if name != "changed"]
    newest = sa.select(*shown).where(own).order_by(c.id.desc())
    # One more than is shown, for the changes of the oldest.
    rows = tx.execute(newest.limit(MOST_VERSIONS + 1)).all()
    versions = [
        ExtractionVersion(
            **row._mapping,
            changed={} if older is None else _changed(older.fields, row.fields),
        )
        for row, older in zip_longest(rows, rows[1:])
    ]
    return versions[:MOST_VERSIONS]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (before.get(name), now.get(name))
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    }
