"""Where a node's text comes from, for whoever has to begin there once more."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.intake.acceptance import ORDER, UPLOAD
from penstock.intake.plan import Order
from penstock.pipeline.payloads import REFERENCE
from penstock.store.database import Tx
from penstock.store.schema import nodes, work_items

# What has to be known of the nodes.
TEXT_COLUMNS = (
    nodes.c.id,
    nodes.c.external_id,
    nodes.c.raw_key,
    nodes.c.given,
    nodes.c.extraction_status,
)
_EXTRACTED = ("ready", "skipped")


def text_payloads(tx: Tx, rows: Sequence[sa.Row[Any]]) -> dict[str, dict[str, Any]]:
    """Payloads for text items of these nodes; none for what was never read from anywhere."""
    if not rows:
        return {}
    before = _newest_payloads(tx, [row.id for row in rows])
    found = {row.id: before.get(row.id) or _plain_payload(row) for row in rows}
    by_id = {row.id: row for row in rows}
    return {
        node_id: {**payload, ORDER: _order(by_id[node_id], payload)}
        for node_id, payload in found.items()
        if payload is not None
    }


def _newest_payloads(tx: Tx, node_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """As they were the last time: with its name, its kind, and how it goes on."""
    c = work_items.c
    query = sa.select(c.node_id, c.payload).where(c.stage == Stage.TEXT, c.node_id.in_(node_ids))
    return {row.node_id: row.payload for row in tx.execute(query.order_by(c.id))}


def _plain_payload(row: sa.Row[Any]) -> dict[str, Any] | None:
    reference = (row.given or {}).get(REFERENCE)
    if reference:
        return {"external_id": reference, REFERENCE: reference}
    if not row.raw_key:
        return None
    upload = (row.given or {}).get(UPLOAD) or {"external_id": row.external_id}
    return {**upload, "raw_key": row.raw_key}


def _order(row: sa.Row[Any], payload: Mapping[str, Any]) -> Order:
    """As it went on before; fields that were extracted since are extracted again."""
    from_http = row.given is not None
    usual = Order.EMBED_ONLY if from_http and row.extraction_status is None else Order.EXTRACT_FIRST
    order = Order(payload.get(ORDER, usual))
    again = order is Order.EMBED_ONLY and row.extraction_status in _EXTRACTED
    return Order.EXTRACT_FIRST if again else order
