"""Deleting a node: its row, text, vectors, answers and jobs, and then its raw bytes."""

import sqlalchemy as sa

from penstock.crawl.rawstore import RawStore
from penstock.errors import NotFound
from penstock.search.nodes import valid_node_id
from penstock.store.database import Database, Tx
from penstock.store.schema import extractions, nodes, run_documents, work_items
from penstock.work.queue import WorkQueue


def delete_node(
    database: Database, queue: WorkQueue, raw: RawStore, tenant_id: str, node_id: str
) -> None:
    """A worker that is at it can no longer write. What runs counted stays counted."""
    node_id = valid_node_id(node_id)
    with database.write() as tx:
        key = _delete_rows(tx, queue, tenant_id, node_id)
    # Last: raw bytes that nobody knows of are a small loss, a node without its bytes a large one.
    if key is not None:
        raw.delete(key)


def _delete_rows(tx: Tx, queue: WorkQueue, tenant_id: str, node_id: str) -> str | None:
    own = sa.and_(nodes.c.id == node_id, nodes.c.tenant_id == tenant_id)
    found = tx.execute(sa.select(nodes.c.id, nodes.c.raw_key).where(own).with_for_update()).first()
    if found is None:
        raise NotFound(f"there is no node {node_id}")
    queue.cancel(tx, work_items.c.node_id == node_id)
    for table in (work_items, extractions):
        tx.execute(sa.delete(table).where(table.c.node_id == node_id))
    left = sa.update(run_documents).where(run_documents.c.node_id == node_id)
    tx.execute(left.values(node_id=None))
    tx.execute(sa.delete(nodes).where(nodes.c.id == node_id))
    shared = sa.select(sa.literal(1)).where(nodes.c.raw_key == found.raw_key).limit(1)
    in_use = found.raw_key is None or tx.execute(shared).first() is not None
    return None if in_use else str(found.raw_key)
