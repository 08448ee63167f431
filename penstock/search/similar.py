"""Nodes that are like another one."""

import sqlalchemy as sa

from penstock.search.hybrid import as_hits, say_why
from penstock.search.identity import active_identity
from penstock.search.nearest import search_vectors
from penstock.search.nodes import valid_node_id
from penstock.search.query import Filters, Hit
from penstock.store.database import Tx
from penstock.store.schema import embeddings, nodes


def similar_nodes(tx: Tx, tenant_id: str, node_id: str, limit: int = 5) -> list[Hit]:
    """The nearest by the node's own vector, among those that search uses; none if it has none."""
    identity = active_identity(tx)
    if identity is None:
        return []
    own = (
        sa.select(embeddings.c.seq, embeddings.c.vector)
        .join(nodes, nodes.c.seq == embeddings.c.seq)
        .where(nodes.c.tenant_id == tenant_id, nodes.c.id == valid_node_id(node_id))
        .where(embeddings.c.identity == identity)
    )
    row = tx.execute(own).first()
    if row is None:
        return []
    # One more: the node itself is nearest to itself.
    nearest = search_vectors(tx, row.vector, identity, Filters(tenant_id), limit + 1)
    others = [found for found in nearest if found.seq != row.seq]
    return as_hits(tx, say_why("vector", others[:limit]))
