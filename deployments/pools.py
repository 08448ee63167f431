"""The work pool and its queues: who goes first, and how much may run at once."""

import asyncio
from dataclasses import dataclass
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound
from prefect.workers.utilities import get_default_base_job_template_for_infrastructure_type

from penstock.errors import UsageError

POOL = "penstock"


@dataclass(frozen=True, slots=True)
class Queue:
    """A work queue. Of those that have something to run, the one with the smallest priority goes
    first; `limit` is how many of its flow runs may run at once."""

    name: str
    description: str
    priority: int
    limit: int


QUEUES = (
    Queue("maintenance", "Recovery and upkeep: short, and others depend on it.", 1, 2),
    # Each flow run has a handful of connections to the database.
    Queue("crawl", "Listing and fetching sources; five at once spare the database.", 2, 5),
    Queue("extract", "Draining whatever is due; five at once spare the database.", 3, 5),
    Queue("llm", "Work that asks models for long: few at once spare their quota.", 4, 2),
)


def install_pool(kind: str = "process") -> list[str]:
    """Create the pool and its queues where they are missing; what was done.

    Limits and priorities that somebody changed in the UI stay as they are.
    """
    with get_client(sync_client=True) as client:
        return [_ensure_pool(client, kind), *(_ensure_queue(client, queue) for queue in QUEUES)]


def _ensure_pool(client: SyncPrefectClient, kind: str) -> str:
    try:
        client.read_work_pool(POOL)
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(
                name=POOL,
                type=kind,
                description="Flows of Penstock; workers of this pool scale them.",
                base_job_template=_job_template(kind),
            )
        )
        return f"created work pool {POOL!r} of type {kind}"
    return f"unchanged work pool {POOL!r}"


def _job_template(kind: str) -> dict[str, Any]:
    found = asyncio.run(get_default_base_job_template_for_infrastructure_type(kind))
    if found is None:
        raise UsageError(
            f"Prefect knows no work pools of type {kind}: install its package, for example "
            "prefect-docker, prefect-kubernetes or prefect-aws"
        )
    return found


def _ensure_queue(client: SyncPrefectClient, queue: Queue) -> str:
    try:
        client.read_work_queue_by_name(queue.name, work_pool_name=POOL)
    except ObjectNotFound:
        client.create_work_queue(
            queue.name,
            description=queue.description,
            concurrency_limit=queue.limit,
            priority=queue.priority,
            work_pool_name=POOL,
        )
        return f"created work queue {queue.name!r}"
    return f"unchanged work queue {queue.name!r}"
