"""A store with as many rows as years of work leave, written by the database itself.

Documents are numbered; each is in one finished run, done by three items, and told of in five lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from penstock.embed.embedder import HashEmbedder
from penstock.search.vectors import adopt_identity, ensure_index
from penstock.store.database import Database, Tx
from penstock.store.schema import (
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
_CALL: dict[str, Any] = {
    "model": "openai/gpt-oss-20b",
    "outcome": "accepted",
    "prompt_tokens": 900,
    "completion_tokens": 100,
    "seconds": 0.3,
    "cost_usd": 0.0001,
}


@dataclass(slots=True)
class FilledStore:
    """Tenants with a finished run each; the first of them is the tenant of all tests."""

    database: Database
    tenants: Sequence[str]
    run_ids: Sequence[int]
    documents: int = 0
    """Of each run."""

    @classmethod
    def make(cls, database: Database, tenants: int) -> "FilledStore":
        names = [TENANT, *(f"tenant{number}" for number in range(1, tenants))]
        with database.write() as tx:
            run_ids = [_add_run(tx, name) for name in names]
            adopt_identity(tx, _EMBEDDER.identity)
        return cls(database, names, run_ids)

    @property
    def run_id(self) -> int:
        return self.run_ids[0]

    def grow(self, documents: int) -> None:
        """Let each run have so many documents."""
        for place, run_id in enumerate(self.run_ids):
            first = place * 10_000_000 + self.documents
            last = place * 10_000_000 + documents - 1
            with self.database.write() as tx:
                _add_documents(tx, self.tenants[place], run_id, _numbers(first, last))
        self.documents = documents
        with self.database.write() as tx:
            tx.execute(sa.update(runs).values(ready=documents))
        self._analyze()

    def leave_waiting(self) -> None:
        """Let most items of the first tenant be still to be done, as after a large import."""
        own = work_items.c.tenant_id == TENANT
        waits = {"status": "pending", "outcome": None, "finished_at": None}
        with self.database.write() as tx:
            tx.execute(sa.update(work_items).where(own, work_items.c.id % 10 != 0).values(waits))
        self._analyze()

    def _analyze(self) -> None:
        if not self.database.is_sqlite:
            # Postgres looks by itself; a SQLite file knows nothing of its tables until maintenance.
            with self.database.outside() as connection:
                connection.exec_driver_sql("ANALYZE")

    def index_vectors(self) -> None:
        """As workers do; last, since adding to the index takes much longer than building it."""
        with self.database.write() as tx:
            ensure_index(tx, _EMBEDDER.identity)

    def node_id(self, number: int) -> str:
        """Of a document of the first tenant."""
        return f"{number:08x}-0000-7000-8000-{number:012x}"


def _add_run(tx: Tx, tenant_id: str) -> int:
    source_id = add_source(tx, "filled", tenant_id)
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


def _add_documents(tx: Tx, tenant_id: str, run_id: int, numbers: sa.CTE) -> None:
    number = numbers.c.n
    node_id = _node_id(tx, number)
    name = sa.cast(number + 100_000_000, sa.Text) + ".txt"
    address = "file:///filled/" + name
    own = {"tenant_id": tenant_id, "run_id": run_id, "node_id": node_id}
    source_id = sa.select(runs.c.source_id).where(runs.c.id == run_id).scalar_subquery()
    named = {"external_id": name, "url": address}
    _insert(
        tx, nodes, _node(tx, tenant_id) | named | {"id": node_id, "source_id": source_id}, numbers
    )
    document = {"status": "ready", "change": "new", "updated_at": tx.now, "node_id": node_id}
    _insert(tx, run_documents, {"run_id": run_id} | named | document, numbers)
    key = "key-" + sa.cast(number, sa.Text)
    # Models were asked a year ago, but for the first tenant.
    asked_at = tx.now - (timedelta() if tenant_id == TENANT else timedelta(days=365))
    answer = _EXTRACTION | {"cache_key": key, "extracted_at": asked_at}
    _insert(tx, extractions, own | answer, numbers)
    _insert(tx, model_calls, own | _CALL | {"called_at": asked_at}, numbers)
    for stage in ITEMS:
        _insert(tx, work_items, own | _item(tx, stage), numbers)
    for message in EVENTS:
        _insert(tx, events, own | _event(tx, message) | {"document": name}, numbers)
    _add_contents(tx, tenant_id)


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


def _node_id(tx: Tx, number: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    if tx.connection.dialect.name == "sqlite":
        return sa.func.printf("%08x-0000-7000-8000-%012x", number, number)
    parts = [sa.func.lpad(sa.func.to_hex(number), length, "0") for length in (8, 12)]
    return sa.cast(parts[0] + "-0000-7000-8000-" + parts[1], nodes.c.id.type)


def _node(tx: Tx, tenant_id: str) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "title": "A report",
        "profile": "document",
        "media_type": "text/plain",
        "metadata": {},
        "fields": {"primary_skills": ["milling", "masonry"], "summary": _SEARCHED * 5},
        "extraction_status": "ready",
        "extraction_model": "rules",
        "extraction_confidence": 0.9,
        "extraction_version": "1.0.0",
        "extracted_at": tx.now,
        "embedding_status": "ready",
        "embedding_identity": _EMBEDDER.identity,
        "embedded_at": tx.now,
        "created_at": tx.now,
        "updated_at": tx.now,
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
