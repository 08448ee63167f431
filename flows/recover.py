"""Flow `recover`: takes back what dead workers held and finishes runs that were left behind."""

from prefect import flow, get_run_logger

from flows.opening import open_flow_app
from penstock.bootstrap import App
from penstock.documents import Stage
from penstock.operations.figures import stage_figures
from tasks.announcements import announce_old_queue
from tasks.results import forget_old_results


@flow(name="recover", flow_run_name="recover", persist_result=False)
def recover(blocks: list[str] | None = None) -> dict[str, int]:
    """One pass of recovery; what it found.

    Args:
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        found = app.recover()
        _send_for_help(app)
    forget_old_results()
    figures = {
        "freed": len(found.items.freed),
        "rescued": len(found.items.rescued),
        "dead": len(found.items.dead),
        "finished_runs": len(found.finished_runs),
    }
    get_run_logger().info("recovery: %s", figures if found.items else "all clear")
    return figures


def _send_for_help(app: App) -> None:
    """Say of every queue in which something waits too long that it does."""
    with app.database.read() as tx:
        found = {stage: stage_figures(tx, stage) for stage in Stage}
    for stage, figures in found.items():
        if figures.oldest_waiting_seconds > app.settings.queue_age_seconds:
            announce_old_queue(stage, figures.waiting, figures.oldest_waiting_seconds)
