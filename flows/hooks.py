"""What is done when a flow run of `ingest` ends, however it does."""

from typing import Any

from prefect import Flow, State, get_run_logger
from prefect.client.schemas.objects import FlowRun

from flows.opening import open_flow_app
from penstock.errors import PenstockError
from penstock.runs.lifecycle import abort_run, read_run, release_run, run_of_flow, try_finalize
from penstock.runs.report import RunReport, group_failures, list_slowest
from penstock.runs.run import RunStatus
from penstock.store.database import Database
from tasks.artifacts import publish_summary
from tasks.events import announce_failed_run
from tasks.policy import forget_old_results

# Failed documents that are shown of each class.
EXAMPLES = 20


def conclude_run(database: Database, report: RunReport) -> dict[str, Any]:
    """Publish what a run did; PenstockError when it did not finish."""
    with database.read() as tx:
        failures = group_failures(tx, report.run.id, examples=EXAMPLES)
        slowest = list_slowest(tx, report.run.id)
        run = read_run(tx, report.run.id)
    publish_summary(report, failures, slowest)
    forget_old_results()
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items() if count)
    get_run_logger().info(
        "run %d %s: %s in %.1f s", run.id, run.status, counts or "no documents", report.seconds
    )
    if run.status is not RunStatus.FINISHED:
        raise PenstockError(f"run {run.id} ended as {run.status}: {run.error}")
    return report.as_json()


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
