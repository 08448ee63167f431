"""Handing nodes of a backfill to the work queue, one task run a batch. It writes: never cached."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from penstock.backfill.dispatcher import Dispatched, Dispatcher
from tasks.policy import RETRIES, RETRY_DELAY_SECONDS, is_transient


class NextBatch:
    """The next nodes of one backfill (a plain class: see `tasks.batch.Batch`)."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def __str__(self) -> str:
        return f"backfill {self.dispatcher.backfill_id}"


@task(
    name="dispatch",
    task_run_name="dispatch {batch}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=RETRIES,
    retry_delay_seconds=RETRY_DELAY_SECONDS,
    retry_condition_fn=is_transient,
)
def dispatch_nodes(batch: NextBatch) -> Dispatched:
    """Enqueue as many as there is room for."""
    return batch.dispatcher.dispatch()
