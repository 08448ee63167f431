"""How what Redis holds of a queue differs from what the database says."""

from collections import Counter
from collections.abc import Iterator, Mapping

from penstock.dispatch.jobs import NEVER, Job, Place
from penstock.dispatch.keys import Queue
from penstock.dispatch.mirror import Entry, Mirror

Jobs = Mapping[int, Job]
"""A queue's active jobs in the database, by id."""


def find_wrong_jobs(queue: Queue, mirror: Mirror, jobs: Jobs, since: str) -> list[Job]:
    """How they should be; ghosts first. What was touched since the database was asked is newer."""
    wrong = list(_find_ghosts(queue, mirror, jobs, since))
    wrong += [job for job in jobs.values() if _is_wrong(mirror.entries.get(job.job_id), job, since)]
    return wrong


def _find_ghosts(queue: Queue, mirror: Mirror, jobs: Jobs, since: str) -> Iterator[Job]:
    for job_id, entry in mirror.entries.items():
        if job_id not in jobs and entry.touched < since:
            owners = entry.node_id, entry.tenant_id
            yield Job(queue, job_id, Place.ENDED, entry.version, NEVER, *owners, payload="")


def _is_wrong(entry: Entry | None, job: Job, since: str) -> bool:
    if entry is None:
        return True
    same = (
        entry.place == job.place
        and entry.payload == job.payload
        and entry.run_at == job.run_at
        and entry.tenant_id == job.tenant_id
        and entry.node_id == job.node_id
    )
    return not same and entry.touched < since


def is_consistent(mirror: Mirror) -> bool:
    """Whether the lists and counters are those of the jobs."""
    entries = mirror.entries.values()
    waiting = {entry.payload for entry in entries if entry.place == Place.QUEUE}
    retries = {e.payload: float(e.run_at) for e in entries if e.place == Place.RETRY}
    numbers = Counter(entry.tenant_id for entry in entries)
    return (
        len(mirror.waiting) == len(waiting)
        and waiting.issuperset(mirror.waiting)
        and mirror.retries == retries
        and all(
            text == (str(numbers[tenant]) if tenant in numbers else None)
            for tenant, text in mirror.counters.items()
        )
    )


def count_foreign(queue: Queue, mirror: Mirror, jobs: Jobs) -> dict[str, int]:
    """By list, the entries that were never ours."""
    known = {entry.payload for entry in mirror.entries.values()}
    known |= {job.payload for job in jobs.values()}
    return {
        f"{queue}:queue": sum(payload not in known for payload in mirror.waiting),
        f"{queue}:retry": sum(payload not in known for payload in mirror.retries),
    }
