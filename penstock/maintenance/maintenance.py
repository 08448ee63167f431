"""All parts of maintenance, one after the other. One that fails does not stop the others.

Two processes may do this at the same time without harm: they share the work.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from penstock.crawl.rawstore import RawStore
from penstock.errors import Interrupted, PenstockError
from penstock.maintenance.keeping import Keeping
from penstock.maintenance.outcome import Figure, Maintained, Part
from penstock.maintenance.raw_objects import RawObjects
from penstock.maintenance.retention import Retention
from penstock.maintenance.vacuum import vacuum
from penstock.store.database import Database

log = logging.getLogger(__name__)

Result = tuple[Sequence[Figure], str]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What is looked after, and how long things are kept."""

    database: Database
    raw: Callable[[], RawStore]
    """Opened when its turn comes: a store that cannot be had is the trouble of one part."""
    recover: Callable[[], str]
    """Reconciles Redis with the database, among other things; what it found."""
    keeping: Keeping
    now: datetime | None = None
    """None: by the database's clock."""

    def run(self, *, dry_run: bool = False) -> Maintained:
        """Do it all, or only tell what would be done."""
        now = self.now or self._read_clock()
        parts = []
        for name, do in self._parts(now, dry_run).items():
            parts.append(_try(name, do))
            log.info("%s", parts[-1])
        return Maintained(parts, dry_run)

    def _parts(self, now: datetime, dry_run: bool) -> dict[str, Callable[[], Result]]:
        old = Retention(self.database, now, self.keeping, dry_run)
        return {
            "reconcile": lambda: ((), "not in a dry run" if dry_run else self.recover()),
            "events": partial(_count, "events", old.forget_events),
            "jobs": partial(_count, "jobs", old.forget_jobs),
            "dead letters": partial(_count, "dead letters", old.forget_dead_letters),
            "run documents": partial(_count, "run documents", old.forget_run_documents),
            "model calls": partial(_count, "model calls", old.forget_model_calls),
            "request keys": partial(_count, "request keys", old.forget_request_keys),
            "workers": partial(_count, "workers", old.forget_workers),
            "raw objects": lambda: (self._tidy_raw(now, dry_run), ""),
            "vacuum": lambda: ((), vacuum(self.database, dry_run=dry_run)),
        }

    def _tidy_raw(self, now: datetime, dry_run: bool) -> list[Figure]:
        kept = self.keeping
        objects = RawObjects(
            self.database, self.raw(), now, kept.expired_raw, kept.old_raw, dry_run
        )
        return objects.tidy()

    def _read_clock(self) -> datetime:
        with self.database.read() as tx:
            return tx.now


def _count(what: str, forget: Callable[[], int]) -> Result:
    return [Figure(what, forget())], ""


def _try(name: str, do: Callable[[], Result]) -> Part:
    began = time.monotonic()
    try:
        figures, note = do()
    except Interrupted:
        raise
    except Exception as error:
        if not isinstance(error, PenstockError):
            log.exception("%s failed in a way that nobody thought of", name)
        return Part(name, time.monotonic() - began, error=str(error) or type(error).__name__)
    return Part(name, time.monotonic() - began, figures, note)
