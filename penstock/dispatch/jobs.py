"""Where a job stands in the mirror, from a move of its work item or from its row."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa

from penstock.dispatch.keys import Queue
from penstock.dispatch.payloads import add_death, write_payload
from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, work_items
from penstock.work.items import ItemStatus
from penstock.work.moves import Move

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
NEVER = "0"


class Place(StrEnum):
    """Where the mirror keeps a job."""

    QUEUE = "queue"
    RETRY = "retry"
    CLAIMED = "claimed"
    DEAD = "dead"
    ENDED = "ended"


_PLACES = {
    ItemStatus.PENDING: Place.QUEUE,
    ItemStatus.RETRY_PENDING: Place.RETRY,
    ItemStatus.PROCESSING: Place.CLAIMED,
    ItemStatus.FAILED: Place.DEAD,
    ItemStatus.COMPLETE: Place.ENDED,
    ItemStatus.CANCELLED: Place.ENDED,
}


class Job(NamedTuple):
    """A job, in the order in which the scripts read its fields."""

    queue: Queue
    job_id: int
    place: Place
    version: str
    run_at: str
    node_id: str
    tenant_id: str
    payload: str


def job_of_move(move: Move) -> Job:
    item, place = move.item, _PLACES[move.status]
    payload = write_payload(
        item.id, item.node_id, item.tenant_id, item.priority, item.attempts, item.enqueued_at
    )
    return Job(
        Queue.of(item.stage),
        item.id,
        place,
        write_version(move.at),
        _write_run_at(place, move.run_at or move.at),
        item.node_id,
        item.tenant_id,
        add_death(payload, move.at, move.fault) if place is Place.DEAD else payload,
    )


def flatten(jobs: Iterable[Job]) -> list[str | int]:
    """As arguments of a script."""
    return [field for job in jobs for field in job]


def read_active_jobs(tx: Tx) -> dict[Queue, dict[int, Job]]:
    """All of them as the database has them, by queue and id."""
    c = work_items.c
    query = sa.select(
        c.id,
        c.stage,
        c.status,
        c.updated_at,
        c.run_at,
        c.node_id,
        c.tenant_id,
        c.priority,
        c.attempts,
        c.created_at,
    )
    jobs: dict[Queue, dict[int, Job]] = {queue: {} for queue in Queue}
    for row in tx.execute(query.where(ACTIVE_ITEM)):
        job = _job_of_row(*row)
        jobs[job.queue][job.job_id] = job
    return jobs


def _job_of_row(
    job_id: int,
    stage: str,
    status: str,
    updated_at: datetime,
    run_at: datetime,
    node_id: str,
    tenant_id: str,
    *described: Any,
) -> Job:
    place = _PLACES[ItemStatus(status)]
    return Job(
        Queue.of(Stage(stage)),
        job_id,
        place,
        write_version(updated_at),
        _write_run_at(place, run_at),
        node_id,
        tenant_id,
        write_payload(job_id, node_id, tenant_id, *described),
    )


def write_version(at: datetime) -> str:
    """Microseconds, in as many digits for all, so that they compare as text."""
    return f"{(at - _EPOCH) // _MICROSECOND:016d}"


def _write_run_at(place: Place, run_at: datetime) -> str:
    if place is not Place.RETRY:
        return NEVER
    seconds, microseconds = divmod((run_at - _EPOCH) // _MICROSECOND, 1_000_000)
    return f"{seconds}.{microseconds:06d}"
