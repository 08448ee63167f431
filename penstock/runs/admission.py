"""Lets a batch of listed documents into a run: fetch, compare, store raw bytes, record work."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from penstock.crawl.duplicates import Duplicates
from penstock.crawl.extension import extension_for
from penstock.crawl.fetch import Fetched, Fetcher, Marks, NotModified
from penstock.crawl.listing import Listed
from penstock.crawl.rawstore import RawStore
from penstock.crawl.simhash import to_signed
from penstock.documents import Fault, Stage
from penstock.errors import DocumentFault
from penstock.events.record import Event, record
from penstock.runs.assessment import Assessment, Assessor, note_duplicate
from penstock.runs.known import KnownNode, find_known
from penstock.runs.lifecycle import guard
from penstock.runs.vocabulary import DocumentStatus, Run, RunLease
from penstock.store.database import Database, Tx
from penstock.store.identifiers import new_node_id
from penstock.store.schema import nodes, run_documents, work_items
from penstock.work.items import ACTIVE_STATUSES, NewItem
from penstock.work.queue import WorkQueue

# Postgres cannot index much more than twice this.
MAX_ID_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate between a listing and the work items."""

    database: Database
    queue: WorkQueue
    raw: RawStore
    fetcher: Fetcher
    assessor: Assessor
    duplicates: Duplicates
    fetchers: Executor

    def admit(self, lease: RunLease, listed: Sequence[Listed]) -> None:
        """Record these documents in the run, with the work each of them needs."""
        bounded = [_bounded(document) for document in listed]
        unique = list({document.external_id: document for document in bounded}.values())
        with self.database.read() as tx:
            known = find_known(tx, lease.run.source_id, [d.external_id for d in unique])
        assess = self._assess_one(lease, known)
        # Threads wait for other hosts at the same time; for files they would only wait in line.
        waits = any(document.path is None for document in unique)
        assessed = self.fetchers.map(assess, unique) if waits else map(assess, unique)
        noted = [note_duplicate(document, self.duplicates) for document in assessed]
        stored = [self._store_raw(lease, document) for document in noted]
        with self.database.write() as tx:
            guard(tx, lease)
            self._record(tx, lease, stored)

    def _assess_one(
        self, lease: RunLease, known: dict[str, KnownNode]
    ) -> Callable[[Listed], Assessment]:
        def assess(listed: Listed) -> Assessment:
            node = known.get(listed.external_id)
            marks = node.marks if node is not None and not lease.run.force else None
            return self.assessor.assess(listed, node, self._fetch(listed, marks))

        return assess

    def _fetch(self, listed: Listed, marks: Marks | None) -> Fetched | NotModified | Fault:
        try:
            return self.fetcher.fetch(listed, marks)
        except DocumentFault as error:
            return Fault.of(error)

    def _store_raw(self, lease: RunLease, assessed: Assessment) -> "_Stored":
        if assessed.stage is not Stage.TEXT:
            return _Stored(assessed, None)
        run, listed = lease.run, assessed.listed
        extension = extension_for(
            listed.path.name if listed.path else listed.url, assessed.media_type
        )
        try:
            key = self.raw.put(
                run.tenant_id, run.source_name, listed.external_id, assessed.content, extension
            )
        except DocumentFault as error:
            fault = Fault.of(error)
            return _Stored(replace(assessed, stage=None, reason=fault.message, fault=fault), None)
        return _Stored(replace(assessed, content=b""), key, size=len(assessed.content))

    def _record(self, tx: Tx, lease: RunLease, stored: Sequence["_Stored"]) -> None:
        ids = self._upsert_nodes(tx, lease, [s for s in stored if s.needs_node])
        fresh = self._insert_run_documents(tx, lease, stored, ids)
        to_do = [s for s in stored if s.assessed.stage and s.external_id in fresh]
        self.queue.enqueue(tx, [s.new_item(lease, ids) for s in to_do], replace_active=True)
        self._revive(tx, stored)
        record(tx, *_events(lease, stored))

    def _upsert_nodes(self, tx: Tx, lease: RunLease, stored: Sequence["_Stored"]) -> dict[str, str]:
        """The node id of every document that has one; new nodes are made for those without."""
        new = [s for s in stored if s.assessed.known is None]
        rows = [_new_node(tx, lease, s) for s in new]
        ids = {s.external_id: s.assessed.known.id for s in stored if s.assessed.known}
        if rows:
            insert = tx.insert(nodes)
            # A crashed flow may have recorded them a moment ago; theirs win.
            known = insert.on_conflict_do_update(
                index_elements=["source_id", "external_id"],
                set_={"updated_at": insert.excluded.updated_at},
            ).returning(nodes.c.external_id, nodes.c.id)
            ids |= {row.external_id: row.id for row in tx.execute(known, rows)}
        return ids

    def _insert_run_documents(
        self, tx: Tx, lease: RunLease, stored: Iterable["_Stored"], ids: dict[str, str]
    ) -> set[str]:
        """Record what came in. A document that this run already has, from before its flow was
        interrupted, is left as it is, unless it waits for work that no longer exists."""
        rows = [s.run_document(tx, lease, ids) for s in stored]
        if not rows:
            return set()
        insert = tx.insert(run_documents)
        work = (
            sa.select(work_items.c.id)
            .where(work_items.c.node_id == run_documents.c.node_id)
            .where(sa.or_(*[work_items.c.status == status for status in ACTIVE_STATUSES]))
            .correlate(run_documents)
            .exists()
        )
        recorded = insert.on_conflict_do_update(
            index_elements=["run_id", "external_id"],
            set_={name: insert.excluded[name] for name in ("status", "change", "reason")},
            where=sa.and_(run_documents.c.status == DocumentStatus.PENDING, ~work),
        )
        returned = tx.execute(recorded.returning(run_documents.c.external_id), rows)
        return set(returned.scalars())

    def _revive(self, tx: Tx, stored: Iterable["_Stored"]) -> None:
        back = [
            s.assessed.known.id for s in stored if s.assessed.known and s.assessed.known.expired
        ]
        if back:
            tx.execute(sa.update(nodes).where(nodes.c.id.in_(back)).values(expired_at=None))


def _bounded(document: Listed) -> Listed:
    """The same document under an id that fits into an index; a long one ends in its hash."""
    raw = document.external_id.encode("utf-8", "surrogatepass")
    if len(raw) <= MAX_ID_BYTES:
        return document
    digest = hashlib.sha256(raw).hexdigest()
    head = raw[: MAX_ID_BYTES // 2].decode("utf-8", "ignore")
    return replace(document, external_id=f"{head}~{digest}")


@dataclass(frozen=True, slots=True)
class _Stored:
    """An assessed document whose raw bytes, if it needed them kept, are in the raw store."""

    assessed: Assessment
    raw_key: str | None
    size: int = 0

    @property
    def external_id(self) -> str:
        return self.assessed.listed.external_id

    @property
    def needs_node(self) -> bool:
        return self.assessed.known is not None or self.assessed.stage is not None

    @property
    def status(self) -> DocumentStatus:
        if self.assessed.fault is not None:
            return DocumentStatus.ERROR
        return DocumentStatus.SKIPPED if self.assessed.stage is None else DocumentStatus.PENDING

    def new_item(self, lease: RunLease, ids: dict[str, str]) -> NewItem:
        stage = self.assessed.stage
        assert stage is not None, "only documents with something to do become work"
        run = lease.run
        return NewItem(
            run.tenant_id,
            ids[self.external_id],
            stage,
            run_id=run.id,
            payload=self._payload(run),
        )

    def _payload(self, run: Run) -> dict[str, Any]:
        marks = self.assessed.marks or Marks()
        payload = {
            "external_id": self.external_id,
            "raw_key": self.raw_key,
            "size": self.size,
            "media_type": self.assessed.media_type,
            "content_hash": marks.content_hash,
            "simhash": None if marks.simhash is None else to_signed(marks.simhash),
            "etag": marks.etag,
            "last_modified": marks.last_modified,
            "profile": run.profile,
            "source": run.source_name,
        }
        return {name: value for name, value in payload.items() if value is not None}

    def run_document(self, tx: Tx, lease: RunLease, ids: dict[str, str]) -> dict[str, Any]:
        fault = self.assessed.fault
        return {
            "run_id": lease.run.id,
            "external_id": self.external_id,
            "node_id": ids.get(self.external_id),
            "url": self.assessed.listed.url,
            "status": self.status,
            "change": self.assessed.change,
            "reason": self.assessed.reason,
            "error_class": fault.kind if fault else None,
            "updated_at": tx.now,
        }


def _new_node(tx: Tx, lease: RunLease, stored: _Stored) -> dict[str, Any]:
    listed = stored.assessed.listed
    return {
        "id": new_node_id(),
        "tenant_id": lease.run.tenant_id,
        "source_id": lease.run.source_id,
        "external_id": listed.external_id,
        "url": listed.url,
        "title": listed.title,
        "profile": lease.run.profile,
        "metadata": {},
        "fields": {},
        "created_at": tx.now,
        "updated_at": tx.now,
    }


def _events(lease: RunLease, stored: Sequence[_Stored]) -> list[Event]:
    run = lease.run
    failed = [s for s in stored if s.assessed.fault is not None]
    return [
        Event(
            run.tenant_id,
            "CRL",
            f"{s.external_id}: {s.assessed.reason}",
            level="ERROR",
            run_id=run.id,
        )
        for s in failed
    ]
