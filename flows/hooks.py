"""What is done when a flow run ends, however it does, so that no run hangs in the air."""

from collections.abc import Callable
from typing import Any

from prefect import Flow, State
from prefect.client.schemas.objects import FlowRun

from flows.opening import open_flow_app
from penstock.bootstrap import App
from penstock.runs.lifecycle import abort_run, active_run_of_flow, release_run, try_finalize


def abort_cancelled_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A cancelled flow run aborts its run: counted, its work cancelled, free to start again."""
    del flow, state

    def abort(app: App, run_id: int) -> None:
        abort_run(app.database, app.queue, run_id, reason="its flow run was cancelled")

    _with_active_run(flow_run, abort)


def settle_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A run with nothing left to do is finalized; one with work left may be taken up at once."""
    del flow, state

    def settle(app: App, run_id: int) -> None:
        if not try_finalize(app.database, run_id):
            release_run(app.database, run_id, str(flow_run.id))

    _with_active_run(flow_run, settle)


def _with_active_run(flow_run: FlowRun, act: Callable[[App, int], None]) -> None:
    with open_flow_app(flow_run.parameters.get("blocks")) as app:
        run_id = active_run_of_flow(app.database, str(flow_run.id))
        if run_id is not None:
            act(app, run_id)
