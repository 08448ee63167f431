"""The operators' endpoints of the two queues: status, requeue, dead letters."""

from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query

from entrypoints.api.deps import Admin, AdminTenant, AppDep, tenant_of
from entrypoints.api.hidden_paths import without_paths
from entrypoints.api.models import ReplayIn, Requeued, RequeueIn
from entrypoints.api.problems import documented
from penstock.app import App
from penstock.documents import Stage
from penstock.errors import ServiceError
from penstock.operations.jobs import JobFilter, list_jobs, purge, replay
from penstock.operations.nodes import MAX_NODES, Requeue, requeue_nodes
from penstock.operations.status import stored_depths
from penstock.queue.items import ItemStatus
from penstock.queue.stats import count_nodes
from penstock.redis.reconcile import queue_depths
from penstock.search.nodes import valid_node_id

router = APIRouter(prefix="/admin", tags=["admin"])
Page = Annotated[int, Query(ge=1, le=500)]


class QueueName(StrEnum):
    EXTRACTION = "extraction"
    EMBEDDING = "embedding"

    @property
    def stage(self) -> Stage:
        return Stage.EXTRACT if self is QueueName.EXTRACTION else Stage.EMBED


@router.get("/{queue}/status")
def show_status(
    app: AppDep, principal: Admin, queue: QueueName, tenant_id: str | None = None
) -> dict[str, Any]:
    """Nodes by status and the depth of the queue. With tokens, both are the tenant's own."""
    tenant = tenant_of(principal, tenant_id)
    with app.database.read() as tx:
        counts = count_nodes(tx, tenant)[queue]
        depths = stored_depths(tx, queue.stage, tenant if principal.bound else None)
    if app.redis is not None and not principal.bound:
        with suppress(ServiceError):
            depths = queue_depths(app.redis)[queue]
    return _mode(app, queue) | {"tenant_id": tenant, "status_counts": counts, "queue": depths}


@router.post("/{queue}/requeue", responses=documented(404, 413))
def requeue(app: AppDep, principal: Admin, queue: QueueName, body: RequeueIn) -> Requeued:
    """Put nodes back to work, with full budgets; what is active already is not doubled."""
    wanted = Requeue(
        tenant_of(principal, body.tenant_id),
        queue.stage,
        status=body.status,
        only_null_status=body.only_null_status,
        only_missing_embedding=body.only_missing_embedding,
        backfill_ready=body.backfill_ready,
        node_ids=None if body.node_ids is None else [valid_node_id(n) for n in body.node_ids],
        limit=min(body.limit, MAX_NODES),
    )
    with app.database.write() as tx:
        done = requeue_nodes(tx, app.queue, wanted, app.embedder.identity)
    return Requeued(**done.as_json())


@router.get("/{queue}/dlq")
def list_dead_letters(
    app: AppDep,
    tenant_id: AdminTenant,
    queue: QueueName,
    limit: Page = 100,
    before: Annotated[int | None, Query(description="Only smaller ids: the next page")] = None,
) -> dict[str, Any]:
    """Jobs that will not be tried again by themselves, newest first."""
    wanted = JobFilter(tenant_id, (queue.stage,), ItemStatus.FAILED, before=_bounded(before))
    with app.database.read() as tx:
        jobs = list_jobs(tx, wanted, limit)
    shown = without_paths(app.settings, jobs)
    return {"jobs": shown, "next_before": jobs[-1]["id"] if len(jobs) == limit else None}


@router.post("/{queue}/dlq/replay", responses=documented(413))
def replay_dead_letters(
    app: AppDep, principal: Admin, queue: QueueName, body: ReplayIn
) -> dict[str, int]:
    """Try dead letters again, with full budgets."""
    tenant = tenant_of(principal, body.tenant_id)
    ids = None if body.ids is None else [one for one in body.ids if _bounded(one) == one]
    with app.database.write() as tx:
        count = replay(
            tx, app.queue, tenant, queue.stage, ids=ids, limit=min(body.limit, MAX_NODES)
        )
    return {"replayed": count}


@router.delete("/{queue}/dlq")
def purge_dead_letters(
    app: AppDep,
    tenant_id: AdminTenant,
    queue: QueueName,
    older_than_seconds: Annotated[float, Query(ge=0, le=10 * 365 * 86_400)] = 0,
) -> dict[str, int]:
    """Forget dead letters that are older than this."""
    age = timedelta(seconds=older_than_seconds)
    with app.database.write() as tx:
        return {"purged": purge(tx, tenant_id, queue.stage, older_than=age)}


def _mode(app: App, queue: QueueName) -> dict[str, Any]:
    extraction, embedding = app.settings.extraction, app.settings.embedding
    if queue is QueueName.EXTRACTION:
        return {"enabled": extraction.enabled, "mode": extraction.mode}
    return {"enabled": True, "mode": "async" if embedding.asynchronous else "sync"}


def _bounded(number: int | None) -> int | None:
    """Ids are 64-bit; what is larger is no id."""
    return None if number is None else max(0, min(number, 2**63 - 1))
