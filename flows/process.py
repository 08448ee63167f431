"""Flow `process`: drains whatever is due, beside any number of others on the same items."""

from prefect import flow
from prefect.runtime import flow_run

from flows.opening import open_flow_app
from penstock.bootstrap import ensure_vector_index
from penstock.documents import Stage
from tasks.steps import TaskSteps


def _run_name() -> str:
    stages = (flow_run.get_parameters() or {}).get("stages") or ["all stages"]
    return f"process {', '.join(map(str, stages))}"


@flow(name="process", flow_run_name=_run_name, persist_result=False)
def process(
    stages: list[Stage] | None = None, forever: bool = False, blocks: list[str] | None = None
) -> int:
    """Work until nothing is due or waiting for a retry; how many items were completed.

    Args:
        stages: Only these stages; the next one is left for other workers. Empty: all.
        forever: Wait for more work instead of ending; ends when the flow run is cancelled.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app, app.heart() as heart:
        ensure_vector_index(app)
        app.try_recover()
        steps = TaskSteps(app.steps, "drain")
        processor = app.processor(steps, tuple(stages or Stage), observer=heart)
        drain = app.drain(processor, heart)
        with app.waker(drain.wake):
            drain.run(lambda: not forever)
        return heart.items_completed
