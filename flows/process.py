"""Flow `process`: works on due items, together with any number of other workers."""

import gc
import time
from collections.abc import Callable, Collection
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.opening import open_flow_app
from penstock.app import App
from penstock.documents import Stage
from penstock.errors import ConfigurationError
from penstock.queue.configuration import Configuration, UnservedWork, list_unserved
from penstock.search.vectors import prepare_index
from tasks.documents import TaskSteps

# How often a flow run that goes on for ever looks for work of other configurations.
LOOK_SECONDS = 5.0


def _run_name() -> str:
    stages = (flow_run.get_parameters() or {}).get("stages") or ["all stages"]
    return f"process {', '.join(map(str, stages))}"


@flow(name="process", flow_run_name=_run_name)
def process(
    stages: list[Stage] | None = None, forever: bool = False, blocks: list[str] | None = None
) -> int:
    """Work until nothing is left, not even with other workers, who may die; how many items were
    completed.

    Work of a run or a backfill that names blocks of its own is done with these. What this flow run
    can do with neither is left for a worker that can, and told.

    Args:
        stages: Only these stages; the next one is left for other workers. Empty: all.
        forever: Wait for more work instead of ending; ends when the flow run is cancelled.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    completed = 0
    with open_flow_app(blocks) as app:
        app.warm_up()
        others = _Others(app, stages or tuple(Stage))
        while True:
            for wanted in others.take():
                completed += _work_with(wanted, stages, others)
            completed += _work(
                app, stages, others, lambda: others.wait or not (forever or others.held)
            )
            if not (forever or others.wait or others.held):
                return completed


class _Others:
    """Work that names another configuration than that of this flow run, and whose blocks can be
    loaded."""

    def __init__(self, app: App, stages: Collection[Stage]) -> None:
        self._app = app
        self._stages = stages
        self._looked_at = float("-inf")
        self._found: list[UnservedWork] = []
        self._left: set[Configuration] = set()
        self.blocked_runs: set[int] = set()
        """Runs that may cost no more: their work waits for a worker that may spend more."""

    @property
    def wait(self) -> bool:
        """Whether some of it waits."""
        return any(one.waits for one in self._look())

    @property
    def held(self) -> bool:
        """Whether other workers are at some of it, who may die."""
        return any(not one.waits for one in self._look())

    def take(self) -> list[Configuration]:
        """What to load now; it is looked for again later."""
        waiting = [one.configuration for one in self._look() if one.waits]
        self._found = [one for one in self._found if not one.waits]
        return waiting

    def _look(self) -> list[UnservedWork]:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            with self._app.database.read() as tx:
                own = self._app.configuration
                unserved = list_unserved(tx, own, self._stages, not_runs=self.blocked_runs)
            for one in unserved:
                if one.waits and not one.configuration.blocks:
                    self.leave(one.configuration, "this worker has other settings")
            self._found = [
                one
                for one in unserved
                if one.configuration.blocks and one.configuration not in self._left
            ]
            self._looked_at = time.monotonic()
        return self._found

    def leave(self, wanted: Configuration, reason: Any) -> None:
        """Leave such work to others, and say so once."""
        if wanted not in self._left:
            self._left.add(wanted)
            get_run_logger().warning(
                "left alone: work that is to be done by %s (%s); it waits for a worker that can, "
                "or for its run to be started again",
                wanted,
                reason,
            )


def _work_with(wanted: Configuration, stages: list[Stage] | None, others: _Others) -> int:
    try:
        with open_flow_app(wanted.blocks) as app:
            if not app.configuration.serves(wanted):
                others.leave(wanted, f"its blocks say {app.configuration} now")
                return 0
            get_run_logger().info("working with the blocks %s", ", ".join(wanted.blocks))
            return _work(app, stages, others, lambda: True)
    except ConfigurationError as error:
        others.leave(wanted, error)
        return 0


def _work(
    app: App, stages: list[Stage] | None, others: _Others, is_over: Callable[[], bool]
) -> int:
    with app.heartbeat() as heartbeat:
        prepare_index(app.database, app.embedder.identity)
        processor = app.processor(
            TaskSteps(app.steps, "process", app.settings.extraction.version), tuple(stages or Stage)
        )
        worker = app.worker(processor, heartbeat)
        worker.blocked_runs = others.blocked_runs
        worker.sweep()
        # What is loaded by now stays. Looking through it for garbage takes a tenth of a second each
        # time, in which no answer of a model is read.
        gc.collect(1)
        gc.freeze()
        with app.waker(worker.wake):
            worker.run(is_over)
        return heartbeat.items_completed
