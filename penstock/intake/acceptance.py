"""Recording new nodes and their work items: one transaction, all of it or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.intake.plan import IntakeRules, Order, first_stages
from penstock.intake.request import Accepted, NewNode
from penstock.llm.profiles import profile_for, profile_named
from penstock.store.database import Tx
from penstock.store.identifiers import new_node_id
from penstock.store.schema import nodes, texts
from penstock.work.items import NewItem
from penstock.work.queue import WorkQueue

PENDING_EXTRACTION = "pending_extraction"
# In the payload of a text item: how its node goes on.
ORDER = "order"
# In what was given: the payload of an uploaded file's text item.
UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A node with its id and the order of its work."""

    node: NewNode
    id: str
    order: Order

    @property
    def stages(self) -> tuple[Stage, ...]:
        return first_stages(self.node, self.order)

    def row(self, tx: Tx, tenant_id: str, profile: str) -> dict[str, Any]:
        node = self.node
        waits = self.order is Order.EXTRACT_FIRST and not node.has_payload
        return {
            "id": self.id,
            "tenant_id": tenant_id,
            "external_id": self.id,
            "url": node.payload_ref,
            "title": node.title,
            "profile": profile,
            "media_type": None if node.has_payload else "text/plain",
            "raw_key": node.upload.raw_key if node.upload else None,
            "metadata": {},
            "fields": {},
            "given": self._given(),
            "extraction_status": None if self.order is Order.EMBED_ONLY else "queued",
            "embedding_status": PENDING_EXTRACTION if waits else "queued",
            "created_at": tx.now,
            "updated_at": tx.now,
        }

    def items(self, tenant_id: str) -> list[NewItem]:
        return [
            NewItem(tenant_id, self.id, stage, payload=self._payload()) for stage in self.stages
        ]

    def accepted(self, ids: dict[tuple[str, Stage], int]) -> Accepted:
        extracts = self.order is not Order.EMBED_ONLY
        waits = self.order is Order.EXTRACT_FIRST and not self.node.has_payload
        job = ids.get((self.id, Stage.EMBED)) or ids.get((self.id, Stage.TEXT))
        return Accepted(
            self.id,
            PENDING_EXTRACTION if waits else "queued",
            job,
            "queued" if extracts else None,
            ids.get((self.id, Stage.EXTRACT)),
        )

    def _given(self) -> dict[str, Any]:
        node = self.node
        return {
            "classes": list(node.classes),
            "props": dict(node.props),
            "metadata": dict(node.metadata),
            "payload_ref": node.payload_ref,
            "extract": node.extract,
            # Its text can be read anew from this, when the job that says so is long forgotten.
            **({UPLOAD: self._payload()} if node.upload else {}),
        }

    def _payload(self) -> dict[str, Any]:
        upload, reference = self.node.upload, self.node.payload_ref
        if upload is not None:
            return {
                "external_id": upload.name,
                "raw_key": upload.raw_key,
                "size": upload.size,
                "media_type": upload.media_type,
                "content_hash": upload.content_hash,
                ORDER: self.order,
            }
        if reference is not None:
            return {"external_id": reference, "payload_ref": reference, ORDER: self.order}
        return {"external_id": self.id}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Makes nodes and items of what programs bring."""

    queue: WorkQueue
    rules: IntakeRules

    def queues_of(self, new: Sequence[NewNode]) -> set[Stage]:
        """The stages that get new work by these."""
        return {stage for node in new for stage in first_stages(node, self.rules.order_of(node))}

    def record(self, tx: Tx, tenant_id: str, new: Sequence[NewNode]) -> list[Accepted]:
        """Record all of these, in their order."""
        prepared = [_Prepared(one, new_node_id(), self.rules.order_of(one)) for one in new]
        rows = [one.row(tx, tenant_id, self._profile_of(one.node)) for one in prepared]
        insert = sa.insert(nodes).returning(nodes.c.id, nodes.c.seq)
        numbers = {row.id: row.seq for row in tx.execute(insert, rows)}
        self._write_texts(tx, prepared, numbers)
        items = [item for one in prepared for item in one.items(tenant_id)]
        ids = self.queue.enqueue(tx, items, marks_nodes=False)
        return [one.accepted(ids) for one in prepared]

    def _profile_of(self, node: NewNode) -> str:
        if node.profile is not None:
            return profile_named(node.profile).name
        return profile_for(node.classes, self.rules.default_profile)

    def _write_texts(self, tx: Tx, prepared: Sequence[_Prepared], numbers: dict[str, int]) -> None:
        rows = [
            {"seq": numbers[one.id], "title": one.node.title or "", "body": one.node.text}
            for one in prepared
            if not one.node.has_payload
        ]
        if rows:
            tx.execute(sa.insert(texts), rows)
