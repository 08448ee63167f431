"""New nodes and their work items, recorded in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from penstock.documents import ProfileBasis, Stage
from penstock.errors import UsageError
from penstock.llm.profiles import ProfileChoice, choose_by_class, profile_named
from penstock.queue.items import ItemPayload, NewItem, StageOrder
from penstock.queue.queue import WorkQueue
from penstock.store.columns import dump_storable
from penstock.store.database import Tx, new_node_id
from penstock.store.schema import idempotency_keys, nodes, texts

PENDING_EXTRACTION = "pending_extraction"
# The key of an uploaded file's payload in `nodes.given`.
UPLOAD = "upload"
# How long an answer is kept under its idempotency key.
KEPT = timedelta(days=1)
TEXT_PROPS = ("text", "resume_text", "content", "body", "description")
_TITLE_PROPS = ("title", "name")


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """Bytes of an uploaded file, already in the raw store."""

    raw_key: str
    name: str
    size: int
    media_type: str | None
    content_hash: str


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to be accepted. Its text comes from its payload, else from its props."""

    classes: Sequence[str] = ()
    props: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    payload_ref: str | None = None
    profile: str | None = None
    extract: bool | None = None
    """None: as EXTRACTION_ENABLED says."""
    extract_before_embed: bool | None = None
    """None: as EXTRACTION_MODE says."""
    upload: StoredPayload | None = None

    @property
    def has_payload(self) -> bool:
        return self.payload_ref is not None or self.upload is not None

    @property
    def text(self) -> str:
        return _first_text(self.props, TEXT_PROPS) or ""

    @property
    def title(self) -> str | None:
        named = _first_text(self.props, _TITLE_PROPS)
        return named or (self.upload.name if self.upload else None)


def _first_text(props: Mapping[str, Any], names: Sequence[str]) -> str | None:
    found = (props.get(name) for name in names)
    return next((text for text in found if isinstance(text, str) and text.strip()), None)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a program that sent a node: its statuses and jobs."""

    id: str
    embedding_status: str
    job_id: int | None
    extraction_status: str | None
    extraction_job_id: int | None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """The defaults for nodes that do not say how they are processed."""

    extraction_enabled: bool
    extract_first: bool
    default_profile: str | None
    """None: found from the content of each."""

    def order_of(self, node: NewNode) -> StageOrder:
        first = node.extract_before_embed
        wanted = node.extract
        if wanted is None:
            wanted = self.extraction_enabled or bool(first)
        if not wanted:
            return StageOrder.EMBED_ONLY
        if first is None:
            first = self.extract_first
        return StageOrder.EXTRACT_FIRST if first else StageOrder.PARALLEL

    def choose_profile(self, profile: str | None, classes: tuple[str, ...]) -> ProfileChoice | None:
        """None: its content will be looked at when it is extracted."""
        if profile is not None:
            profile_named(profile)
            return ProfileChoice(profile, ProfileBasis.ASKED, "named by its sender")
        return choose_by_class(classes, self.default_profile)


def first_stages(node: NewNode, order: StageOrder) -> tuple[Stage, ...]:
    """The stages whose work begins at once."""
    return (Stage.TEXT,) if node.has_payload else order.stages


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A node with its id and the order of its work."""

    node: NewNode
    id: str
    order: StageOrder

    @property
    def embedding_status(self) -> str:
        waits = self.order is StageOrder.EXTRACT_FIRST and not self.node.has_payload
        return PENDING_EXTRACTION if waits else "queued"

    @property
    def extraction_status(self) -> str | None:
        return None if self.order is StageOrder.EMBED_ONLY else "queued"

    def row(self, choice: ProfileChoice | None) -> dict[str, Any]:
        node = self.node
        return {
            "id": self.id,
            "external_id": self.id,
            "url": node.payload_ref,
            "title": node.title,
            "profile": choice.profile if choice else None,
            "profile_basis": choice.basis if choice else None,
            "profile_reason": choice.reason if choice else None,
            "media_type": None if node.has_payload else "text/plain",
            "raw_key": node.upload.raw_key if node.upload else None,
            "metadata": {},
            "fields": {},
            "given": self._given(),
            "extraction_status": self.extraction_status,
            "embedding_status": self.embedding_status,
        }

    def items(self, tenant_id: str) -> list[NewItem]:
        stages = first_stages(self.node, self.order)
        return [NewItem(tenant_id, self.id, stage, payload=self._payload()) for stage in stages]

    def accepted(self, ids: dict[tuple[str, Stage], int]) -> Accepted:
        job = ids.get((self.id, Stage.EMBED)) or ids.get((self.id, Stage.TEXT))
        extraction_job = ids.get((self.id, Stage.EXTRACT))
        return Accepted(self.id, self.embedding_status, job, self.extraction_status, extraction_job)

    def _given(self) -> dict[str, Any]:
        node = self.node
        return {
            "classes": list(node.classes),
            "props": dict(node.props),
            "metadata": dict(node.metadata),
            "payload_ref": node.payload_ref,
            "extract": node.extract,
            # From this its text can be read again when its job has been deleted.
            **({UPLOAD: self._payload().to_json()} if node.upload else {}),
        }

    def _payload(self) -> ItemPayload:
        upload, reference = self.node.upload, self.node.payload_ref
        if upload is not None:
            return ItemPayload(
                external_id=upload.name,
                raw_key=upload.raw_key,
                size=upload.size,
                media_type=upload.media_type,
                content_hash=upload.content_hash,
                order=self.order,
            )
        if reference is not None:
            return ItemPayload(external_id=reference, payload_ref=reference, order=self.order)
        return ItemPayload(external_id=self.id)


def record_nodes(
    tx: Tx, queue: WorkQueue, rules: IntakeRules, tenant_id: str, new: Sequence[NewNode]
) -> list[Accepted]:
    """Record the nodes that a program sends, in their order, and their work items."""
    prepared = [_Prepared(one, new_node_id(), rules.order_of(one)) for one in new]
    choose = cache(rules.choose_profile)
    rows = [one.row(choose(one.node.profile, (*one.node.classes,))) for one in prepared]
    bodies = {one.id: one.node.text for one in prepared if not one.node.has_payload}
    common = {"tenant_id": tenant_id, "created_at": tx.now, "updated_at": tx.now}
    if tx.is_postgres:
        own = dump_storable([row | {"body": bodies.get(row["id"])} for row in rows])
        tx.execute(_INSERT_TOGETHER, common | {"rows": own})
    else:
        _insert_rows(tx, [row | common for row in rows], bodies)
    items = [item for one in prepared for item in one.items(tenant_id)]
    ids = queue.enqueue(tx, items, marks_nodes=False)
    return [one.accepted(ids) for one in prepared]


def _insert_rows(tx: Tx, rows: Sequence[dict[str, Any]], bodies: Mapping[str, str]) -> None:
    insert = sa.insert(nodes).returning(nodes.c.id, nodes.c.seq)
    numbers = {row.id: row.seq for row in tx.execute(insert, rows)}
    titles = {row["id"]: row["title"] or "" for row in rows}
    read = [
        {"seq": numbers[node_id], "title": titles[node_id], "body": body}
        for node_id, body in bodies.items()
    ]
    if read:
        tx.execute(sa.insert(texts), read)


# For any number of nodes one statement and one parameter of JSON: the driver would read a statement
# with parameters for each row anew for each number of rows, which takes longer than inserting them.
_INSERT_TOGETHER = sa.text(
    "WITH own AS MATERIALIZED (SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS one "
    "(id uuid, external_id text, url text, title text, profile text, profile_basis text, "
    "profile_reason text, media_type text, "
    "raw_key text, metadata jsonb, fields jsonb, given jsonb, extraction_status text, "
    "embedding_status text, body text)), "
    "made AS (INSERT INTO nodes (tenant_id, created_at, updated_at, id, external_id, url, title, "
    "profile, profile_basis, profile_reason, media_type, raw_key, metadata, fields, given, "
    "extraction_status, embedding_status) "
    "SELECT :tenant_id, :created_at, :updated_at, id, external_id, url, title, profile, "
    "profile_basis, profile_reason, media_type, raw_key, metadata, fields, given, "
    "extraction_status, embedding_status FROM own "
    "RETURNING id, seq) "
    "INSERT INTO texts (seq, title, body) SELECT made.seq, coalesce(own.title, ''), own.body "
    "FROM made JOIN own ON own.id = made.id WHERE own.body IS NOT NULL"
).bindparams(
    sa.bindparam("created_at", type_=nodes.c.created_at.type),
    sa.bindparam("updated_at", type_=nodes.c.updated_at.type),
)


class KeyReused(UsageError):
    """An idempotency key was used for another request."""


def earlier_answer(tx: Tx, tenant_id: str, key: str, request_hash: str) -> list[Accepted] | None:
    """The answer to this request, if it was made before."""
    c = idempotency_keys.c
    known = sa.select(c.request_hash, c.answer).where(c.tenant_id == tenant_id, c.key == key)
    row = tx.execute(known).first()
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise KeyReused(
            f"the Idempotency-Key {key!r} was used for another request: choose a new one"
        )
    return [Accepted(**one) for one in row.answer]


def keep_answer(
    tx: Tx, tenant_id: str, key: str, request_hash: str, answer: Sequence[Accepted]
) -> bool:
    """Keep the answer in the transaction of its nodes; False when another request has just used the
    key: then the transaction must be rolled back."""
    row = {
        "tenant_id": tenant_id,
        "key": key,
        "request_hash": request_hash,
        "answer": [one.as_json() for one in answer],
        "created_at": tx.now,
    }
    insert = tx.insert(idempotency_keys).values(row).on_conflict_do_nothing()
    # Not by the row count, which Postgres's driver does not report for an insert.
    return tx.execute(insert.returning(idempotency_keys.c.key)).first() is not None


def forget_old_keys(tx: Tx) -> int:
    """Delete the keys that are older than a day; how many."""
    return tx.execute(sa.delete(idempotency_keys).where(old_keys(tx.now))).rowcount


def old_keys(now: datetime) -> sa.ColumnElement[bool]:
    """The condition of keys that have expired."""
    return idempotency_keys.c.created_at < now - KEPT
