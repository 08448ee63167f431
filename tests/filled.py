"""A store with as many rows as years of work leave, written by the database itself.

Documents are numbered; each is in one finished run, done by three items, and told of in some lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa

from penstock.embed.embedder import HashEmbedder
from penstock.search.vectors import adopt_identity, ensure_index
from penstock.settings import EmbeddingSettings
from penstock.store.database import Database, Tx
from penstock.store.schema import (
    corrections,
    embeddings,
    events,
    extractions,
    model_calls,
    nodes,
    run_documents,
    runs,
    texts,
    work_items,
)
from tests.factories import TENANT, add_source

ITEMS = ("text", "extract", "embed")
EVENTS = ("read", "extracted", "embedded", "found the same as before", "done")
_EMBEDDER = HashEmbedder()
_VECTORS = 10
# Words that every document has, and one in a thousand.
COMMON, RARE = "report", "sluice"
_SEARCHED = (
    f"This {COMMON} is about the mill of a town, its wheel, its weir and the corn it grinds. "
)


_EXTRACTION: dict[str, Any] = {
    "profile": "document",
    "version": "1.0.0",
    "model": "openai/gpt-oss-20b",
    "confidence": 0.9,
    "fields": {},
}
_CORRECTION: dict[str, Any] = {
    "profile": "document",
    "field": "title",
    "value": "A report",
    "before": None,
    "author": "ada",
    "text_hash": "of another text",
}
_CALL: dict[str, Any] = {
    "model": "openai/gpt-oss-20b",
    "outcome": "accepted",
    "prompt_tokens": 900,
    "completion_tokens": 100,
    "seconds": 0.3,
    "cost_usd": 0.0001,
}


class Contents(Protocol):
    """Nodes with their texts and vectors."""

    @property
    def identity(self) -> str:
        """Of the vectors."""

    def write(self, tx: Tx, run: sa.Row[Any], first: int, last: int) -> None:
        """Those of the documents with these numbers, all of one run."""


@dataclass(slots=True)
class FilledStore:
    """Finished runs, each of a tenant; the first tenant is that of all tests."""

    database: Database
    tenants: Sequence[str]
    """Of each run."""
    run_ids: Sequence[int]
    contents: Contents
    messages: Sequence[str]
    """The log lines of a document."""
    documents: int = 0
    """Of each run."""

    @classmethod
    def make(
        cls,
        database: Database,
        tenants: int | Sequence[str],
        contents: Contents | None = None,
        messages: Sequence[str] = EVENTS,
    ) -> "FilledStore":
        """A run of each of these tenants, which may be named more than once."""
        names = _tenant_names(tenants) if isinstance(tenants, int) else tenants
        contents = contents or EqualContents()
        with database.write() as tx:
            run_ids = [_add_run(tx, name, place) for place, name in enumerate(names)]
            adopt_identity(tx, contents.identity)
        return cls(database, names, run_ids, contents, messages)

    @property
    def run_id(self) -> int:
        return self.run_ids[0]

    def grow(self, documents: int) -> None:
        """Let each run have so many documents."""
        for place in range(len(self.run_ids)):
            self.grow_run(place, self.documents, documents)
        self.documents = documents
        self.analyze()

    def grow_run(self, place: int, had: int, documents: int) -> None:
        """Let a run that had so many documents have more."""
        first, last = (place * 10_000_000 + number for number in (had, documents - 1))
        run_id = self.run_ids[place]
        with self.database.write() as tx:
            run = tx.execute(sa.select(runs).where(runs.c.id == run_id)).one()
            self.contents.write(tx, run, first, last)
            _add_work(tx, run, _numbers(first, last), self.messages)
            tx.execute(sa.update(runs).where(runs.c.id == run_id).values(ready=documents))

    def leave_waiting(self) -> None:
        """Let most items of the first tenant be still to be done, as after a large import."""
        own = work_items.c.tenant_id == TENANT
        waits = {"status": "pending", "outcome": None, "finished_at": None}
        with self.database.write() as tx:
            tx.execute(sa.update(work_items).where(own, work_items.c.id % 10 != 0).values(waits))
        self.analyze()

    def analyze(self) -> None:
        if not self.database.is_sqlite:
            # Postgres looks by itself; a SQLite file knows nothing of its tables until maintenance.
            with self.database.outside() as connection:
                connection.exec_driver_sql("VACUUM ANALYZE")

    def index_vectors(self) -> None:
        """As workers do; last, since adding to the index takes much longer than building it."""
        with self.database.write() as tx:
            ensure_index(tx, self.contents.identity)

    def node_id(self, number: int) -> str:
        """Of a document of the first tenant."""
        return node_id_of(number)


def _tenant_names(tenants: int) -> list[str]:
    return [TENANT, *(f"tenant{number}" for number in range(1, tenants))]


def _add_run(tx: Tx, tenant_id: str, place: int) -> int:
    source_id = add_source(tx, f"filled{place}", tenant_id)
    row = {
        "tenant_id": tenant_id,
        "source_id": source_id,
        "force": False,
        "status": "finished",
        "created_at": tx.now,
        "started_at": tx.now - timedelta(hours=1),
        "listed_at": tx.now,
        "finished_at": tx.now,
        "skipped": 0,
        "error_count": 0,
        "expired": 0,
        "pending": 0,
    }
    return int(tx.execute(sa.insert(runs).values(row).returning(runs.c.id)).scalar_one())


def _numbers(first: int, last: int) -> sa.CTE:
    start = sa.select(sa.literal(first, sa.Integer).label("n")).cte("numbers", recursive=True)
    return start.union_all(sa.select(start.c.n + 1).where(start.c.n < last))


class EqualContents:
    """Texts that differ in little but their titles, and ten vectors."""

    identity = _EMBEDDER.identity

    def write(self, tx: Tx, run: sa.Row[Any], first: int, last: int) -> None:
        numbers = _numbers(first, last)
        row = node_row(tx.now, self.identity) | _names(numbers)
        row |= {
            "id": _node_id(tx, numbers.c.n),
            "tenant_id": run.tenant_id,
            "source_id": run.source_id,
            "title": "A report",
            "profile": "document",
            "fields": {"primary_skills": ["milling", "masonry"], "summary": _SEARCHED * 5},
            "needs_review": numbers.c.n % 2 == 0,
            "review_value": numbers.c.n % 11,
            "review_reasons": ["missing:title"],
        }
        _insert(tx, nodes, row, numbers)
        _add_contents(tx, run.tenant_id)


def _add_work(tx: Tx, run: sa.Row[Any], numbers: sa.CTE, messages: Sequence[str]) -> None:
    """All that is recorded about documents besides their nodes."""
    number, named = numbers.c.n, _names(numbers)
    node_id, tenant_id, run_id = _node_id(tx, number), run.tenant_id, run.id
    own_node = {"tenant_id": tenant_id, "node_id": node_id}
    own = own_node | {"run_id": run_id}
    document = {"status": "ready", "change": "new", "updated_at": tx.now, "node_id": node_id}
    _insert(tx, run_documents, {"run_id": run_id} | named | document, numbers)
    key = "key-" + sa.cast(number, sa.Text)
    # Models were asked a year ago, but for the first tenant.
    asked_at = tx.now - (timedelta() if tenant_id == TENANT else timedelta(days=365))
    answer = _EXTRACTION | {"cache_key": key, "extracted_at": asked_at}
    _insert(tx, extractions, own | answer, numbers)
    _insert(tx, corrections, {**_CORRECTION, **own_node, "corrected_at": tx.now}, numbers)
    _insert(tx, model_calls, own | _CALL | {"called_at": asked_at}, numbers)
    for stage in ITEMS:
        _insert(tx, work_items, own | _item(tx, stage), numbers)
    for message in messages:
        told = _event(tx, message) | {"document": named["external_id"]}
        _insert(tx, events, own | told, numbers)


def _names(numbers: sa.CTE) -> dict[str, sa.ColumnElement[str]]:
    name = sa.cast(numbers.c.n + 100_000_000, sa.Text) + ".txt"
    return {"external_id": name, "url": "file:///filled/" + name}


def _add_contents(tx: Tx, tenant_id: str) -> None:
    """Texts and vectors of the tenant's nodes that have none."""
    c = nodes.c
    has_text = sa.exists().where(texts.c.seq == c.seq)
    mine = sa.select(c.seq, c.external_id).where(c.tenant_id == tenant_id, ~has_text)
    new = mine.cte("new")
    rare = sa.case((new.c.seq % 1000 == 0, f"{RARE} "), else_="")
    title = "Report " + new.c.external_id
    _insert(tx, texts, {"seq": new.c.seq, "title": title, "body": rare + _SEARCHED * 4}, new)
    vectors = _EMBEDDER.embed([f"mill wheel {number} corn" for number in range(_VECTORS)])
    has_vector = sa.exists().where(embeddings.c.seq == c.seq)
    for place, vector in enumerate(vectors):
        share = sa.select(c.seq).where(
            c.tenant_id == tenant_id, c.seq % _VECTORS == place, ~has_vector
        )
        some = share.cte("some")
        row = {"identity": _EMBEDDER.identity, "vector": vector, "embedded_at": tx.now}
        _insert(tx, embeddings, {"seq": some.c.seq} | row, some)


def _insert(tx: Tx, table: sa.Table, row: Mapping[str, Any], each: sa.CTE) -> None:
    values = [
        (value if isinstance(value, sa.ColumnElement) else sa.literal(value, table.c[name].type))
        for name, value in row.items()
    ]
    rows = sa.select(*[value.label(name) for name, value in zip(row, values, strict=True)])
    tx.execute(sa.insert(table).from_select(list(row), rows.select_from(each)))


def node_id_of(number: int) -> str:
    return f"{number:08x}-0000-7000-8000-{number:012x}"


def _node_id(tx: Tx, number: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    if tx.connection.dialect.name == "sqlite":
        return sa.func.printf("%08x-0000-7000-8000-%012x", number, number)
    parts = [sa.func.lpad(sa.func.to_hex(number), length, "0") for length in (8, 12)]
    return sa.cast(parts[0] + "-0000-7000-8000-" + parts[1], nodes.c.id.type)


def node_row(now: datetime, identity: str) -> dict[str, Any]:
    """What all nodes that went through every stage have in common."""
    return {
        "media_type": "text/plain",
        "metadata": {},
        "extraction_status": "ready",
        "extraction_model": "rules",
        "extraction_confidence": 0.9,
        "extraction_version": "1.0.0",
        "extracted_at": now,
        "passage_chars": EmbeddingSettings().passage_chars,
        "embedding_status": "ready",
        "embedding_identity": identity,
        "embedded_at": now,
        "created_at": now,
        "updated_at": now,
    }


def _item(tx: Tx, stage: str) -> dict[str, Any]:
    return {
        "stage": stage,
        "status": "complete",
        "outcome": "done",
        "priority": 0,
        "attempts": 1,
        "rescues": 0,
        "payload": {},
        "run_at": tx.now,
        "started_at": tx.now - timedelta(seconds=1),
        "created_at": tx.now,
        "updated_at": tx.now,
        "finished_at": tx.now,
    }


def _event(tx: Tx, message: str) -> dict[str, Any]:
    return {
        "source": "filled",
        "stage": "TXT",
        "level": "INFO",
        "message": message,
        "at": tx.now,
    }
