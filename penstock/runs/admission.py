"""Lets listed documents into a run: fetch, compare, store raw bytes, record work."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from penstock.crawl.circuit import Circuit
from penstock.crawl.duplicates import Duplicates
from penstock.crawl.extension import extension_for
from penstock.crawl.fetch import Fetched, Fetcher, NotModified
from penstock.crawl.listing import Listed
from penstock.crawl.rawstore import RawStore
from penstock.documents import Fault, Stage
from penstock.errors import DocumentFault
from penstock.events.record import Event, record
from penstock.runs.arrivals import Crowd, arrive_in_line
from penstock.runs.arrived import Arrived
from penstock.runs.assessment import Assessment, Assessor, note_duplicate
from penstock.runs.batches import in_batches
from penstock.runs.known import KnownNode, find_known
from penstock.runs.lifecycle import guard
from penstock.runs.vocabulary import DocumentStatus, RunLease
from penstock.runs.watch import RunWatch
from penstock.store.database import Database, Tx
from penstock.store.patience import patient
from penstock.store.schema import nodes, run_documents, work_items
from penstock.work.items import ACTIVE_STATUSES
from penstock.work.queue import WorkQueue

# Postgres cannot index much more than twice this.
MAX_ID_BYTES = 1000
# How many documents the threads are given in advance, for each of them.
AHEAD_PER_THREAD = 8
KNOWN_TOGETHER = 64
_LOCAL_KINDS = frozenset({"folder", "file"})


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate between the listing of one run and its work items."""

    lease: RunLease
    database: Database
    queue: WorkQueue
    raw: RawStore
    fetcher: Fetcher
    assessor: Assessor
    threads: Executor
    thread_count: int
    batch_size: int
    watch: RunWatch
    circuit: Circuit
    duplicates: Duplicates = field(default_factory=Duplicates)
    _seen: set[str] = field(default_factory=set)

    def bring(self, listed: Iterable[Listed]) -> Iterator[list[Arrived]]:
        """Fetch and assess what is listed, in batches that are ready to be recorded."""
        documents = self._with_known(self._watched(listed))
        if self.lease.run.source_kind in _LOCAL_KINDS:
            return arrive_in_line(documents, self._bring_one, self.batch_size)
        crowd = Crowd(self.threads, AHEAD_PER_THREAD * self.thread_count, self.batch_size)
        return crowd.arrive(documents, self._bring_one)

    @patient
    def record(self, arrived: Sequence[Arrived]) -> None:
        """Record these documents in the run, with the work each of them needs."""
        kept = [one for one in arrived if not one.assessed.left_out]
        noted = [
            replace(one, assessed=note_duplicate(one.assessed, self.duplicates)) for one in kept
        ]
        with self.database.write() as tx:
            guard(tx, self.lease)
            self._record(tx, noted)
            left_out = [one for one in arrived if one.assessed.left_out]
            record(tx, *[one.event(self.lease.run, {}) for one in left_out])

    def _watched(self, listed: Iterable[Listed]) -> Iterator[Listed]:
        """Each document once, as long as the run is ours."""
        for document in map(_bounded, listed):
            self.watch.check()
            if document.external_id not in self._seen:
                self._seen.add(document.external_id)
                yield document

    def _with_known(self, listed: Iterator[Listed]) -> Iterator[tuple[Listed, KnownNode | None]]:
        for batch in in_batches(listed, KNOWN_TOGETHER):
            known = self._find_known([document.external_id for document in batch])
            yield from ((document, known.get(document.external_id)) for document in batch)

    @patient
    def _find_known(self, external_ids: list[str]) -> dict[str, KnownNode]:
        with self.database.read() as tx:
            return find_known(tx, self.lease.run.source_id, external_ids)

    def _bring_one(self, document: tuple[Listed, KnownNode | None]) -> Arrived:
        listed, known = document
        self.watch.check()
        return self._store_raw(self.assessor.assess(listed, known, self._fetch(listed, known)))

    def _fetch(self, listed: Listed, known: KnownNode | None) -> Fetched | NotModified | Fault:
        forced = self.assessor.forced.covers(listed, known)
        marks = None if known is None or forced else known.marks
        try:
            self.circuit.check()
            return self.fetcher.fetch(listed, marks)
        except DocumentFault as error:
            if listed.path is None and not self.circuit.is_open and self.circuit.note(error):
                self._tell_of_circuit()
            return Fault.of(error)

    @patient
    def _tell_of_circuit(self) -> None:
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

    def _store_raw(self, assessed: Assessment) -> Arrived:
        if assessed.stage is not Stage.TEXT:
            return Arrived(assessed)
        run, listed = self.lease.run, assessed.listed
        name = listed.path.name if listed.path else listed.url
        extension = extension_for(name, assessed.media_type)
        try:
            key = self.raw.put(
                run.tenant_id, run.source_name, listed.external_id, assessed.content, extension
            )
        except DocumentFault as error:
            fault = Fault.of(error)
            return Arrived(replace(assessed, stage=None, reason=fault.message, fault=fault))
        return Arrived(replace(assessed, content=b""), key, size=len(assessed.content))

    def _record(self, tx: Tx, arrived: Sequence[Arrived]) -> None:
        run = self.lease.run
        ids = self._upsert_nodes(tx, [one for one in arrived if one.needs_node])
        fresh = self._insert_run_documents(tx, arrived, ids)
        to_do = [one for one in arrived if one.assessed.stage and one.external_id in fresh]
        self.queue.enqueue(tx, [one.new_item(run, ids) for one in to_do], replace_active=True)
        self._revive(tx, arrived)
        record(tx, *[one.event(run, ids) for one in arrived])

    def _upsert_nodes(self, tx: Tx, arrived: Sequence[Arrived]) -> dict[str, str]:
        """The node id of every document that has one; new nodes are made for those without."""
        new = [one for one in arrived if one.assessed.known is None]
        rows = [one.new_node(tx, self.lease.run) for one in new]
        ids = {one.external_id: one.assessed.known.id for one in arrived if one.assessed.known}
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
        self, tx: Tx, arrived: Sequence[Arrived], ids: dict[str, str]
    ) -> set[str]:
        """Record what came in. A document that this run already has, from before its flow was
        interrupted, is left as it is, unless it waits for work that no longer exists."""
        rows = [one.run_document(tx, self.lease.run, ids) for one in arrived]
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

    def _revive(self, tx: Tx, arrived: Iterable[Arrived]) -> None:
        known = [one.assessed.known for one in arrived if one.assessed.known]
        back = [node.id for node in known if node.expired]
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
