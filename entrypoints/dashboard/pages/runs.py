"""Runs, newest first; where they are started."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from entrypoints.api.deps import AppDep
from entrypoints.api.starting import start_run
from entrypoints.dashboard.forms import Form, csrf_of, text_of
from entrypoints.dashboard.rendering import go_to, render_part, show
from entrypoints.dashboard.viewer import Reader, Viewer, Writer
from penstock.app import App
from penstock.errors import UsageError
from penstock.llm.profiles import profile_names
from penstock.operations.status import known_tenants
from penstock.runs.report import list_reports
from penstock.sources.catalogue import list_sources

router = APIRouter(prefix="/runs")
PAGE = 25
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


@router.get("")
def show_runs(request: Request, app: AppDep, viewer: Reader, before: Before = None) -> HTMLResponse:
    with app.database.read() as tx:
        sources = [source.name for source in list_sources(tx, viewer.tenant_id)]
        tenants = [] if viewer.bound else known_tenants(tx)
    return show(
        request,
        "runs.html",
        viewer,
        sources=sources,
        tenants=tenants,
        profiles=profile_names(),
        **_table(app, viewer, before),
    )


@router.get("/table")
def show_table(
    request: Request, app: AppDep, viewer: Reader, before: Before = None
) -> HTMLResponse:
    """Only the table, for a page that is open already."""
    found = _table(app, viewer, before)
    return HTMLResponse(
        render_part("runs_table.html", viewer=viewer, csrf=csrf_of(request), **found)
    )


@router.post("")
def start(request: Request, app: AppDep, viewer: Writer, form: Form) -> RedirectResponse:
    source = text_of(form, "source")
    if source is None:
        raise UsageError("name a source, or type a URL")
    run, _ = start_run(
        app,
        source,
        viewer.tenant_id,
        profile=text_of(form, "profile"),
        force=form.get("force") is not None,
    )
    return go_to(request, f"/runs/{run.id}", f"Run {run.id} of {run.source_name} started.")


def _table(app: App, viewer: Viewer, before: int | None) -> dict[str, Any]:
    with app.database.read() as tx:
        reports = list_reports(tx, viewer.tenant_id, PAGE, before=before)
    more = reports[-1].run.id if len(reports) == PAGE else None
    return {"reports": reports, "before": before, "more": more}
