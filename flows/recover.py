"""Flow `recover`: takes back items of dead workers, ends runs that were left behind, and starts
crashed flow runs again."""

from datetime import UTC, datetime, timedelta

from prefect import State, flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.states import AwaitingRetry

from flows.opening import open_flow_app
from penstock.app import App
from penstock.documents import Stage
from penstock.operations.status import stage_figures
from tasks.artifacts import best_effort
from tasks.events import announce_old_queue

# Short ones come again by their schedule.
RESTARTED = ("ingest", "process", "backfill")
# One that still crashes has a cause that no restart mends.
MOST_STARTS = 4
# There may have been no worker to start it again, nor one for this flow. An older one has been run
# anew by its schedule.
_SINCE = timedelta(days=1)
_AGAIN = "crashed, and started again by `recover` (start {} of at most {})"


@flow(name="recover", flow_run_name="recover")
def recover(blocks: list[str] | None = None) -> dict[str, int]:
    """One pass of recovery; what it found.

    Args:
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        found = app.recovery.run()
        _announce_old_queues(app)
    restart_crashed()
    figures = {
        "freed": len(found.items.freed),
        "rescued": len(found.items.rescued),
        "dead": len(found.items.dead),
        "finished_runs": len(found.finished_runs),
    }
    get_run_logger().info("recovery: %s", figures if found.items else "all clear")
    return figures


def _announce_old_queues(app: App) -> None:
    """Emit an event for every queue whose oldest item waits too long."""
    with app.database.read() as tx:
        found = {stage: stage_figures(tx, stage) for stage in Stage}
    for stage, figures in found.items():
        if figures.oldest_waiting_seconds > app.settings.queue_age_seconds:
            announce_old_queue(stage, figures.waiting, figures.oldest_waiting_seconds)


def restart_crashed() -> None:
    """Have flow runs of deployments that have crashed of late start again.

    An ingest takes up its run, and lists its source to the end.
    """
    recent = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])),
        end_time=FlowRunFilterEndTime(after_=datetime.now(UTC) - _SINCE),
    )
    ours = FlowFilter(name=FlowFilterName(any_=list(RESTARTED)))
    with best_effort("what has crashed"), get_client(sync_client=True) as client:
        for crashed in client.read_flow_runs(flow_filter=ours, flow_run_filter=recent):
            if crashed.deployment_id is not None and 0 < crashed.run_count < MOST_STARTS:
                again: State[None] = AwaitingRetry(
                    message=_AGAIN.format(crashed.run_count + 1, MOST_STARTS)
                )
                client.set_flow_run_state(crashed.id, again)
                get_run_logger().warning("%s has crashed and is started again", crashed.name)
