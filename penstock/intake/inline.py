"""Embedding inside the request, for whoever would rather wait than come back."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.intake.request import Accepted
from penstock.store.database import Database, Tx
from penstock.store.schema import nodes, work_items
from penstock.work.heart import new_owner
from penstock.work.items import Claim
from penstock.work.queue import WorkQueue


def embed_accepted(
    database: Database,
    queue: WorkQueue,
    process: Callable[[Claim], None],
    accepted: Sequence[Accepted],
) -> list[Accepted]:
    """Claim their embedding jobs and do them here; what another worker was quicker to claim, or
    has to be tried again, is left to the workers."""
    ids = [one.job_id for one in accepted if one.job_id is not None]
    with database.write() as tx:
        tenant_id = _tenant_of(tx, ids)
        claim = queue.claim(
            tx,
            new_owner(),
            stages=(Stage.EMBED,),
            limit=len(ids) or 1,
            tenant_id=tenant_id,
            only=ids,
        )
    if claim:
        process(claim)
    with database.read() as tx:
        now = _statuses(tx, [one.id for one in accepted])
    return [replace(one, embedding_status=now[one.id]) for one in accepted]


def _tenant_of(tx: Tx, ids: Sequence[int]) -> str | None:
    query = sa.select(work_items.c.tenant_id).where(work_items.c.id.in_(ids)).limit(1)
    return tx.execute(query).scalar()


def _statuses(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    query = sa.select(nodes.c.id, nodes.c.embedding_status).where(nodes.c.id.in_(ids))
    return {row.id: row.embedding_status for row in tx.execute(query)}
