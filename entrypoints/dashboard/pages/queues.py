"""Queues and workers: waiting, processing, stuck and failed jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from entrypoints.api.deps import AppDep
from entrypoints.dashboard.forms import Form, number_of, text_of
from entrypoints.dashboard.rendering import go_to, show
from entrypoints.dashboard.viewer import Admin, Reader, Writer
from penstock.documents import Stage
from penstock.errors import UsageError
from penstock.operations import jobs
from penstock.operations.nodes import MAX_NODES
from penstock.operations.status import (
    count_processing,
    list_workers,
    stage_figures,
    stuck_jobs,
    waiting_by_tenant,
)
from penstock.queue.items import ItemStatus

router = APIRouter(prefix="/queues")
LETTERS = 50
STUCK = 50
JobId = Annotated[int, Path(ge=1, le=2**63 - 1)]


@router.get("")
def show_queues(
    request: Request,
    app: AppDep,
    viewer: Reader,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    settings = app.settings
    dead = jobs.JobFilter(viewer.tenant_id, status=ItemStatus.FAILED, before=before)
    with app.database.read() as tx:
        letters = jobs.list_jobs(tx, dead, LETTERS)
        counted = jobs.count_jobs(tx, viewer.tenant_id)
        values: dict[str, Any] = {
            "figures": {
                str(stage): stage_figures(tx, stage, viewer.tenant_or_all) for stage in Stage
            },
            "letters": letters,
            "dead": {name: counts["failed"] for name, counts in counted.items()},
            "more": letters[-1]["id"] if len(letters) == LETTERS else None,
            "tenants": [] if viewer.bound else waiting_by_tenant(tx),
            "workers": list_workers(
                tx, lease_seconds=settings.lease_seconds, tenant_id=viewer.tenant_or_all
            ),
            "held": stuck_jobs(tx, viewer.tenant_id, limit=STUCK),
            "processing": count_processing(tx, viewer.tenant_id),
        }
    return show(
        request,
        "queues.html",
        viewer,
        lease_seconds=settings.lease_seconds,
        old_seconds=settings.queue_age_seconds,
        **values,
    )


@router.post("/jobs/{job_id}/retry")
def retry(
    request: Request, app: AppDep, viewer: Writer, job_id: JobId, form: Form
) -> RedirectResponse:
    del form
    with app.database.write() as tx:
        jobs.retry_job(tx, app.queue, viewer.tenant_id, job_id)
    return go_to(request, "/queues", f"Job {job_id} restarted.")


@router.post("/dead-letters")
def replay_letters(request: Request, app: AppDep, viewer: Admin, form: Form) -> RedirectResponse:
    """One dead letter, or all of a stage."""
    named = text_of(form, "stage")
    if named not in tuple(Stage):
        raise UsageError("name a stage: text, extract or embed")
    ids = [number_of(form, "job")] if text_of(form, "job") else None
    with app.database.write() as tx:
        count = jobs.replay(tx, app.queue, viewer.tenant_id, Stage(named), ids=ids, limit=MAX_NODES)
    failed = f"failed {named} {'job' if count == 1 else 'jobs'}"
    return go_to(request, "/queues", f"Retrying {count} {failed}.")
