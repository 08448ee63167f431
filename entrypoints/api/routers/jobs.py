"""Extraction jobs: the work items behind the queues, one by one."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from entrypoints.api.deps import AppDep, ReadTenant, Writer, WriteTenant, tenant_of
from entrypoints.api.hidden_paths import without_paths
from entrypoints.api.models import Cancelled, JobIn, JobsIn, Retried
from entrypoints.api.problems import documented
from penstock.app import App
from penstock.documents import Stage
from penstock.errors import NotFound
from penstock.operations import jobs
from penstock.operations.nodes import Requeue, requeue_nodes
from penstock.operations.status import count_processing, stuck_jobs
from penstock.queue.items import ItemStatus
from penstock.search.nodes import valid_node_id

router = APIRouter(prefix="/extraction-jobs", tags=["jobs"])
JobId = Annotated[int, Path(ge=1, le=2**63 - 1)]
BigId = Annotated[int | None, Query(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Query(ge=0, le=10 * 365 * 86_400)]


@router.get("", responses=documented(404))
def list_jobs(
    app: AppDep,
    tenant_id: ReadTenant,
    stage: Stage = Stage.EXTRACT,
    status: ItemStatus | None = None,
    node_id: str | None = None,
    run_id: BigId = None,
    error_class: Annotated[str | None, Query(max_length=50, pattern="^[a-z_]+$")] = None,
    before: BigId = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> dict[str, Any]:
    """Jobs, newest first; `stage` shows those of text and embed."""
    node = None if node_id is None else valid_node_id(node_id)
    wanted = jobs.JobFilter(tenant_id, (stage,), status, node, run_id, error_class, before)
    with app.database.read() as tx:
        found = jobs.list_jobs(tx, wanted, limit)
    shown = without_paths(app.settings, found)
    return {"jobs": shown, "next_before": found[-1]["id"] if len(found) == limit else None}


@router.post("", responses=documented(404, 413))
def create_job(app: AppDep, principal: Writer, body: JobIn) -> dict[str, Any]:
    """Have a node extracted or embedded; a job that is active already is not doubled."""
    tenant_id, node_id = tenant_of(principal, body.tenant_id), valid_node_id(body.node_id)
    stage = Stage(body.stage)
    wanted = Requeue(tenant_id, stage, node_ids=[node_id], limit=1, priority=body.priority)
    with app.database.write() as tx:
        done = requeue_nodes(tx, app.queue, wanted, app.embedder.identity)
        if not done.requested:
            raise NotFound(f"there is no node {node_id}")
        job = jobs.active_job(tx, tenant_id, node_id, stage)
    return {"enqueued": bool(done.enqueued), "job": _shown(app, job)}


@router.get("/statistics")
def count_jobs(app: AppDep, tenant_id: ReadTenant) -> dict[str, dict[str, int]]:
    """Jobs by stage and status."""
    with app.database.read() as tx:
        return jobs.count_jobs(tx, tenant_id)


@router.get("/stuck")
def list_stuck_jobs(
    app: AppDep,
    tenant_id: ReadTenant,
    stage: Stage | None = None,
    min_inactive_seconds: Seconds = 0,
    min_running_seconds: Seconds = 0,
    limit: Annotated[int, Query(ge=1, le=2000)] = 500,
) -> dict[str, Any]:
    """Jobs in processing, of all stages, those that were begun first in front: who holds them, for
    how long, and when their worker last gave a sign of life. `processing` counts all there are."""
    with app.database.read() as tx:
        found = stuck_jobs(
            tx,
            tenant_id,
            stage=stage,
            min_inactive_seconds=min_inactive_seconds,
            min_running_seconds=min_running_seconds,
            limit=limit,
        )
        return {"jobs": found, "processing": count_processing(tx, tenant_id, stage)}


@router.post("/retry", responses=documented(404, 413))
def retry_jobs(app: AppDep, principal: Writer, body: JobsIn) -> Retried:
    """Start jobs over that are processing or failed: many at once, and all others refused."""
    wanted = _filter(tenant_of(principal, body.tenant_id), body)
    done = jobs.retry_jobs(app.database, app.queue, wanted, ids=body.ids, limit=body.limit)
    return Retried(**done.as_json("retried"))


@router.post("/cancel", responses=documented(404, 413))
def cancel_jobs(app: AppDep, principal: Writer, body: JobsIn) -> Cancelled:
    """Cancel jobs that have not ended: many at once, and all others refused."""
    wanted = _filter(tenant_of(principal, body.tenant_id), body)
    done = jobs.cancel_jobs(app.database, app.queue, wanted, ids=body.ids, limit=body.limit)
    return Cancelled(**done.as_json("cancelled"))


def _filter(tenant_id: str, body: JobsIn) -> jobs.JobFilter:
    node = None if body.node_id is None else valid_node_id(body.node_id)
    stages = () if body.stage is None else (body.stage,)
    wanted = jobs.JobFilter(tenant_id, stages, body.status, node, body.run_id, body.error_class)
    if body.ids is None and wanted.narrows and not stages:
        # What the listing shows for the same filter, and nothing else.
        return replace(wanted, stages=(Stage.EXTRACT,))
    return wanted


@router.get("/{job_id}", responses=documented(404))
def show_job(app: AppDep, tenant_id: ReadTenant, job_id: JobId) -> dict[str, Any]:
    """One job, with the history of its failed attempts."""
    with app.database.read() as tx:
        return _shown(app, jobs.show_job(tx, tenant_id, job_id))


@router.post("/{job_id}/retry", responses=documented(404))
def retry_job(app: AppDep, tenant_id: WriteTenant, job_id: JobId) -> dict[str, Any]:
    """Start a job over that is processing or failed; a worker that is at it is fenced out."""
    with app.database.write() as tx:
        jobs.retry_job(tx, app.queue, tenant_id, job_id)
        return _shown(app, jobs.show_job(tx, tenant_id, job_id))


@router.post("/{job_id}/cancel", responses=documented(404))
def cancel_job(app: AppDep, tenant_id: WriteTenant, job_id: JobId) -> dict[str, Any]:
    """Cancel a job that has not ended."""
    jobs.cancel_job(app.database, app.queue, tenant_id, job_id)
    with app.database.read() as tx:
        return _shown(app, jobs.show_job(tx, tenant_id, job_id))


@router.delete("/{job_id}", status_code=204, responses=documented(404))
def delete_job(app: AppDep, tenant_id: WriteTenant, job_id: JobId) -> Response:
    """Forget a job that has ended, with its history."""
    with app.database.write() as tx:
        jobs.delete_job(tx, tenant_id, job_id)
    return Response(status_code=204)


def _shown(app: App, job: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = without_paths(app.settings, job)
    return shown
