"""Flow `recover`: takes back items of dead workers and ends runs that were left behind."""

from prefect import flow, get_run_logger

from flows.opening import open_flow_app
from penstock.app import App
from penstock.documents import Stage
from penstock.operations.status import stage_figures
from tasks.events import announce_old_queue


@flow(name="recover", flow_run_name="recover", persist_result=False)
def recover(blocks: list[str] | None = None) -> dict[str, int]:
    """One pass of recovery; what it found.

    Args:
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        found = app.recovery.run()
        _announce_old_queues(app)
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
