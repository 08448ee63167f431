"""What the three stages have in common: begin, compute outside any transaction, commit guarded."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from penstock.documents import Fault
from penstock.errors import ConfigurationError, ErrorClass, Interrupted, StoreError
from penstock.pipeline.observer import NoObserver, Observer, Result
from penstock.pipeline.payloads import NoPayloads, Payloads
from penstock.pipeline.steps import Steps
from penstock.store.database import Database, Tx
from penstock.store.schema import nodes
from penstock.work.items import Claim, Verdict, WorkItem
from penstock.work.queue import WorkQueue

log = logging.getLogger(__name__)
Input = TypeVar("Input")
Computed = TypeVar("Computed")


@dataclass(frozen=True, slots=True)
class Line:
    """What every stage works with."""

    database: Database
    queue: WorkQueue
    steps: Steps
    extraction_version: str
    default_profile: str
    extractors: str = ""
    """Fingerprint of the users' own text extractors: with other ones, a text may differ."""
    observer: Observer = field(default_factory=NoObserver)
    payloads: Payloads = field(default_factory=NoPayloads)

    def begin(self, claim: Claim, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Start work on these; what another worker has meanwhile taken over is left out."""
        with self.database.write() as tx:
            ours = self.queue.start(tx, claim, items)
        self.observer.started(ours)
        return ours

    def tell(
        self, completed: Sequence[tuple[WorkItem, Result]], verdicts: Sequence[Verdict]
    ) -> None:
        """Let the observer hear what has been committed."""
        for item, result in completed:
            self.observer.completed(item, result)
        for verdict in verdicts:
            self.observer.failed(verdict)


def compute(
    step: Callable[[Sequence[str], Sequence[Input]], list[Computed]],
    keys: Sequence[str],
    inputs: Sequence[Input],
) -> list[Computed | Fault]:
    """Run a step over a batch; if it raises, run it once more for each document alone.

    So one document that breaks a step costs itself an attempt and its neighbours nothing.
    Configuration and store errors, and a stop, are nobody's fault in the batch and go up.
    """
    if not inputs:
        return []
    try:
        return [*step(keys, inputs)]
    except (ConfigurationError, StoreError, Interrupted):
        raise
    except Exception as error:
        # The boundary between our code and every parser and model client there is.
        if len(inputs) == 1:
            log.exception("a step failed for %s", keys[0])
            return [Fault(ErrorClass.UNKNOWN, f"{type(error).__name__}: {error}")]
        return [compute(step, [key], [one])[0] for key, one in zip(keys, inputs, strict=True)]


def split_faults(
    items: Sequence[WorkItem], results: Sequence[Computed | Fault]
) -> tuple[list[tuple[WorkItem, Computed]], list[tuple[WorkItem, Fault]]]:
    """Results and faults apart, each beside its item."""
    good: list[tuple[WorkItem, Computed]] = []
    bad: list[tuple[WorkItem, Fault]] = []
    for item, result in zip(items, results, strict=True):
        if isinstance(result, Fault):
            bad.append((item, result))
        else:
            good.append((item, result))
    return good, bad


def update_nodes(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Write many nodes in one statement. Rows name their columns as `b_…`, the node as `b_id`."""
    if rows:
        values: dict[str, Any] = {
            name[2:]: sa.bindparam(name) for name in rows[0] if name != "b_id"
        }
        tx.execute(sa.update(nodes).where(nodes.c.id == sa.bindparam("b_id")).values(values), rows)
