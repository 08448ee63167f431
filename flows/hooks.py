"""What is done when a flow run ends from outside, so that its run does not hang in the air."""

from typing import Any

from prefect import Flow, State
from prefect.client.schemas.objects import FlowRun

from blocks.configuration import settings_with
from penstock.bootstrap import open_app
from penstock.runs.lifecycle import abort_run, active_run_of_flow


def abort_cancelled_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A cancelled flow run aborts its run: counted, its work cancelled, free to start again."""
    del flow, state
    named = flow_run.parameters.get("blocks") or []
    with open_app(settings_with(named)) as app:
        run_id = active_run_of_flow(app.database, str(flow_run.id))
        if run_id is not None:
            abort_run(app.database, app.queue, run_id, reason="its flow run was cancelled")
