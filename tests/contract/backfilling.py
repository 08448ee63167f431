"""Backfills without Prefect: nodes in every state, and the same order of calls as the flow."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.backfill.backfill import (
    Backfill,
    Dispatched,
    Dispatcher,
    finish_backfill,
    open_backfill,
    read_backfill,
)
from penstock.backfill.estimate import Estimate, estimate
from penstock.backfill.selection import Selection, choose_nodes
from penstock.documents import Stage
from penstock.runs.up_to_date import Reason
from penstock.store.database import Database, Tx, new_node_id
from penstock.store.schema import embeddings, nodes, texts, work_items
from tests.contract.ingestion import Workplace, make_text
from tests.factories import TENANT, add_node

UP_TO_DATE = "1.0.0"
BODY = make_text("Old")


class Archive(Workplace):
    """A workplace whose nodes are written by hand, in whatever state a test needs."""

    @property
    def identity(self) -> str:
        return self.app.embedder.identity

    def put(self, *, text: str | None = BODY, vector: str | None = "own", **values: Any) -> str:
        """A node that is up to date but for what is said otherwise; its id."""
        identity = self.identity if vector == "own" else vector
        with self.database.write() as tx:
            state = {
                "given": {"extract": True},
                "profile": "document",
                "extraction_status": "ready",
                "extraction_version": UP_TO_DATE,
                "extracted_at": tx.now,
                "passage_chars": self.app.settings.embedding.passage_chars,
                "embedding_status": "ready" if vector else None,
                "embedding_identity": identity,
                "embedded_at": tx.now if vector else None,
            }
            row = state | values
            if row["given"] is None:
                row["given"] = sa.null()  # None would be a JSON value
            node_id = add_node(tx, **row)
            seq = tx.execute(sa.select(nodes.c.seq).where(nodes.c.id == node_id)).scalar_one()
            if text is not None:
                tx.execute(sa.insert(texts).values(seq=seq, title="Old", body=text))
            if identity is not None:
                tx.execute(sa.insert(embeddings).values(vector_row(tx, seq, identity)))
        return node_id

    def put_many(self, count: int, **values: Any) -> None:
        put_many(self.database, count, **values)

    def choose(self, *reasons: Reason, **wanted: Any) -> Selection:
        tenant = None if wanted.get("all_tenants") else wanted.pop("tenant", TENANT)
        return choose_nodes(self.app, tenant, reasons=reasons, **wanted)

    def estimate(self, *reasons: Reason, **wanted: Any) -> Estimate:
        return estimate(self.app, self.choose(*reasons, **wanted))

    def start(self, *reasons: Reason, window: int = 1000, **wanted: Any) -> Dispatcher:
        return self.take_up(self.choose(*reasons, **wanted), window)

    def take_up(self, selection: Selection, window: int = 1000) -> Dispatcher:
        backfill = open_backfill(self.database, selection)
        return Dispatcher(self.database, self.app.queue, backfill.id, window)

    def backfill(self, *reasons: Reason, **wanted: Any) -> Backfill:
        """All of it, from its start to its end."""
        dispatcher = self.start(*reasons, **wanted)
        for _ in self.batches(dispatcher):
            self.drain()
        finish_backfill(self.database, dispatcher.backfill_id)
        with self.database.read() as tx:
            return read_backfill(tx, dispatcher.backfill_id)

    def batches(self, dispatcher: Dispatcher) -> Iterator[Dispatched]:
        """Batch after batch, until nothing is left; the caller works in between."""
        while not (dispatched := dispatcher.dispatch()).exhausted:
            yield dispatched

    def waiting(self, *conditions: sa.ColumnElement[bool]) -> list[sa.Row[Any]]:
        active = work_items.c.status.in_(["pending", "processing", "retry_pending"])
        query = sa.select(work_items).where(active, *conditions).order_by(work_items.c.id)
        with self.database.read() as tx:
            return list(tx.execute(query))

    def placed(self) -> dict[str, Stage]:
        """The nodes that have work, and where they begin."""
        return {row.node_id: Stage(row.stage) for row in self.waiting()}

    def read(self, node_id: str) -> sa.Row[Any]:
        with self.database.read() as tx:
            return tx.execute(sa.select(nodes).where(nodes.c.id == node_id)).one()

    def ago(self, days: float) -> datetime:
        with self.database.read() as tx:
            return tx.now - timedelta(days=days)


def vector_row(tx: Tx, seq: int, identity: str) -> dict[str, Any]:
    """A vector that nobody made."""
    dimensions = int(identity.rpartition("@")[2])
    vector = b"\x00\x00\x80\x3f" + bytes(4 * (dimensions - 1))
    return {"seq": seq, "identity": identity, "vector": vector, "embedded_at": tx.now}


def put_many(database: Database, count: int, **values: Any) -> None:
    """So many nodes of an older version, with their texts, in one go."""
    with database.write() as tx:
        rows = [
            {
                "id": new_node_id(),
                "tenant_id": TENANT,
                "external_id": f"{number}.txt",
                "metadata": {},
                "fields": {},
                "given": {},
                "extraction_status": "ready",
                "extraction_version": "0.9.0",
                "extracted_at": tx.now,
                "embedding_status": "ready",
                "created_at": tx.now,
                "updated_at": tx.now,
                **values,
            }
            for number in range(count)
        ]
        tx.execute(sa.insert(nodes), rows)
        numbers = tx.execute(sa.select(nodes.c.seq)).scalars().all()
        tx.execute(
            tx.insert(texts).on_conflict_do_nothing(),
            [{"seq": seq, "title": "", "body": f"node {seq}"} for seq in numbers],
        )
