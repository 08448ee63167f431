"""Builds what tests need: nodes, work items, transactions at a chosen time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Claim, NewItem, Outcome, Verdict, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.queue.sweep import Swept, sweep_expired
from penstock.store.database import Database, Tx, new_node_id
from penstock.store.schema import nodes, sources, work_items

NOON = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
TENANT = "acme"


@contextmanager
def at(database: Database, second: float = 0.0) -> Iterator[Tx]:
    """A transaction that happens so many seconds after noon."""
    with database.write() as tx:
        yield replace(tx, now=NOON + timedelta(seconds=second))


def make_fault(
    kind: ErrorClass = ErrorClass.TIMEOUT,
    message: str = "it took too long",
    retry_after_seconds: float | None = None,
) -> Fault:
    return Fault(kind, message, retry_after_seconds)


def make_item(node_id: str | None = None, stage: Stage = Stage.TEXT, **values: Any) -> NewItem:
    return NewItem(
        tenant_id=values.pop("tenant_id", TENANT),
        node_id=node_id or new_node_id(),
        stage=stage,
        **values,
    )


def add_source(tx: Tx, name: str = "careers", tenant_id: str = TENANT) -> int:
    row = {
        "tenant_id": tenant_id,
        "name": name,
        "kind": "folder",
        "location": f"/{name}",
        "created_at": tx.now,
    }
    source_id: int = tx.execute(sa.insert(sources).values(row).returning(sources.c.id)).scalar_one()
    return source_id


def add_node(tx: Tx, **values: Any) -> str:
    """A node with nothing but what a row must have, and what is asked for; its id."""
    node_id = new_node_id()
    row = {
        "id": node_id,
        "tenant_id": TENANT,
        "external_id": f"{node_id}.txt",
        "metadata": {},
        "fields": {},
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    tx.execute(sa.insert(nodes).values(row | values))
    return node_id


def read_node(database: Database, node_id: str) -> sa.Row[Any]:
    with database.read() as tx:
        return tx.execute(sa.select(nodes).where(nodes.c.id == node_id)).one()


def read_rows(database: Database, *tables: sa.Table) -> list[tuple[Any, ...]]:
    """Everything in these tables: equal before and after means that nothing was written."""
    with database.read() as tx:
        return [
            (table.name, *row)
            for table in tables
            for row in tx.execute(sa.select(table).order_by(*table.primary_key))
        ]


@dataclass
class Desk:
    """The work queue, each call in a transaction of its own at the second the clock shows."""

    database: Database
    queue: WorkQueue = field(default_factory=lambda: WorkQueue(default_rules()))
    second: float = 0.0

    def later(self, seconds: float) -> "Desk":
        """Let time pass."""
        self.second += seconds
        return self

    def enqueue(self, *items: NewItem, replace_active: bool = False) -> list[int]:
        with at(self.database, self.second) as tx:
            recorded = self.queue.enqueue(tx, items, replace_active=replace_active)
        return [recorded[key] for key in ((i.node_id, i.stage) for i in items) if key in recorded]

    def claim(self, owner: str = "worker", **options: Any) -> Claim:
        with at(self.database, self.second) as tx:
            return self.queue.claim(tx, owner, **options)

    def start(self, claim: Claim) -> None:
        with at(self.database, self.second) as tx:
            self.queue.start(tx, claim, claim.items)

    def complete(self, claim: Claim, outcome: Outcome = Outcome.DONE) -> list[WorkItem]:
        with at(self.database, self.second) as tx:
            return self.queue.complete(tx, claim, claim.items, outcome)

    def go_on(self, claim: Claim, stage: Stage, *, leased: bool = True) -> Claim:
        """Complete these and open their next stage, as a worker does."""
        with at(self.database, self.second) as tx:
            ours = self.queue.complete(tx, claim, claim.items, Outcome.DONE)
            return self.queue.open_next(tx, claim, ours, stage, leased=leased)

    def fail(self, claim: Claim, fault: Fault) -> list[Verdict]:
        with at(self.database, self.second) as tx:
            return self.queue.fail(tx, claim, [(item, fault) for item in claim.items])

    def release(self, claim: Claim) -> int:
        with at(self.database, self.second) as tx:
            return self.queue.release(tx, claim.token)

    def renew(self, owner: str = "worker") -> int:
        with at(self.database, self.second) as tx:
            return self.queue.renew(tx, owner)

    def cancel(self, *conditions: sa.ColumnElement[bool]) -> list[WorkItem]:
        with at(self.database, self.second) as tx:
            return self.queue.cancel(tx, *conditions)

    def requeue(self, note: str = "Requeued.") -> list[WorkItem]:
        with at(self.database, self.second) as tx:
            return self.queue.requeue(tx, note=note)

    def sweep(self) -> Swept:
        with at(self.database, self.second) as tx:
            return sweep_expired(tx, self.queue)

    def row(self, item_id: int) -> sa.Row[Any]:
        with self.database.read() as tx:
            return tx.execute(sa.select(work_items).where(work_items.c.id == item_id)).one()

    def rows(self) -> dict[int, sa.Row[Any]]:
        with self.database.read() as tx:
            return {row.id: row for row in tx.execute(sa.select(work_items))}


def node_ids(items: Sequence[WorkItem]) -> list[str]:
    return [item.node_id for item in items]


def somebody_waits(database: Database) -> bool:
    """Whether a transaction waits for another one; on SQLite, none has begun then."""
    if database.is_sqlite:
        return True
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.read() as tx:
        return bool(tx.execute(waiting).scalar())
