"""Counts of work items and nodes by status, and how long recent items took."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.queue.items import ItemStatus, part_of
from penstock.store.database import Tx
from penstock.store.schema import COMPLETE_ITEM, nodes, work_items

# A tenant's newest jobs are looked for among this many of all tenants.
NEWEST_JOBS = 20_000
_c = work_items.c


def count_items(
    tx: Tx,
    *conditions: sa.ColumnElement[bool],
    tenant_id: str | None = None,
    stage: Stage | None = None,
    statuses: Collection[ItemStatus] = tuple(ItemStatus),
) -> Counter[tuple[str, str]]:
    """Work items by stage and status.

    One statement, so that no item moves between two counts. Items of different statuses lie in
    different indexes: each is counted from its own, and one that is not asked for is not read.
    """
    chosen = list(conditions)
    if tenant_id is not None:
        chosen.append(_c.tenant_id == tenant_id)
    if stage is not None:
        chosen.append(_c.stage == stage)
    parts = dict.fromkeys(part_of(status) for status in statuses)
    rows = tx.execute(sa.union_all(*[_count_part(part, chosen) for part in parts]))
    return Counter({(row[0], row[1]): row[2] for row in rows if row[1] in statuses})


def _count_part(part: sa.TextClause, chosen: list[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    own = sa.and_(*chosen, part)
    if part is not COMPLETE_ITEM:
        counted = sa.select(_c.stage, _c.status, sa.func.count()).where(own)
        return counted.group_by(_c.stage, _c.status)
    # By far the most: the status is not read, not even to group by it, so that Postgres reads
    # only the index.
    complete = sa.literal(ItemStatus.COMPLETE.value, sa.Text()).label("status")
    return sa.select(_c.stage, complete, sa.func.count()).where(own).group_by(_c.stage)


def by_status(
    counted: Counter[tuple[str, str]], stages: Collection[Stage] = tuple(Stage)
) -> dict[str, int]:
    """The same counts for these stages together; every status is there."""
    return {str(one): sum(counted[stage, one] for stage in stages) for one in ItemStatus}


def count_run_items(tx: Tx, run_ids: Collection[int]) -> list[sa.Row[Any]]:
    """Items of these runs by run, stage, status and outcome, which one index has."""
    each = (_c.run_id, _c.stage, _c.status, _c.outcome)
    counted = sa.select(*each, sa.func.count().label("items")).where(tx.among(_c.run_id, run_ids))
    return list(tx.execute(counted.group_by(*each)))


def count_nodes(tx: Tx, tenant_id: str) -> dict[str, Any]:
    """A tenant's nodes, and how many of them have which extraction and embedding status; `none`
    for those at which the stage never began."""
    present = sa.and_(nodes.c.tenant_id == tenant_id, nodes.c.expired_at.is_(None))
    both = (nodes.c.extraction_status, nodes.c.embedding_status)
    extraction: Counter[str] = Counter()
    embedding: Counter[str] = Counter()
    counted = sa.select(*both, sa.func.count()).where(present).group_by(*both)
    for extracted, embedded, found in tx.execute(counted):
        extraction[extracted or "none"] += found
        embedding[embedded or "none"] += found
    return {
        "nodes": extraction.total(),
        "extraction": dict(extraction),
        "embedding": dict(embedding),
        "needs_review": count_for_review(tx, tenant_id),
    }


def count_for_review(tx: Tx, tenant_id: str | None = None) -> int:
    """Nodes that need review, of one tenant or of all; read from an index that has only these."""
    flagged = sa.and_(nodes.c.needs_review, nodes.c.expired_at.is_(None))
    own = sa.true() if tenant_id is None else nodes.c.tenant_id == tenant_id
    return int(tx.execute(sa.select(sa.func.count()).where(flagged, own)).scalar_one())


def age_seconds(tx: Tx, since: datetime | None) -> float:
    """How long ago that was by the database's clock; 0 for None."""
    return 0.0 if since is None else max(0.0, (tx.now - since).total_seconds())


def newest_done(tx: Tx, stage: Stage, tenant_id: str | None, limit: int) -> list[sa.Row[Any]]:
    """The start and end of the items that were completed last, the newest first."""
    newest = (
        sa.select(_c.tenant_id, _c.started_at, _c.finished_at)
        .where(COMPLETE_ITEM, _c.stage == stage)
        .order_by(_c.finished_at.desc())
        .limit(limit if tenant_id is None else NEWEST_JOBS)
        .subquery()
    )
    found = sa.select(newest.c.started_at, newest.c.finished_at)
    found = found.where(newest.c.started_at.is_not(None)).order_by(newest.c.finished_at.desc())
    if tenant_id is not None:
        found = found.where(newest.c.tenant_id == tenant_id)
    return list(tx.execute(found.limit(limit)))
