"""Embedding inside the request, for whoever would rather wait than come back."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import ConfigurationError, Interrupted
from penstock.intake.request import Accepted
from penstock.store.database import Database, Tx
from penstock.store.schema import nodes, work_items
from penstock.work.heart import new_owner
from penstock.work.items import Claim
from penstock.work.queue import WorkQueue

log = logging.getLogger(__name__)


def embed_accepted(
    database: Database,
    queue: WorkQueue,
    process: Callable[[Claim], None],
    accepted: Sequence[Accepted],
) -> list[Accepted]:
    """Claim their embedding jobs and do them here; what another worker was quicker to claim,
    cannot be done here, or has to be tried again, is left to the workers."""
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
        _try(process, claim)
    with database.read() as tx:
        now = _statuses(tx, [one.id for one in accepted])
    # One that was answered before may have been deleted since.
    return [
        replace(one, embedding_status=now.get(one.id, one.embedding_status)) for one in accepted
    ]


def _try(process: Callable[[Claim], None], claim: Claim) -> None:
    try:
        process(claim)
    except (ConfigurationError, Interrupted) as error:
        # The nodes are accepted: an error would have their owner bring them again.
        log.warning("embedding is left to the workers: %s", error)


def _tenant_of(tx: Tx, ids: Sequence[int]) -> str | None:
    query = sa.select(work_items.c.tenant_id).where(work_items.c.id.in_(ids)).limit(1)
    return tx.execute(query).scalar()


def _statuses(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    known = sa.and_(nodes.c.id.in_(ids), nodes.c.embedding_status.is_not(None))
    query = sa.select(nodes.c.id, nodes.c.embedding_status).where(known)
    return {row.id: row.embedding_status for row in tx.execute(query)}
