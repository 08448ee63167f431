"""Doing a node again although nothing about it has changed."""

from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import NotFound
from penstock.operations.beginnings import text_payloads
from penstock.pipeline.closing import REFRESH
from penstock.pipeline.payloads import REFERENCE
from penstock.search.nodes import valid_node_id
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, nodes, texts, work_items
from penstock.work.items import NewItem
from penstock.work.queue import WorkQueue


def refresh_node(tx: Tx, queue: WorkQueue, tenant_id: str, node_id: str) -> dict[str, Any]:
    """Enqueue the first stage that can be done again, and so those after it, once: while a job
    for the node is active, that job is the refresh."""
    node_id = valid_node_id(node_id)
    has_text = sa.exists().where(texts.c.seq == nodes.c.seq).label("has_text")
    own = sa.and_(nodes.c.id == node_id, nodes.c.tenant_id == tenant_id)
    node = tx.execute(sa.select(nodes, has_text).where(own).with_for_update()).first()
    if node is None:
        raise NotFound(f"there is no node {node_id}")
    active = sa.select(work_items.c.id, work_items.c.stage).where(
        ACTIVE_ITEM, work_items.c.node_id == node_id
    )
    at_work = tx.execute(active.order_by(work_items.c.id)).first()
    if at_work is not None:
        return {"id": node_id, "job_id": at_work.id, "stage": at_work.stage, "enqueued": False}
    stage = _first_stage(node)
    payload = text_payloads(tx, [node]).get(node_id, {}) if stage is Stage.TEXT else {}
    payload = {"external_id": node.external_id, **payload, REFRESH: True}
    item = NewItem(tenant_id, node_id, stage, payload=payload)
    ids = queue.enqueue(tx, [item])
    return {"id": node_id, "job_id": ids[node_id, stage], "stage": stage, "enqueued": True}


def _first_stage(node: sa.Row[Any]) -> Stage:
    reference = (node.given or {}).get(REFERENCE)
    if reference or (node.raw_key and not node.has_text):
        return Stage.TEXT
    return Stage.EMBED if node.extraction_status is None else Stage.EXTRACT
