"""How a flow run of `ingest` ends: the state that tells what became of its documents, and what is
done when it ends in any other way."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from uuid import UUID

from prefect import Flow, State, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import Pause
from prefect.runtime import deployment
from prefect.runtime import flow_run as current
from prefect.states import Cancelled, Completed, Failed, Suspended
from prefect.utilities.engine import propose_state_sync

from flows.opening import open_flow_app
from penstock.app import App
from penstock.errors import ConfigurationError, PenstockError, RunRefused, SchemaMismatch
from penstock.runs.lifecycle import abort_run, release_run, run_of_flow, try_finalize
from penstock.runs.report import (
    FailureGroup,
    RunReport,
    group_failures,
    list_slowest,
    outcome_line,
    report_run,
)
from penstock.runs.run import DocumentStatus, Run, RunStatus
from tasks.artifacts import best_effort, publish_summary
from tasks.events import announce_failed_run, announce_paused_run

COMPLETED_WITH_ERRORS = "CompletedWithErrors"
# Failed documents that are shown of each class.
EXAMPLES = 20


def conclude_run(app: App, run_id: int) -> Any:
    """Publish what a run did; the state that says so. One that did not finish is a failure."""
    outcome, report = summarize_run(app, run_id)
    run = report.run
    if run.status is not RunStatus.FINISHED:
        ended = "was aborted" if run.status is RunStatus.ABORTED else "failed"
        message = f"run {run.id} {ended}: {run.error}; {outcome}"
        return Failed(message=message, data=PenstockError(message))
    with_errors = report.counts[DocumentStatus.ERROR] > 0
    name = COMPLETED_WITH_ERRORS if with_errors else None
    return Completed(name=name, message=outcome, data=report.as_json())


def conclude_ended(app: App) -> Any:
    """The state of a flow run that is started again after a crash, if others have finished or
    aborted its run meanwhile; else None."""
    before = run_of_flow(app.database, str(current.get_id()))
    if before is None or before.status not in (RunStatus.FINISHED, RunStatus.ABORTED):
        return None
    return conclude_run(app, before.id)


def summarize_run(app: App, run_id: int) -> tuple[str, RunReport]:
    """Publish the summary of a run as it is now, and warn of each class of failure."""
    with app.database.read() as tx:
        report = report_run(tx, run_id)
        failures = group_failures(tx, run_id, examples=EXAMPLES)
        slowest = list_slowest(tx, run_id)
        outcome = outcome_line(tx, report)
    publish_summary(report, outcome, failures, slowest)
    logger = get_run_logger()
    for group in failures:
        logger.warning("%s", _failure_line(group))
    status = report.run.shown_status
    logger.info("run %d %s: %s in %.1f s", run_id, status, outcome, report.seconds)
    return outcome, report


def _failure_line(group: FailureGroup) -> str:
    example = group.examples[0]
    whole = "1 document" if group.documents == 1 else f"{group.documents:,} documents"
    return (
        f"{whole} failed with {group.error_class}, such as {example.external_id}: {example.reason}"
    )


@contextmanager
def told_if_stopped(app: App, run_id: int) -> Iterator[None]:
    """Publish how far a run came that stops in this block before its end.

    Paused because of a setting, the flow run of a deployment is suspended: "Resume" in Prefect goes
    on with it once the setting is mended. Nothing could start another flow run again, so it fails
    with the reason; the same call goes on.
    """
    try:
        yield
    except (RunRefused, SchemaMismatch):
        # Another flow run works on it, and tells what becomes of it; or its tables cannot be read.
        raise
    except ConfigurationError as fault:
        outcome, report = summarize_run(app, run_id)
        announce_paused_run(report.run, str(fault))
        if deployment.get_id() and not current.get_parent_flow_run_id():
            _suspend(f"{fault}; {outcome}. Mend it, then resume this flow run")
        raise
    except Exception:
        summarize_run(app, run_id)
        raise


def _suspend(message: str) -> NoReturn:
    flow_run_id = UUID(current.get_id())
    with get_client(sync_client=True) as client:
        # Prefect's own `suspend_flow_run` takes no message, and gives up after a time.
        state = propose_state_sync(client, Suspended(message=message), flow_run_id)
    raise Pause(state=state)


def replace_suspended(run: Run) -> None:
    """Cancel the suspended flow run whose run this one has taken up: nothing is left to resume."""
    if run.flow_run_id is None or run.flow_run_id == current.get_id():
        return
    with best_effort("who goes on"), get_client(sync_client=True) as client:
        before = client.read_flow_run(UUID(run.flow_run_id))
        if before.state is not None and before.state.is_paused():
            state: State[None] = Cancelled(message=f"run {run.id} went on as {current.get_name()}")
            client.set_flow_run_state(before.id, state, force=True)


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
    # The flow run has ended with this error already; once is enough.
    with suppress(SchemaMismatch), open_flow_app(flow_run.parameters.get("blocks")) as app:
        run = run_of_flow(app.database, str(flow_run.id))
        if run is None:
            return
        if run.status.active and not try_finalize(app.database, run.id):
            release_run(app.database, run.id, str(flow_run.id))
        if not state.is_completed():
            announce_failed_run(run, state.message or state.name or "")
