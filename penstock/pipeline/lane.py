"""One claim after another, each taken through the path: what a worker's thread does."""

import logging
import threading
import time
from dataclasses import dataclass, field

from penstock.errors import BudgetSpent, PenstockError, StoreUnavailable
from penstock.pipeline.processor import Processor
from penstock.runs.lifecycle import note_pause
from penstock.store.database import Database
from penstock.work.items import Claim
from penstock.work.queue import WorkQueue

log = logging.getLogger(__name__)
STORE_RETRY_SECONDS = 2.0
STORE_PATIENCE_SECONDS = 120.0


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

    def do_one_batch(self) -> bool:
        """False when nothing was due. A database that is away for a while costs time, no more."""
        deadline = time.monotonic() + STORE_PATIENCE_SECONDS
        while True:
            try:
                return self._do_one_batch()
            except StoreUnavailable as error:
                if time.monotonic() > deadline or self.stopping.is_set():
                    raise
                log.warning("trying again in %g s: %s", STORE_RETRY_SECONDS, error)
                self.stopping.wait(STORE_RETRY_SECONDS)

    def _do_one_batch(self) -> bool:
        with self.database.write() as tx:
            claim = self.queue.claim(
                tx,
                self.owner,
                stages=self.processor.stages,
                limit=self.batch_size,
                run_id=self.run_id,
                tenant_id=self.tenant_id,
                not_runs=tuple(self.blocked_runs),
            )
        if not claim:
            return False
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
            log.warning("could not give items back, their lease will run out: %s", error)
