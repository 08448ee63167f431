"""Flow `process`: works on due items, together with any number of other workers."""

import gc

from prefect import flow
from prefect.runtime import flow_run

from flows.opening import open_flow_app
from penstock.documents import Stage
from penstock.search.vectors import prepare_index
from tasks.documents import TaskSteps


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
    with open_flow_app(blocks) as app, app.heartbeat() as heartbeat:
        app.warm_up()
        prepare_index(app.database, app.embedder.identity)
        steps = TaskSteps(app.steps, "process")
        processor = app.processor(steps, tuple(stages or Stage))
        worker = app.worker(processor, heartbeat)
        worker.sweep()
        # What is loaded by now stays. Looking through it for garbage takes a tenth of a second each
        # time, in which no answer of a model is read.
        gc.collect(1)
        gc.freeze()
        with app.waker(worker.wake):
            worker.run(lambda: not forever)
        return heartbeat.items_completed
