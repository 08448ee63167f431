"""Runs: started through Prefect, watched through the store."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request

from entrypoints.api import starting
from entrypoints.api.deps import AppDep, Reader, ReadTenant, Writer, WriteTenant, tenant_of
from entrypoints.api.events import LARGEST, EventStream, sequence_number, stream_log
from entrypoints.api.hidden_paths import without_paths
from entrypoints.api.models import RunIn
from entrypoints.api.problems import documented
from penstock.app import App
from penstock.events import PAGE, read_log
from penstock.runs.lifecycle import abort_run, read_run
from penstock.runs.report import RunReport, group_failures, list_documents, list_reports, report_run

router = APIRouter(prefix="/runs", tags=["runs"])
RunId = Annotated[int, Path(ge=1, le=LARGEST)]
After = Annotated[int, Query(ge=0, le=LARGEST, description="Go on after this sequence number")]
Stages = Annotated[list[str], Query(description="ING, CRL, TXT, LLM, EMB", max_length=5)]


# Of the stream, as tools read it: event by event.
_EVENT: dict[str, Any] = {
    "content": {
        EventStream.media_type: {
            "schema": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "To go on from: Last-Event-ID"},
                    "event": {"type": "string", "enum": ["log", "end"]},
                    "data": {"type": "string", "description": "A line of the log, as JSON"},
                },
            }
        }
    }
}


@router.get("")
def list_runs(
    app: AppDep, tenant_id: ReadTenant, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[dict[str, Any]]:
    """Runs, newest first."""
    with app.database.read() as tx:
        reports = list_reports(tx, tenant_id, limit)
    return [_shown(app, report) for report in reports]


@router.post("", status_code=202, responses=documented(409, 413))
def start_run(app: AppDep, principal: Writer, body: RunIn) -> dict[str, Any]:
    """Record a run and have a Prefect worker do it (deployment `ingest/ingest`)."""
    tenant_id = tenant_of(principal, body.tenant_id)
    run, flow_run_id = starting.start_run(
        app,
        body.source,
        tenant_id,
        profile=body.profile,
        force=body.force,
        documents=body.documents,
    )
    with app.database.read() as tx:
        report = report_run(tx, run.id)
    return _shown(app, report, flow_run_id=flow_run_id)


@router.get("/{run_id}", responses=documented(404))
def show_run(
    app: AppDep,
    tenant_id: ReadTenant,
    run_id: RunId,
    documents: Annotated[int, Query(ge=0, le=10_000, description="How many to list")] = 100,
) -> dict[str, Any]:
    """A run: progress, failures by class, and documents, those that failed first."""
    with app.database.read() as tx:
        report = report_run(tx, run_id, tenant_id)
        failures = [group.as_json() for group in group_failures(tx, run_id)]
        lines = [line.as_json() for line in list_documents(tx, run_id, documents)]
    return _shown(app, report, failures=failures, documents=lines)


@router.post("/{run_id}/abort", responses=documented(404))
def abort(app: AppDep, tenant_id: WriteTenant, run_id: RunId) -> dict[str, Any]:
    """Abort a run. The source's next run processes what is left."""
    with app.database.read() as tx:
        read_run(tx, run_id, tenant_id)
    abort_run(app.database, app.queue, run_id, reason="aborted over HTTP")
    with app.database.read() as tx:
        report = report_run(tx, run_id)
    return _shown(app, report)


@router.post("/{run_id}/resume", status_code=202, responses=documented(404, 409))
def resume(app: AppDep, tenant_id: WriteTenant, run_id: RunId) -> dict[str, Any]:
    """Have a Prefect worker go on with a run that was paused or interrupted."""
    with app.database.read() as tx:
        read_run(tx, run_id, tenant_id)
    flow_run_id = starting.resume_run(app, run_id)
    with app.database.read() as tx:
        report = report_run(tx, run_id)
    return _shown(app, report, flow_run_id=flow_run_id)


@router.get("/{run_id}/logs", responses=documented(404))
def show_logs(
    app: AppDep,
    tenant_id: ReadTenant,
    run_id: RunId,
    after: After = 0,
    stage: Stages = [],  # noqa: B006 - FastAPI copies defaults
    level: Annotated[str | None, Query(description="INFO, WARNING or ERROR")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = PAGE,
) -> dict[str, Any]:
    """Lines of the run's log in sequence; `next_after` is where to go on."""
    with app.database.read() as tx:
        read_run(tx, run_id, tenant_id)
        lines = read_log(tx, run_id, after=after, stages=stage, level=level, limit=limit)
    shown = without_paths(app.settings, [line.as_json() for line in lines])
    return {"lines": shown, "next_after": lines[-1].seq if lines else after}


@router.get(
    "/{run_id}/events", response_class=EventStream, responses={**documented(404), 200: _EVENT}
)
def stream_events(
    request: Request,
    app: AppDep,
    principal: Reader,
    tenant_id: ReadTenant,
    run_id: RunId,
    after: After = 0,
    stage: Stages = [],  # noqa: B006 - FastAPI copies defaults
    level: str | None = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> EventStream:
    """The log as server-sent events until the run has ended; `Last-Event-ID` goes on after it."""
    with app.database.read() as tx:
        read_run(tx, run_id, tenant_id)
        read_log(tx, run_id, stages=stage, level=level, limit=1)
    lines: AsyncIterator[str] = stream_log(
        app,
        request.is_disconnected,
        run_id,
        after=sequence_number(last_event_id, after),
        stages=stage,
        level=level,
        until=principal.until,
    )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(lines, headers=headers)


def _shown(app: App, report: RunReport, **more: Any) -> dict[str, Any]:
    shown: dict[str, Any] = without_paths(app.settings, report.as_json() | more)
    return shown
