"""The gate without Redis: it counts in the transaction that writes the jobs."""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.dispatch.gate import Limits, Refusal, judge
from penstock.dispatch.keys import Queue
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, WAITING_ITEM, work_items

# Of this gate alone: "penstock" in ASCII.
_LOCK = int.from_bytes(b"penstock", "big")


@dataclass(frozen=True, slots=True)
class HeldByTransaction:
    """Room that lasts until the transaction ends."""

    def settle(self) -> None:
        """The end of the transaction does it."""


@dataclass(frozen=True, slots=True)
class DatabaseGate:
    """Callers come one after the other: who asks waits until who was let in before has written.

    Ask it before anything else is written, so that nobody waits here while holding rows.
    """

    limits: Limits

    def reserve(
        self, tx: Tx, queues: Collection[Queue], tenant_id: str, count: int
    ) -> HeldByTransaction | Refusal:
        if tx.connection.dialect.name == "postgresql":
            # SQLite has one writer anyway.
            tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        for queue in queues:
            waiting, active = _count(tx, queue, tenant_id)
            refusal = judge(self.limits, queue, waiting=waiting, active=active, count=count)
            if refusal:
                return refusal
        return HeldByTransaction()

    def within(self, tx: Tx) -> "GateInTransaction":
        """This gate as any other, for one transaction."""
        return GateInTransaction(self, tx)


@dataclass(frozen=True, slots=True)
class GateInTransaction:
    gate: DatabaseGate
    tx: Tx

    def reserve(
        self, queues: Collection[Queue], tenant_id: str, count: int
    ) -> HeldByTransaction | Refusal:
        return self.gate.reserve(self.tx, queues, tenant_id, count)


def _count(tx: Tx, queue: Queue, tenant_id: str) -> tuple[int, int]:
    """Jobs that wait, and the tenant's active ones."""
    of_queue = sa.select(sa.func.count()).where(work_items.c.stage == queue.stage)
    waiting = of_queue.where(WAITING_ITEM)
    active = of_queue.where(ACTIVE_ITEM, work_items.c.tenant_id == tenant_id)
    return tx.execute(waiting).scalar_one(), tx.execute(active).scalar_one()
