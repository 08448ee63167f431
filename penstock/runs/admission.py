"""Admits listed documents to a run: fetch, compare, store raw bytes, record work."""

import hashlib
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

import sqlalchemy as sa

from penstock.crawl.fetch import (
    Fetched,
    Fetcher,
    Marks,
    NotModified,
    SourceCircuit,
    is_untouched,
)
from penstock.crawl.listing import Listed
from penstock.crawl.simhash import Duplicates, to_signed
from penstock.documents import Fault
from penstock.errors import DocumentFault
from penstock.events import Event, record
from penstock.isolation.pool import ChildPool
from penstock.queue.items import ItemPayload, NewItem
from penstock.queue.queue import WorkQueue
from penstock.runs.compare import Compared, Comparison
from penstock.runs.lifecycle import guard, guard_reading
from penstock.runs.prefetch import Prefetcher, in_batches
from penstock.runs.run import Change, DocumentStatus, Run, RunLease
from penstock.runs.up_to_date import (
    Assessment,
    Assessor,
    KnownNode,
    Target,
    find_known,
    hold_nodes,
    note_duplicate,
)
from penstock.store.database import Database, Tx, new_node_id
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import ACTIVE_ITEM, nodes, run_documents, work_items

CHECK_SECONDS = 0.5


class RunWatch:
    """Checks now and then, from any thread, whether this process still holds the run."""

    def __init__(self, database: Database, lease: RunLease) -> None:
        self._database = database
        self._lease = lease
        self._lock = threading.Lock()
        self._checked_at = 0.0

    def check(self) -> None:
        """Raise RunGone when it does not. Call it before starting anything for the run."""
        with self._lock:
            if time.monotonic() - self._checked_at < CHECK_SECONDS:
                return
            self._checked_at = time.monotonic()
        try:
            self._read()
        except BaseException:
            # The other threads must see the error too, not the time of this check.
            self._checked_at = 0.0
            raise

    @retry_while_unavailable
    def _read(self) -> None:
        with self._database.read() as tx:
            guard_reading(tx, self._lease)


# Postgres cannot index values much longer than twice this.
MAX_ID_BYTES = 1000
# Documents fetched ahead, for each thread.
AHEAD_PER_THREAD = 8
KNOWN_TOGETHER = 64
_SOURCE_MARKS = ("etag", "last_modified")
_LOCAL_KINDS = frozenset({"folder", "file"})
# Files are recorded in batches that grow, from this part of a worker's batch to as many times it:
# work on the first begins early, and the later ones take few transactions and task runs.
MOST_BATCHES = 4
# With fewer files than this to read, the messages take longer than the work.
WORTH_CHILDREN = 8
Document: TypeAlias = tuple[Listed, KnownNode | None]


@dataclass(frozen=True, slots=True)
class AdmittedDocument:
    """A fetched document as it is recorded in its run."""

    assessed: Assessment

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

    def new_node(self, tx: Tx, run: Run) -> dict[str, Any]:
        listed = self.assessed.listed
        return {
            "id": new_node_id(),
            "tenant_id": run.tenant_id,
            "source_id": run.source_id,
            "external_id": listed.external_id,
            "url": listed.url,
            "title": listed.title,
            "profile": run.profile,
            "metadata": {},
            "fields": {},
            "created_at": tx.now,
            "updated_at": tx.now,
        }

    def new_item(self, run: Run, ids: Mapping[str, str]) -> NewItem:
        stage = self.assessed.stage
        assert stage is not None, "only documents with a stage to do become work items"
        return NewItem(
            run.tenant_id,
            ids[self.external_id],
            stage,
            run_id=run.id,
            payload=self._payload(run),
            requires=run.configuration,
        )

    def run_document(self, tx: Tx, run: Run, ids: Mapping[str, str]) -> dict[str, Any]:
        fault = self.assessed.fault
        return {
            "run_id": run.id,
            "external_id": self.external_id,
            "node_id": ids.get(self.external_id),
            "url": self.assessed.listed.url,
            "status": self.status,
            "change": self.assessed.change,
            "reason": self.assessed.reason,
            "error_class": fault.kind if fault else None,
            "updated_at": tx.now,
        }

    def event(self, run: Run, ids: Mapping[str, str]) -> Event:
        return Event(
            run.tenant_id,
            "CRL",
            self._message(),
            level="INFO" if self.assessed.fault is None else "ERROR",
            run_id=run.id,
            node_id=ids.get(self.external_id),
            source=run.source_name,
            document=self.external_id,
        )

    def _message(self) -> str:
        assessed = self.assessed
        if assessed.fault is not None:
            return f"{assessed.fault.kind}: {assessed.reason}"
        if assessed.stage is None:
            return assessed.reason or "unchanged"
        note = f" ({assessed.reason})" if assessed.reason else ""
        if assessed.stored is None:
            return f"unchanged, to be processed again from {assessed.stage}{note}"
        if assessed.change is Change.SAME:
            return f"unchanged, to be processed again as asked{note}"
        return f"{assessed.change}, {assessed.stored.size} bytes stored{note}"

    def _payload(self, run: Run) -> ItemPayload:
        stored = self.assessed.stored or Compared(Marks())
        marks = stored.marks
        return ItemPayload(
            external_id=self.external_id,
            raw_key=stored.raw_key,
            size=stored.size,
            media_type=stored.media_type,
            content_hash=marks.content_hash,
            simhash=None if marks.simhash is None else to_signed(marks.simhash),
            etag=marks.etag,
            last_modified=marks.last_modified,
            profile=run.profile,
            source=run.source_name,
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """Turns the listing of one run into recorded documents and work items."""

    lease: RunLease
    database: Database
    queue: WorkQueue
    fetcher: Fetcher
    comparison: Comparison
    children: ChildPool | None
    """Read local files, if the raw store is one that they can write to."""
    target: Target
    assessor: Assessor
    threads: Executor
    thread_count: int
    batch_size: int
    watch: RunWatch
    circuit: SourceCircuit
    duplicates: Duplicates = field(default_factory=Duplicates)
    _seen: set[str] = field(default_factory=set)

    def fetch_batches(self, listed: Iterable[Listed]) -> Iterator[list[AdmittedDocument]]:
        """Fetch what is listed and compare it with what is known, in batches to record."""
        if self.lease.run.source_kind in _LOCAL_KINDS:
            most = MOST_BATCHES * self.batch_size
            first = max(1, self.batch_size // MOST_BATCHES)
            batches = in_batches(self._watched(listed), most, first=first)
            return map(self._read_files, map(self._with_known, batches))
        batches = in_batches(self._watched(listed), KNOWN_TOGETHER)
        documents = chain.from_iterable(map(self._with_known, batches))
        prefetcher = Prefetcher(self.threads, AHEAD_PER_THREAD * self.thread_count, self.batch_size)
        return prefetcher.batches(documents, self._fetch_one)

    def record(self, documents: Sequence[AdmittedDocument]) -> None:
        """Record these documents in the run, with the work each of them needs. A document whose
        node was deleted meanwhile is fetched again and recorded as new."""
        while True:
            try:
                self._record_together(documents)
            except _Deleted as deleted:
                documents = [self._renewed(one, deleted.node_ids) for one in documents]
            else:
                return

    def _renewed(self, one: AdmittedDocument, deleted: Collection[str]) -> AdmittedDocument:
        known = one.assessed.known
        if known is None or known.id not in deleted:
            return one
        # Its raw bytes may have been deleted with its node.
        return self._fetch_one((one.assessed.listed, None))

    @retry_while_unavailable
    def _record_together(self, documents: Sequence[AdmittedDocument]) -> None:
        kept = [one for one in documents if not one.assessed.left_out]
        noted = [
            replace(one, assessed=note_duplicate(one.assessed, self.duplicates)) for one in kept
        ]
        with self.database.write() as tx:
            guard(tx, self.lease)
            self._record(tx, noted)
            left_out = [one for one in documents if one.assessed.left_out]
            record(tx, *[one.event(self.lease.run, {}) for one in left_out])

    def _watched(self, listed: Iterable[Listed]) -> Iterator[Listed]:
        """Each document once, while the run is held."""
        for document in map(_bounded, listed):
            self.watch.check()
            if document.external_id not in self._seen:
                self._seen.add(document.external_id)
                yield document

    def _with_known(self, listed: Sequence[Listed]) -> list[Document]:
        known = self._find_known([document.external_id for document in listed])
        return [(document, known.get(document.external_id)) for document in listed]

    @retry_while_unavailable
    def _find_known(self, external_ids: list[str]) -> dict[str, KnownNode]:
        with self.database.read() as tx:
            run = self.lease.run
            return find_known(tx, run.source_id, external_ids, self.target, run.profile)

    def _fetch_one(self, document: Document) -> AdmittedDocument:
        listed, known = document
        self.watch.check()
        got = self._fetch(listed, known)
        if not isinstance(got, Fetched):
            return AdmittedDocument(self.assessor.assess(listed, known, got))
        left_out = self.assessor.leave_out(listed, known, got)
        return AdmittedDocument(left_out or self._compare(listed, known, got))

    def _fetch(self, listed: Listed, known: KnownNode | None) -> Fetched | NotModified | Fault:
        try:
            self.circuit.check()
            return self.fetcher.fetch(listed, self.assessor.marks(listed, known))
        except DocumentFault as error:
            if listed.path is None and not self.circuit.is_open and self.circuit.failed(error):
                self._record_open_circuit()
            return Fault.of(error)

    def _compare(self, listed: Listed, known: KnownNode | None, got: Fetched) -> Assessment:
        compared: Compared | Fault
        try:
            compared = self.comparison.compare(listed, got, self.assessor.marks(listed, known))
        except DocumentFault as error:
            compared = Fault.of(error)
        return self.assessor.assess(listed, known, compared)

    def _read_files(self, documents: Sequence[Document]) -> list[AdmittedDocument]:
        """The same for local files, of which only those that were touched are read."""
        self.watch.check()
        pairs = [(listed, self.assessor.marks(listed, known)) for listed, known in documents]
        touched = [pair for pair in pairs if not is_untouched(*pair)]
        children = self.children if len(touched) >= WORTH_CHILDREN else None
        compared = self.comparison.compare_files(touched, children)
        names = [listed.external_id for listed, _ in touched]
        read = dict(zip(names, compared, strict=True))
        return [
            AdmittedDocument(
                self.assessor.assess(listed, known, read.get(listed.external_id, NotModified()))
            )
            for listed, known in documents
        ]

    @retry_while_unavailable
    def _record_open_circuit(self) -> None:
        run = self.lease.run
        with self.database.write() as tx:
            event = Event(
                run.tenant_id,
                "CRL",
                self.circuit.reason,
                level="ERROR",
                run_id=run.id,
                source=run.source_name,
            )
            record(tx, event)

    def _record(self, tx: Tx, documents: Sequence[AdmittedDocument]) -> None:
        run = self.lease.run
        ids = self._upsert_nodes(tx, [one for one in documents if one.needs_node])
        fresh = self._insert_run_documents(tx, documents, ids)
        to_do = [one for one in documents if one.assessed.stage and one.external_id in fresh]
        self.queue.enqueue(tx, [one.new_item(run, ids) for one in to_do], replace_active=True)
        self._hold_nodes(tx, [ids[one.external_id] for one in to_do if one.assessed.known])
        self._revive(tx, documents)
        self._renew_marks(tx, documents)
        record(tx, *[one.event(run, ids) for one in documents])

    def _upsert_nodes(self, tx: Tx, documents: Sequence[AdmittedDocument]) -> dict[str, str]:
        """The node id of every document that has one; new nodes are made for those without."""
        new = [one for one in documents if one.assessed.known is None]
        rows = [one.new_node(tx, self.lease.run) for one in new]
        ids = {one.external_id: one.assessed.known.id for one in documents if one.assessed.known}
        if rows:
            insert = tx.insert(nodes)
            # A flow that crashed a moment ago may have recorded them already; those rows stay.
            known = insert.on_conflict_do_update(
                index_elements=["source_id", "external_id"],
                set_={"updated_at": insert.excluded.updated_at},
            ).returning(nodes.c.external_id, nodes.c.id)
            ids |= {row.external_id: row.id for row in tx.execute(known, rows)}
        return ids

    def _insert_run_documents(
        self, tx: Tx, documents: Sequence[AdmittedDocument], ids: dict[str, str]
    ) -> set[str]:
        """Insert these documents. One that the run already has, from before an interruption, is
        left as it is unless its work item no longer exists. Returns the ids that were written."""
        rows = [one.run_document(tx, self.lease.run, ids) for one in documents]
        if not rows:
            return set()
        insert = tx.insert(run_documents)
        # A literal column: `run_documents.c.node_id` would join the whole table in the subquery.
        its_node: sa.ColumnElement[str] = sa.literal_column("run_documents.node_id")
        work = sa.exists().where(work_items.c.node_id == its_node, ACTIVE_ITEM)
        recorded = insert.on_conflict_do_update(
            index_elements=["run_id", "external_id"],
            set_={name: insert.excluded[name] for name in ("status", "change", "reason")},
            where=sa.and_(run_documents.c.status == DocumentStatus.PENDING, ~work),
        )
        returned = tx.execute(recorded.returning(run_documents.c.external_id), rows)
        return set(returned.scalars())

    def _hold_nodes(self, tx: Tx, node_ids: Sequence[str]) -> None:
        """Lock these nodes until the commit; raise _Deleted for those that are gone.

        Called after their items were recorded: everywhere the same lock order, so no deadlocks.
        """
        deleted = set(node_ids) - hold_nodes(tx, node_ids)
        if deleted:
            raise _Deleted(deleted)

    def _revive(self, tx: Tx, documents: Iterable[AdmittedDocument]) -> None:
        known = [one.assessed.known for one in documents if one.assessed.known]
        back = [node.id for node in known if node.expired]
        if back:
            tx.execute(sa.update(nodes).where(nodes.c.id.in_(back)).values(expired_at=None))

    def _renew_marks(self, tx: Tx, documents: Iterable[AdmittedDocument]) -> None:
        rows = [
            {"b_id": assessed.known.id, "b_hash": assessed.renewed.content_hash}
            | {f"b_{mark}": getattr(assessed.renewed, mark) for mark in _SOURCE_MARKS}
            for assessed in (one.assessed for one in documents)
            if assessed.known and assessed.renewed
        ]
        if rows:
            # Another run may have stored newer bytes meanwhile.
            same_bytes = nodes.c.content_hash == sa.bindparam("b_hash")
            marked = sa.update(nodes).where(nodes.c.id == sa.bindparam("b_id"), same_bytes)
            tx.execute(marked.values({m: sa.bindparam(f"b_{m}") for m in _SOURCE_MARKS}), rows)


class _Deleted(Exception):
    """Nodes were deleted while their documents were fetched."""

    def __init__(self, node_ids: set[str]) -> None:
        super().__init__(f"{len(node_ids)} nodes were deleted")
        self.node_ids = node_ids


def _bounded(document: Listed) -> Listed:
    """The document with an id that fits into an index; a long one ends in its hash."""
    raw = document.external_id.encode("utf-8", "surrogatepass")
    if len(raw) <= MAX_ID_BYTES:
        return document
    digest = hashlib.sha256(raw).hexdigest()
    head = raw[: MAX_ID_BYTES // 2].decode("utf-8", "ignore")
    return replace(document, external_id=f"{head}~{digest}")
