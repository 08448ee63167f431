"""What a person decides about a record: to correct some fields, or to accept it as it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.documents import Extraction, FieldEvidence, Stage, hash_text
from penstock.errors import NotFound, StoreConflict, UsageError
from penstock.llm.profiles import Profile, profile_named
from penstock.queue.items import ItemPayload, NewItem
from penstock.queue.queue import WorkQueue
from penstock.review.corrections import (
    Correction,
    apply_corrections,
    holding,
    lock_nodes,
    read_corrections,
)
from penstock.review.values import check_values
from penstock.search.nodes import valid_node_id
from penstock.store.database import Database, Tx
from penstock.store.retry import retry_after_deadlock
from penstock.store.schema import corrections, nodes, texts

Values = Mapping[str, Any]
_c = nodes.c


@dataclass(frozen=True, slots=True)
class Decider:
    """Writes decisions into the store; what is searched by follows."""

    database: Database
    queue: WorkQueue
    threshold: float
    """Records that are less sure need review."""

    def correct(
        self, tenant_id: str, node_id: str, given: Values, *, author: str, reason: str | None = None
    ) -> None:
        """Give fields these values, whatever extraction finds in the same text from now on.

        Raises NotFound, and UsageError for a field or a value that the node's profile has not.
        """
        node_id = valid_node_id(node_id)
        _correct(self, tenant_id, node_id, given, author, reason)

    def accept(
        self, tenant_id: str, node_id: str, *, author: str, reason: str | None = None
    ) -> None:
        """Say that the record is right as it is: all its fields stay so for this text."""
        with self.database.write() as tx:
            node = _lock_node(tx, tenant_id, valid_node_id(node_id))
            _decide(tx, node, _unchanged, self.threshold, author, reason)

    def queue_embedding(self, tx: Tx, node: sa.Row[Any]) -> None:
        """Before the node is locked, as everywhere; a worker that is embedding it starts over."""
        payload = ItemPayload(external_id=node.external_id)
        item = NewItem(node.tenant_id, node.id, Stage.EMBED, payload=payload)
        self.queue.enqueue(tx, [item], replace_active=True)


@retry_after_deadlock
def _correct(
    decider: Decider, tenant_id: str, node_id: str, given: Values, author: str, reason: str | None
) -> None:
    with decider.database.write() as tx:
        seen = _read_node(tx, tenant_id, node_id)
        profile = _profile_of(seen)
        values = check_values(profile, given)
        # A title of the document's own comes first, but may be missing.
        if not values.keys().isdisjoint({*profile.salient, "title"}):
            decider.queue_embedding(tx, seen)
        node = _lock_node(tx, tenant_id, node_id)
        if node.profile != profile.name:
            raise StoreConflict(f"node {node_id} has just been extracted with another profile")
        _decide(tx, node, lambda *_: values, decider.threshold, author, reason)


def _unchanged(node: sa.Row[Any], profile: Profile, held: Mapping[str, Correction]) -> Values:
    """What the node shows in the fields that have not been decided about."""
    return {name: node.fields.get(name) for name in profile.field_names if name not in held}


def _read_node(tx: Tx, tenant_id: str, node_id: str) -> sa.Row[Any]:
    query = (
        sa.select(nodes, texts.c.body)
        .outerjoin(texts, texts.c.seq == _c.seq)
        .where(_c.id == node_id, _c.tenant_id == tenant_id)
    )
    found = tx.execute(query).first()
    if found is None:
        raise NotFound(f"there is no node {node_id}; `penstock nodes` lists them")
    return found


def _lock_node(tx: Tx, tenant_id: str, node_id: str) -> sa.Row[Any]:
    """As it is once it is locked."""
    lock_nodes(tx, [node_id])
    return _read_node(tx, tenant_id, node_id)


def _profile_of(node: sa.Row[Any]) -> Profile:
    if node.profile is None:
        raise UsageError(f"node {node.id} has no fields yet: correct it when it has been extracted")
    return profile_named(node.profile)


def _decide(
    tx: Tx,
    node: sa.Row[Any],
    choose: Callable[[sa.Row[Any], Profile, Mapping[str, Correction]], Values],
    threshold: float,
    author: str,
    reason: str | None,
) -> None:
    """Record the values that are chosen for a locked node, and show them."""
    profile, text_hash = _profile_of(node), hash_text(node.body or "")
    made = read_corrections(tx, [node.id])[node.id]
    values = choose(node, profile, holding(made, profile, text_hash))
    new = [
        Correction(
            profile.name, name, value, node.fields.get(name), author, reason, text_hash, tx.now
        )
        for name, value in values.items()
    ]
    common = {"tenant_id": node.tenant_id, "node_id": node.id}
    rows = [{**common, **{name: getattr(one, name) for name in _COLUMNS}} for one in new]
    if rows:
        tx.execute(sa.insert(corrections), rows)
    record = apply_corrections(profile, text_hash, _shown(node), [*made, *new])
    update = sa.update(nodes).where(_c.id == node.id)
    tx.execute(update.values(**record.columns(threshold), updated_at=tx.now))


_COLUMNS = tuple(Correction.__dataclass_fields__)


def _shown(node: sa.Row[Any]) -> Extraction:
    """What the node shows now."""
    stored = node.evidence or {}
    return Extraction(
        node.fields,
        node.extraction_confidence or 0.0,
        node.extraction_model or "",
        evidence={name: FieldEvidence.from_json(one) for name, one in stored.items()},
    )
