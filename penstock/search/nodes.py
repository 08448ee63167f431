"""Nodes as people and programs see them."""

import uuid
from typing import Any

import sqlalchemy as sa

from penstock.errors import NotFound
from penstock.store.database import Tx
from penstock.store.schema import embeddings, nodes, run_documents, sources, texts

_EXTRACTION = (
    "extraction_status",
    "extraction_reason",
    "extraction_error",
    "extraction_model",
    "extraction_confidence",
    "extraction_version",
    "extracted_at",
)
_EMBEDDING = (
    "embedding_status",
    "embedding_reason",
    "embedding_error",
    "embedding_identity",
    "embedded_at",
)


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
        embeddings.c.seq == row.seq, embeddings.c.identity == row.embedding_identity
    )
    found = tx.execute(vector).first()
    return _summary(row) | {
        "text": row.body or "",
        "fields": dict(row.fields),
        "metadata": dict(row.metadata) | given_part(row, "metadata"),
        "has_embedding": found is not None,
        "embedding_drift": found.drift if found else None,
        "raw_key": row.raw_key,
        "payload_ref": (row.given or {}).get("payload_ref"),
        "content_hash": row.content_hash,
        "created_at": _iso(row.created_at),
    }


def list_nodes(
    tx: Tx, tenant_id: str, *, run_id: int | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Nodes, oldest first, without their texts."""
    query = _select(nodes).where(nodes.c.tenant_id == tenant_id).order_by(nodes.c.seq).limit(limit)
    if run_id is not None:
        in_run = sa.select(run_documents.c.node_id).where(run_documents.c.run_id == run_id)
        query = query.where(nodes.c.id.in_(in_run))
    return [_summary(row) for row in tx.execute(query)]


def count_by_status(tx: Tx, tenant_id: str) -> dict[str, Any]:
    """How many nodes there are, and how far extraction and embedding have come with them."""
    present = sa.and_(nodes.c.tenant_id == tenant_id, nodes.c.expired_at.is_(None))
    total: int = tx.execute(sa.select(sa.func.count()).where(present)).scalar_one()

    def by(column: sa.ColumnElement[Any]) -> dict[str, int]:
        counted = sa.select(column.label("status"), sa.func.count().label("nodes"))
        rows = tx.execute(counted.where(present).group_by(column))
        return {row.status or "none": row.nodes for row in rows}

    return {
        "nodes": total,
        "extraction": by(nodes.c.extraction_status),
        "embedding": by(nodes.c.embedding_status),
    }


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
        "media_type": row.media_type,
        # The fields and what is known of their making, together, as consumers of props expect.
        "props": given_part(row, "props") | dict(row.fields) | extraction,
        "classes": list((row.given or {}).get("classes", ())),
        **extraction,
        **{name: _iso(getattr(row, name)) for name in _EMBEDDING},
        "updated_at": _iso(row.updated_at),
        "expired_at": _iso(row.expired_at),
    }


def given_part(row: sa.Row[Any], name: str) -> dict[str, Any]:
    """What whoever made the node said about it."""
    return dict((row.given or {}).get(name) or {})


def _iso(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def valid_node_id(node_id: str) -> str:
    try:
        return str(uuid.UUID(node_id))
    except ValueError:
        raise NotFound(f"{node_id!r} is not a node id; `penstock nodes` lists them") from None
