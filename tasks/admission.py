"""Letting listed documents into a run, one task run a batch. It writes, so it is never cached."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from penstock.crawl.listing import Listed
from penstock.runs.admission import Admission
from penstock.runs.vocabulary import RunLease
from tasks.policy import RETRIES, RETRY_DELAY_SECONDS, is_transient


class Arrivals:
    """Listed documents of one run on their way in (a plain class: see `tasks.batch.Batch`)."""

    def __init__(self, admission: Admission, lease: RunLease, listed: Sequence[Listed]) -> None:
        self.admission = admission
        self.lease = lease
        self.listed = listed

    def __str__(self) -> str:
        return f"run {self.lease.run.id}, {len(self.listed)} documents"


@task(
    name="fetch",
    task_run_name="fetch {arrivals}",
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=RETRY_DELAY_SECONDS,
    retry_condition_fn=is_transient,
)
def admit_documents(arrivals: Arrivals) -> int:
    """Fetch, compare with what is known, store raw bytes, record the work."""
    arrivals.admission.admit(arrivals.lease, arrivals.listed)
    return len(arrivals.listed)
