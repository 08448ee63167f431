"""What is done when a flow run ends, however it does, so that no run hangs in the air."""

from typing import Any

from prefect import Flow, State
from prefect.client.schemas.objects import FlowRun

from flows.opening import open_flow_app
from penstock.runs.lifecycle import abort_run, release_run, run_of_flow, try_finalize
from tasks.announcements import announce_failed_run


def abort_cancelled_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A cancelled flow run aborts its run: counted, its work cancelled, free to start again."""
    del flow, state
    with open_flow_app(flow_run.parameters.get("blocks")) as app:
        run = run_of_flow(app.database, str(flow_run.id))
        if run is not None and run.status.active:
            abort_run(app.database, app.queue, run.id, reason="its flow run was cancelled")


def settle_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A run with nothing left to do is finalized; one with work left may be taken up at once. A
    flow run that failed is announced, for automations."""
    del flow
    with open_flow_app(flow_run.parameters.get("blocks")) as app:
        run = run_of_flow(app.database, str(flow_run.id))
        if run is None:
            return
        if run.status.active and not try_finalize(app.database, run.id):
            release_run(app.database, run.id, str(flow_run.id))
        if not state.is_completed():
            announce_failed_run(run, state.message or state.name or "")
