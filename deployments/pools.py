"""The work pool and its queues: who goes first, and how much may run at once."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.workers.utilities import get_default_base_job_template_for_infrastructure_type

from penstock.errors import UsageError

POOL = "penstock"
DOCKER_POOL = "penstock-docker"
"""Of the deployments in deployments/prefect-docker.yaml."""
# The worker reads the block when it starts a flow run; a process inherits its worker's environment
# instead, and Kubernetes and ECS have secrets of their own.
_DOCKER_ENVIRONMENT = {"PENSTOCK_DSN": "{{ prefect.blocks.secret.penstock-dsn }}"}
_COMMAND = re.compile(r"\{\{\s*command\s*\}\}")


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
    Queue("extract", "Works on due items; five at once, to spare the database.", 3, 5),
    Queue("llm", "Work that asks models for long: few at once spare their quota.", 4, 2),
)


def pool_name(kind: str) -> str:
    """Docker has a pool of its own, since its deployments name an image."""
    return DOCKER_POOL if kind == "docker" else POOL


def install_pool(kind: str = "process") -> list[str]:
    """Create the pool and its queues where they are missing; what was done.

    Limits, priorities and job variables that were changed in the UI stay as they are.
    """
    pool = pool_name(kind)
    with get_client(sync_client=True) as client:
        queues = (_ensure_queue(client, pool, queue) for queue in QUEUES)
        return [_ensure_pool(client, pool, kind), *queues]


def _ensure_pool(client: SyncPrefectClient, pool: str, kind: str) -> str:
    try:
        known = client.read_work_pool(pool).base_job_template
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(
                name=pool,
                type=kind,
                description="Flows of Penstock; workers of this pool scale them.",
                base_job_template=_job_template(kind),
            )
        )
        return f"created work pool {pool!r} of type {kind}"
    wanted = without_command(known)
    if wanted == known:
        return f"unchanged work pool {pool!r}"
    client.update_work_pool(pool, WorkPoolUpdate(base_job_template=wanted))
    return f"updated work pool {pool!r}: a flow run can no longer name a command of its own"


def _job_template(kind: str) -> dict[str, Any]:
    found = asyncio.run(get_default_base_job_template_for_infrastructure_type(kind))
    if found is None:
        raise UsageError(
            f"Prefect knows no work pools of type {kind}: install its package, for example "
            "`pip install penstock[docker]` or `penstock[kubernetes]`; ECS is in prefect-aws"
        )
    template = without_command(found)
    if kind == "docker":
        template["variables"]["properties"]["env"]["default"] = _DOCKER_ENVIRONMENT
    return template


def without_command(template: dict[str, Any]) -> dict[str, Any]:
    """The template without `command`: a flow run cannot make a worker run another program. Prefect
    fills in a variable wherever the template names it, declared or not, so both are removed."""
    found: dict[str, Any] = _without_placeholder(template)
    found.get("variables", {}).get("properties", {}).pop("command", None)
    return found


def _without_placeholder(part: Any) -> Any:
    if isinstance(part, dict):
        kept = {name: value for name, value in part.items() if not _asks_for_command(value)}
        return {name: _without_placeholder(value) for name, value in kept.items()}
    if isinstance(part, list):
        return [_without_placeholder(value) for value in part if not _asks_for_command(value)]
    return part


def _asks_for_command(value: Any) -> bool:
    return isinstance(value, str) and bool(_COMMAND.search(value))


def _ensure_queue(client: SyncPrefectClient, pool: str, queue: Queue) -> str:
    try:
        client.read_work_queue_by_name(queue.name, work_pool_name=pool)
    except ObjectNotFound:
        client.create_work_queue(
            queue.name,
            description=queue.description,
            concurrency_limit=queue.limit,
            priority=queue.priority,
            work_pool_name=pool,
        )
        return f"created work queue {queue.name!r}"
    return f"unchanged work queue {queue.name!r}"
