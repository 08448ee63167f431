"""The page of one run: progress, documents, and actions."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BeforeValidator

from entrypoints.api.deps import AppDep
from entrypoints.api.prefect_runs import flow_run_address
from entrypoints.api.starting import start_run
from entrypoints.dashboard.charts import draw_timeline
from entrypoints.dashboard.forms import Form
from entrypoints.dashboard.rendering import go_to, render_part, show
from entrypoints.dashboard.viewer import Reader, Viewer, Writer
from penstock.app import App
from penstock.operations.jobs import JobFilter, retry_jobs
from penstock.queue.items import ItemStatus
from penstock.runs.lifecycle import abort_run, read_run
from penstock.runs.report import (
    OutcomeFilter,
    group_failures,
    list_slowest,
    page_documents,
    report_run,
)
from penstock.runs.run import Change, DocumentStatus
from penstock.runs.timeline import run_timeline
from penstock.store.columns import storable

router = APIRouter(prefix="/runs")
DOCUMENTS = 50
RunId = Annotated[int, Path(ge=1, le=2**63 - 1)]
# A form sends nothing where any will do.
Chosen = BeforeValidator(lambda given: given or None)


async def read_filter(
    run_id: RunId,
    status: Annotated[DocumentStatus | None, Chosen] = None,
    change: Annotated[Change | None, Chosen] = None,
    error_class: Annotated[str | None, Query(max_length=50)] = None,
    text: Annotated[str | None, Query(max_length=200)] = None,
    after: Annotated[str | None, Query(max_length=5000)] = None,
) -> OutcomeFilter:
    """Which of a run's documents are asked for."""
    named = [storable(one) or None for one in (error_class, text, after)]
    return OutcomeFilter(run_id, status, change, *named)


Wanted = Annotated[OutcomeFilter, Depends(read_filter)]


@router.get("/{run_id}")
def show_run(request: Request, app: AppDep, viewer: Reader, wanted: Wanted) -> HTMLResponse:
    return show(
        request,
        "run.html",
        viewer,
        **_documents(app, viewer, wanted),
        statuses=list(DocumentStatus),
        changes=list(Change),
        summary=summary_values(app, wanted.run_id),
    )


@router.get("/{run_id}/documents")
def show_documents(app: AppDep, viewer: Reader, wanted: Wanted) -> HTMLResponse:
    """Only its documents, for a page that is open already."""
    return HTMLResponse(render_part("run_documents.html", **_documents(app, viewer, wanted)))


@router.post("/{run_id}/abort")
def abort(
    request: Request, app: AppDep, viewer: Writer, run_id: RunId, form: Form
) -> RedirectResponse:
    del form
    _check_owner(app, viewer.tenant_id, run_id)
    abort_run(app.database, app.queue, run_id, reason="aborted on the dashboard")
    said = f"Run {run_id} aborted. The source's next run processes the rest."
    return go_to(request, f"/runs/{run_id}", said)


@router.post("/{run_id}/retry")
def retry_failed(
    request: Request, app: AppDep, viewer: Writer, run_id: RunId, form: Form
) -> RedirectResponse:
    """Jobs of its documents that failed get their full budgets again."""
    del form
    _check_owner(app, viewer.tenant_id, run_id)
    wanted = JobFilter(viewer.tenant_id, status=ItemStatus.FAILED, run_id=run_id)
    done = retry_jobs(app.database, app.queue, wanted)
    return go_to(request, f"/runs/{run_id}", _retried(done.requested, done.done))


@router.post("/{run_id}/again")
def run_again(
    request: Request, app: AppDep, viewer: Writer, run_id: RunId, form: Form
) -> RedirectResponse:
    """Run the same source again; with force, reprocess unchanged documents too."""
    with app.database.read() as tx:
        before = read_run(tx, run_id, viewer.tenant_id)
    run, _ = start_run(
        app,
        before.source_name,
        viewer.tenant_id,
        profile=before.profile,
        force=form.get("force") is not None,
    )
    return go_to(request, f"/runs/{run.id}", f"Run {run.id} of {run.source_name} started.")


def summarize(app: App, run_id: int) -> str:
    """The part of the page that moves while the run goes on."""
    return render_part("run_summary.html", **summary_values(app, run_id))


def summary_values(app: App, run_id: int) -> dict[str, Any]:
    with app.database.read() as tx:
        report = report_run(tx, run_id)
        timeline = run_timeline(tx, run_id, slices=_slices(report.seconds))
        return {
            "report": report,
            "failures": group_failures(tx, run_id),
            "slowest": list_slowest(tx, run_id),
            "prefect_url": flow_run_address(report.run.flow_run_id),
            "timeline": draw_timeline(timeline) if timeline else None,
        }


def _documents(app: App, viewer: Viewer, wanted: OutcomeFilter) -> dict[str, Any]:
    with app.database.read() as tx:
        run = read_run(tx, wanted.run_id, viewer.tenant_id)
        documents = page_documents(tx, wanted, DOCUMENTS)
    more = documents[-1].external_id if len(documents) == DOCUMENTS else None
    same = _asked(wanted)
    return {"run": run, "documents": documents, "wanted": wanted, "same": same, "more": more}


def _slices(seconds: float) -> int:
    """For a chart: of at least a second, and not too many."""
    return min(60, max(5, int(seconds)))


def _asked(wanted: OutcomeFilter) -> dict[str, str]:
    """The filter, for a link to its next page."""
    given = {
        "status": wanted.status,
        "change": wanted.change,
        "error_class": wanted.error_class,
        "text": wanted.text,
    }
    return {name: str(value) for name, value in given.items() if value}


def _check_owner(app: App, tenant_id: str, run_id: int) -> None:
    with app.database.read() as tx:
        read_run(tx, run_id, tenant_id)


def _retried(found: int, done: int) -> str:
    if not found:
        return "This run has no failed jobs. Documents that could not be fetched need a new run."
    return f"Retrying {done} of {found} failed {'job' if found == 1 else 'jobs'}."
