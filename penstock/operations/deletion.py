"""Deleting a node: its row, text, vectors, answers and jobs, and then its raw bytes."""

import sqlalchemy as sa

from penstock.crawl.rawstore import RawStore
from penstock.documents import Fault
from penstock.errors import ErrorClass, NotFound
from penstock.pipeline.closing import close_failed
from penstock.pipeline.telling import tell_failures
from penstock.runs.lifecycle import try_finalize
from penstock.search.nodes import valid_node_id
from penstock.store.database import Database, Tx
from penstock.store.schema import extractions, nodes, run_documents, work_items
from penstock.work.items import Verdict, WorkItem
from penstock.work.queue import WorkQueue

DELETED = "it was deleted before it was done"


def delete_node(
    database: Database, queue: WorkQueue, raw: RawStore, tenant_id: str, node_id: str
) -> None:
    """A worker that is at it can no longer write. What runs counted stays counted; a run that
    still waited for it has an error instead."""
    node_id = valid_node_id(node_id)
    with database.write() as tx:
        key, run_ids = _delete_rows(tx, queue, tenant_id, node_id)
    for run_id in run_ids:
        try_finalize(database, run_id)
    # Last: raw bytes that nobody knows of are a small loss, a node without its bytes a large one.
    if key is not None:
        raw.delete(key)


def _delete_rows(
    tx: Tx, queue: WorkQueue, tenant_id: str, node_id: str
) -> tuple[str | None, set[int]]:
    """The key of its raw bytes, if nobody else has them; and the runs that waited for it."""
    own = sa.and_(nodes.c.id == node_id, nodes.c.tenant_id == tenant_id)
    known = sa.select(nodes.c.raw_key).where(own)
    if tx.execute(known).first() is None:
        raise NotFound(f"there is no node {node_id}")
    # Jobs before their node, as workers do it: in another order each could wait for the other.
    run_ids = _cancel_jobs(tx, queue, node_id)
    jobs = sa.delete(work_items).where(work_items.c.node_id == node_id)
    tx.execute(jobs)
    found = tx.execute(known.with_for_update()).first()
    if found is None:
        raise NotFound(f"there is no node {node_id}: somebody has just deleted it")
    # Others that came while we waited for the node; from now on none can come.
    run_ids |= _cancel_jobs(tx, queue, node_id)
    tx.execute(jobs)
    tx.execute(sa.delete(extractions).where(extractions.c.node_id == node_id))
    left = sa.update(run_documents).where(run_documents.c.node_id == node_id)
    tx.execute(left.values(node_id=None))
    tx.execute(sa.delete(nodes).where(nodes.c.id == node_id))
    shared = sa.select(sa.literal(1)).where(nodes.c.raw_key == found.raw_key).limit(1)
    in_use = found.raw_key is None or tx.execute(shared).first() is not None
    return None if in_use else str(found.raw_key), run_ids


def _cancel_jobs(tx: Tx, queue: WorkQueue, node_id: str) -> set[int]:
    fault = Fault(ErrorClass.UNKNOWN, DELETED)
    items: list[WorkItem] = []
    # A worker in the middle of a commit may open the next stage while we wait for it.
    while cancelled := queue.cancel(tx, work_items.c.node_id == node_id):
        items += cancelled
    verdicts = [Verdict(item, fault, dead=True) for item in items if item.run_id is not None]
    close_failed(tx, verdicts)
    tell_failures(tx, verdicts)
    return {item.run_id for item in items if item.run_id is not None}
