"""Recovery from crashes: items of dead workers go back to the queue, runs left behind are ended."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from penstock.errors import ServiceError
from penstock.intake.nodes import forget_old_keys
from penstock.pipeline.stage import (
    close_dead,
    open_next_stages,
    record_failures,
    record_items,
)
from penstock.queue.heartbeat import forget_old_workers
from penstock.queue.items import Claim
from penstock.queue.queue import WorkQueue
from penstock.queue.sweep import Recovered, Swept, seconds_to_expiry, sweep_expired
from penstock.redis.reconcile import reconcile
from penstock.runs.lifecycle import close_workless, fail_abandoned, try_finalize
from penstock.store.database import Database
from penstock.store.leader_lease import leader_lease
from penstock.store.schema import ACTIVE_ITEM, ACTIVE_RUN, runs, work_items

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)
NAMED = 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """One pass over everything that crashes left: items, runs, and the mirror in Redis."""

    database: Database
    queue: WorkQueue
    redis: "Redis | None"

    def run(self) -> Recovered:
        """Do one pass; nothing while another process is doing one."""
        with leader_lease(self.database, "recovery") as ours:
            if not ours:
                log.info("another process is recovering at the moment")
                return Recovered(elsewhere=True)
            found = recover(self.database, self.queue)
            try:
                if self.redis is not None:
                    reconcile(self.database, self.redis)
            except ServiceError as error:
                log.warning(
                    "Redis does not match the database; the next sweep tries again: %s", error
                )
            return found


def recover(database: Database, queue: WorkQueue) -> Recovered:
    """Take back expired items, then finish the runs that have nothing left to do."""
    swept = sweep(database, queue)
    _log_swept(swept)
    with database.write() as tx:
        forget_old_keys(tx)
        forget_old_workers(tx)
    finished = tuple(run_id for run_id in _find_abandoned(database) if _finish(database, run_id))
    with database.read() as tx:
        return Recovered(swept, finished, again_seconds=seconds_to_expiry(tx))


def sweep(
    database: Database,
    queue: WorkQueue,
    *,
    which: sa.ColumnElement[bool] | None = None,
) -> Swept:
    """Take back expired items, or those of a condition, and close the documents of the dead."""
    swept = Swept()
    while True:
        with database.write() as tx:
            found = sweep_expired(tx, queue, which=which)
            taken_back = [*found.freed, *found.rescued]
            record_items(tx, [(item, "taken back from a worker that died") for item in taken_back])
            record_failures(tx, found.dead)
            open_next_stages(tx, queue, Claim("", "recovery", ()), close_dead(tx, found.dead))
        if not found:
            return swept
        swept = swept + found


def _log_swept(swept: Swept) -> None:
    if not swept:
        log.info("No orphaned jobs found - all clear")
        return
    back = [*swept.freed, *swept.rescued]
    ids = ", ".join(str(item.id) for item in back[:NAMED])
    more = f" and {len(back) - NAMED} more" if len(back) > NAMED else ""
    log.warning(
        "Recovered %d orphaned job(s) from 'processing' to 'pending': %s%s", len(back), ids, more
    )
    for item in back[:NAMED]:
        owner, since = swept.holds[item.id]
        log.warning(
            "  - Job %d (%s) was running since %s, held by %s",
            item.id,
            item.stage,
            f"{since:%Y-%m-%dT%H:%M:%SZ}",
            owner,
        )
    for verdict in swept.dead:
        log.error("Job %d is dead: %s", verdict.item.id, verdict.fault.message)


def _find_abandoned(database: Database) -> list[int]:
    """Active runs with no work left, except paused ones and ones a live flow still lists for."""
    c = runs.c
    work = sa.exists().where(work_items.c.run_id == c.id, ACTIVE_ITEM)
    with database.read() as tx:
        abandoned = sa.or_(c.listed_at.is_not(None), c.lease_expires_at < tx.now)
        query = sa.select(c.id).where(ACTIVE_RUN, c.paused_reason.is_(None), abandoned, ~work)
        return list(tx.execute(query).scalars())


def _finish(database: Database, run_id: int) -> bool:
    close_workless(database, run_id)
    done = try_finalize(database, run_id) or fail_abandoned(database, run_id)
    if done:
        log.warning("finished run %d, which its flow had left behind", run_id)
    return done
