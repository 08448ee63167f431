"""Dead letters: jobs that will not be tried again by themselves, until somebody says so."""

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import work_items
from penstock.work.items import ItemStatus
from penstock.work.queue import WorkQueue

NOTE = "Job was replayed from the dead letters."


def replay(
    tx: Tx,
    queue: WorkQueue,
    tenant_id: str,
    stage: Stage,
    *,
    ids: Sequence[int] | None,
    limit: int,
) -> int:
    """Dead letters, or these, become pending again with full budgets; how many."""
    dead = sa.select(work_items.c.id).where(*_dead(tenant_id, stage))
    if ids is not None:
        dead = dead.where(work_items.c.id.in_(ids))
    chosen = tx.execute(dead.order_by(work_items.c.id).limit(limit)).scalars().all()
    return len(queue.requeue(tx, work_items.c.id.in_(chosen), note=NOTE)) if chosen else 0


def purge(tx: Tx, tenant_id: str, stage: Stage, *, older_than: timedelta) -> int:
    """Forget dead letters of a certain age; how many."""
    old = work_items.c.finished_at <= tx.now - older_than
    return tx.execute(sa.delete(work_items).where(*_dead(tenant_id, stage), old)).rowcount


def _dead(tenant_id: str, stage: Stage) -> list[sa.ColumnElement[bool]]:
    c = work_items.c
    return [c.tenant_id == tenant_id, c.stage == stage, c.status == ItemStatus.FAILED]
