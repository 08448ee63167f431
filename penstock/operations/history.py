"""Everything that was ever tried with one node."""

from typing import Any

from penstock.operations.jobs import JobFilter, list_jobs, with_histories
from penstock.search.nodes import valid_node_id
from penstock.store.database import Tx

MOST_JOBS = 50


def node_history(tx: Tx, tenant_id: str, node_id: str) -> list[dict[str, Any]]:
    """The newest jobs of a node, of every stage, each with its failed attempts."""
    wanted = JobFilter(tenant_id, node_id=valid_node_id(node_id))
    return with_histories(tx, list_jobs(tx, wanted, MOST_JOBS))
