"""Corrections as labelled documents, in the format of those that come with Penstock."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from penstock.documents import hash_text
from penstock.llm.profiles import profile_named, profile_names
from penstock.review.corrections import holding, read_corrections
from penstock.store.database import Database, Tx
from penstock.store.schema import corrections, nodes, texts

_PAGE = 200


def list_gold(database: Database, tenant_id: str) -> Iterator[dict[str, Any]]:
    """A document for each node with corrections that hold for its text: what is right in it."""
    after: str | None = None
    while True:
        with database.read() as tx:
            node_ids = _next_corrected(tx, tenant_id, after)
            made = read_corrections(tx, node_ids)
            rows = _read_nodes(tx, node_ids)
        if not node_ids:
            return
        after = node_ids[-1]
        for row in rows:
            if row.profile not in profile_names():
                continue
            held = holding(made[row.id], profile_named(row.profile), hash_text(row.body))
            if held:
                yield _labelled(row, {name: one.value for name, one in held.items()})


def _next_corrected(tx: Tx, tenant_id: str, after: str | None) -> list[str]:
    c = corrections.c
    query = sa.select(c.node_id).distinct().where(c.tenant_id == tenant_id)
    if after is not None:
        query = query.where(c.node_id > after)
    return [*tx.execute(query.order_by(c.node_id).limit(_PAGE)).scalars()]


def _read_nodes(tx: Tx, node_ids: Sequence[str]) -> list[sa.Row[Any]]:
    c = nodes.c
    query = sa.select(c.id, c.profile, c.url, c.metadata, texts.c.title, texts.c.body)
    query = query.join(texts, texts.c.seq == c.seq).where(tx.among(c.id, node_ids))
    return [*tx.execute(query.order_by(c.seq))]


def _labelled(row: sa.Row[Any], fields: dict[str, Any]) -> dict[str, Any]:
    known = {"url": row.url, "title": row.title, "metadata": dict(row.metadata)}
    return {
        "id": row.id,
        "profile": row.profile,
        **{name: value for name, value in known.items() if value},
        "text": row.body,
        "fields": fields,
    }
