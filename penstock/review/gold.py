"""Corrections as labelled documents, in the format that `penstock eval` reads."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from penstock.documents import hash_text
from penstock.llm.profiles import profile_named, profile_names
from penstock.review.corrections import holding, read_corrections
from penstock.store.database import Database
from penstock.store.schema import corrections, nodes, texts

_PAGE = 200


def list_gold(database: Database, tenant_id: str) -> Iterator[dict[str, Any]]:
    """A document for each node with corrections that hold for its text: what is right in it."""
    after = 0
    while page := _read_page(database, tenant_id, after):
        after = page[-1].seq
        with database.read() as tx:
            made = read_corrections(tx, [row.id for row in page])
        for row in page:
            if row.profile not in profile_names():
                continue
            held = holding(made[row.id], profile_named(row.profile), hash_text(row.body))
            if held:
                yield _labelled(row, {name: one.value for name, one in held.items()})


def _read_page(database: Database, tenant_id: str, after: int) -> list[sa.Row[Any]]:
    c = nodes.c
    corrected = sa.select(corrections.c.node_id).where(corrections.c.tenant_id == tenant_id)
    query = (
        sa.select(c.seq, c.id, c.profile, c.url, c.metadata, texts.c.title, texts.c.body)
        .join(texts, texts.c.seq == c.seq)
        .where(c.id.in_(corrected), c.tenant_id == tenant_id, c.seq > after)
    )
    with database.read() as tx:
        return list(tx.execute(query.order_by(c.seq).limit(_PAGE)))


def _labelled(row: sa.Row[Any], fields: dict[str, Any]) -> dict[str, Any]:
    known = {"url": row.url, "title": row.title, "metadata": dict(row.metadata)}
    return {
        "id": row.id,
        "profile": row.profile,
        **{name: value for name, value in known.items() if value},
        "text": row.body,
        "fields": fields,
    }
