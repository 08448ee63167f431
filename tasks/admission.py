"""Letting fetched documents into a run, one task run a batch. It writes, so it is never cached."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from penstock.runs.admission import Admission
from penstock.runs.arrived import Arrived
from tasks.policy import RETRIES, RETRY_DELAY_SECONDS, is_transient


class Arrivals:
    """Documents of one run at its gate (a plain class: see `tasks.batch.Batch`)."""

    def __init__(self, admission: Admission, arrived: Sequence[Arrived]) -> None:
        self.admission = admission
        self.arrived = arrived

    def __str__(self) -> str:
        return f"run {self.admission.lease.run.id}, {len(self.arrived)} documents"


@task(
    name="admit",
    task_run_name="admit {arrivals}",
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=RETRY_DELAY_SECONDS,
    retry_condition_fn=is_transient,
)
def admit_documents(arrivals: Arrivals) -> int:
    """Record what came in, and the work it needs."""
    arrivals.admission.record(arrivals.arrived)
    return len(arrivals.arrived)
