"""One claim after another, each taken through the path: what a worker's thread does."""

import logging
import threading
import uuid
from dataclasses import dataclass, field

from penstock.errors import BudgetSpent, PenstockError
from penstock.faults import reach
from penstock.pipeline.processor import Processor
from penstock.runs.lifecycle import note_pause
from penstock.store.database import Database
from penstock.store.patience import until_back
from penstock.work.items import Claim
from penstock.work.queue import WorkQueue

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Lane:
    """Claims a batch for one owner and processes it. `held` is what it is busy with."""

    database: Database
    queue: WorkQueue
    processor: Processor
    owner: str
    batch_size: int
    stopping: threading.Event
    run_id: int | None = None
    tenant_id: str | None = None
    blocked_runs: set[int] = field(default_factory=set)
    """Runs that may cost no more; their items wait for a worker that may spend more."""
    held: Claim | None = None
    _owed: set[str] = field(default_factory=set)
    """Tokens of claims that the database may know and we do not hold: it was away when we took
    them, or gave them back. Their leases would be renewed with ours for ever."""

    def do_one_batch(self) -> bool:
        """False when nothing was due. A database that is away for a while costs time, no more."""
        return until_back(self._do_one_batch, self.stopping.wait)

    def _do_one_batch(self) -> bool:
        claim = self._claim()
        if not claim:
            return False
        reach("claim.committed")
        self.held = claim
        try:
            self.processor.process(claim)
        except BudgetSpent as spent:
            self.give_back()
            if self.run_id is not None:
                raise
            self._block(spent)
        except BaseException:
            self.give_back()
            raise
        finally:
            self.held = None
        return True

    def _claim(self) -> Claim:
        token = uuid.uuid4().hex
        owed = set(self._owed)
        self._owed.add(token)
        with self.database.write() as tx:
            if owed:
                self.queue.release(tx, *owed)
            claim = self.queue.claim(
                tx,
                self.owner,
                token=token,
                stages=self.processor.stages,
                limit=self.batch_size,
                run_id=self.run_id,
                tenant_id=self.tenant_id,
                not_runs=tuple(self.blocked_runs),
            )
            if claim:
                reach("claim.uncommitted")
        self._owed.clear()
        return claim

    def _block(self, spent: BudgetSpent) -> None:
        if spent.run_id not in self.blocked_runs:
            log.error("%s", spent)
            self.blocked_runs.add(spent.run_id)
            note_pause(self.database, spent.run_id, spent.reason)

    def give_back(self) -> None:
        """Make pending again whatever is left of the batch; whoever still works at it may not
        write any more."""
        claim = self.held
        if claim is None:
            return
        try:
            self.processor.give_back(claim)
        except PenstockError as error:
            self._owed.add(claim.token)
            log.warning("could not give items back, it is tried again: %s", error)
