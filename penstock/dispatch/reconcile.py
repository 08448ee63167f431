"""Makes Redis follow the database, after whatever may have happened to either."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.dispatch.cleaning import (
    drop_foreign_dead,
    drop_other_kinds,
    drop_stale_owners,
    tidy_jobs,
    warn_of_foreign,
)
from penstock.dispatch.connection import copy_client, explained, read_timeout
from penstock.dispatch.difference import Jobs, count_foreign, find_wrong_jobs, is_consistent
from penstock.dispatch.jobs import Job, flatten, read_active_jobs, write_version
from penstock.dispatch.keys import RECONCILE_LOCK, Queue
from penstock.dispatch.lock import try_lock
from penstock.dispatch.mirror import read_mirror
from penstock.dispatch.scripts import run_script
from penstock.store.database import Database

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

_LOCK_SECONDS = 120
_REMEMBERED = timedelta(minutes=10)
_AT_ONCE = 500
# A rebuild of some hundred thousand jobs takes more than an ordinary call.
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one pass put right."""

    ran: bool = True
    """False: another one was at it."""
    mended: int = 0
    """Jobs that stood wrong."""
    foreign: int = 0
    """Entries and keys that were not ours, or that nobody owned any more."""
    rebuilt: tuple[Queue, ...] = ()
    """Queues whose lists and counters were built anew."""

    def __bool__(self) -> bool:
        return bool(self.mended or self.foreign or self.rebuilt)

    def __add__(self, other: "Reconciled") -> "Reconciled":
        return Reconciled(
            self.ran and other.ran,
            self.mended + other.mended,
            self.foreign + other.foreign,
            self.rebuilt + other.rebuilt,
        )


def reconcile(database: Database, client: "Redis") -> Reconciled:
    """One pass over all queues; nothing happens while another one is at it.

    What is moved meanwhile stays: whatever Redis heard after the database was asked is newer.
    """
    patient = copy_client(client, max(_TIMEOUT_SECONDS, read_timeout(client)))
    with (
        explained(client),
        patient,
        try_lock(patient, RECONCILE_LOCK, _LOCK_SECONDS) as held,
    ):
        return _reconcile(database, patient) if held else Reconciled(ran=False)


def _reconcile(database: Database, client: "Redis") -> Reconciled:
    dropped = drop_other_kinds(client)
    since = _read_time(client)
    with database.read() as tx:
        jobs = read_active_jobs(tx)
        forgotten = write_version(tx.now - _REMEMBERED)
    stale, tenants = drop_stale_owners(client)
    total = Reconciled(foreign=dropped + stale)
    for queue in Queue:
        counted = {*tenants[queue], *(job.tenant_id for job in jobs[queue].values())}
        total += _follow(client, queue, jobs[queue], counted, since)
        client.zremrangebyscore(f"{queue}:ended", "-inf", forgotten)
    if total:
        log.info("Redis follows the database again: %s", total)
    return total


def _read_time(client: "Redis") -> str:
    seconds, microseconds = client.time()
    return f"{seconds:010d}{microseconds:06d}"


def _follow(
    client: "Redis", queue: Queue, jobs: Jobs, tenants: Collection[str], since: str
) -> Reconciled:
    """The jobs first, then the lists and counters from the jobs."""
    fields, named = tidy_jobs(client, queue)
    mirror = read_mirror(client, queue, tenants)
    foreign = count_foreign(queue, mirror, jobs)
    for key, count in foreign.items():
        warn_of_foreign(key, count)
    mended = _mend(client, find_wrong_jobs(queue, mirror, jobs, since), since)
    if mended:
        # A ghost may have held a node in the place of its job.
        named += tidy_jobs(client, queue)[1]
    rebuilt = mended > 0 or not is_consistent(mirror)
    if rebuilt:
        run_script(client, "rebuild", [queue, *tenants])
    return Reconciled(
        mended=mended + named,
        foreign=fields + sum(foreign.values()) + drop_foreign_dead(client, queue),
        rebuilt=(queue,) if rebuilt else (),
    )


def _mend(client: "Redis", jobs: Sequence[Job], since: str) -> int:
    mended = 0
    for first in range(0, len(jobs), _AT_ONCE):
        some = jobs[first : first + _AT_ONCE]
        mended += run_script(client, "mend", [since, *flatten(some)])
    return mended
