"""Picks up what crashes left: items of dead workers, and runs that nobody finished.

Any number of processes may do this at the same time without harm; they still take turns (see
`App.recover`), because there is nothing to gain from looking twice.
"""

import logging
from dataclasses import dataclass, field

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.intake.idempotency import forget_old_keys
from penstock.pipeline.closing import bury, carry_failure, close_ended, close_failed
from penstock.pipeline.telling import tell, tell_failures
from penstock.runs.lifecycle import close_workless, fail_abandoned, try_finalize
from penstock.store.database import Database
from penstock.store.schema import ACTIVE_ITEM, ACTIVE_RUN, runs, work_items
from penstock.work.heart import forget_old_workers
from penstock.work.items import Claim
from penstock.work.queue import WorkQueue
from penstock.work.sweep import Swept, sweep_expired

log = logging.getLogger(__name__)
NAMED = 20


@dataclass(frozen=True, slots=True)
class Recovered:
    """What one pass of recovery did."""

    items: Swept = field(default_factory=Swept)
    finished_runs: tuple[int, ...] = ()
    elsewhere: bool = False
    """Nothing was looked for, because another process is at it."""


def recover(database: Database, queue: WorkQueue, *, max_rescues: int) -> Recovered:
    """Take back expired items, then finish the runs that have nothing left to do."""
    swept = sweep(database, queue, max_rescues=max_rescues)
    _tell(swept)
    with database.write() as tx:
        forget_old_keys(tx)
        forget_old_workers(tx)
    finished = tuple(run_id for run_id in _left_behind(database) if _finish(database, run_id))
    return Recovered(swept, finished)


def sweep(
    database: Database,
    queue: WorkQueue,
    *,
    max_rescues: int,
    which: sa.ColumnElement[bool] | None = None,
) -> Swept:
    """Take back expired items, or those that are named, and tell the ends of the dead."""
    swept = Swept()
    while found := _sweep_some(database, queue, max_rescues, which):
        swept = swept + found
    return swept


def _sweep_some(
    database: Database, queue: WorkQueue, max_rescues: int, which: sa.ColumnElement[bool] | None
) -> Swept:
    with database.write() as tx:
        swept = sweep_expired(tx, queue, max_rescues=max_rescues, which=which)
        bury(tx, swept.dead)
        tell_failures(tx, swept.dead)
        taken_back = [*swept.freed, *swept.rescued]
        tell(tx, [(item, "taken back from a worker that died") for item in taken_back])
        # An extraction's document is embedded all the same, and closed there as an error.
        extracts = [verdict for verdict in swept.dead if verdict.item.stage is Stage.EXTRACT]
        claim = Claim("", "recovery", ())
        going_on = close_ended(tx, [carry_failure(verdict) for verdict in extracts])
        queue.open_next(tx, claim, going_on, Stage.EMBED, leased=False)
        close_failed(tx, [verdict for verdict in swept.dead if verdict not in extracts])
    return swept


def _tell(swept: Swept) -> None:
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
        hold = swept.holds[item.id]
        log.warning(
            "  - Job %d (%s) was running since %s, held by %s",
            item.id,
            item.stage,
            f"{hold.since:%Y-%m-%dT%H:%M:%SZ}",
            hold.owner,
        )
    for verdict in swept.dead:
        log.error("Job %d is dead: %s", verdict.item.id, verdict.fault.message)


def _left_behind(database: Database) -> list[int]:
    """Active runs with no work left, except paused ones and ones a live flow still lists for."""
    work = sa.exists().where(work_items.c.run_id == runs.c.id, ACTIVE_ITEM)
    with database.read() as tx:
        abandoned = sa.or_(
            runs.c.listed_at.is_not(None),
            runs.c.lease_expires_at < tx.now,
        )
        query = sa.select(runs.c.id).where(
            ACTIVE_RUN,
            runs.c.paused_reason.is_(None),
            abandoned,
            ~work,
        )
        return list(tx.execute(query).scalars())


def _finish(database: Database, run_id: int) -> bool:
    close_workless(database, run_id)
    done = try_finalize(database, run_id) or fail_abandoned(database, run_id)
    if done:
        log.warning("finished run %d, which its flow had left behind", run_id)
    return done
