"""Runs over a folder without Prefect, with scripted steps."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.crawl.files import FolderListing
from penstock.crawl.listing import Listed
from penstock.documents import (
    ExtractedText,
    Extraction,
    ExtractionRequest,
    Fault,
    RawReference,
    Stage,
)
from penstock.pipeline.steps import ExtractionResult, TextResult
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import FixedDelays, RetryRule
from penstock.rules import RulesExtractor
from penstock.runs.execute import execute_run
from penstock.runs.lifecycle import (
    begin_ingesting,
    close_listing,
    open_run,
    take_run,
)
from penstock.runs.report import RunReport, report_run
from penstock.runs.run import Run, RunLease, SourceSpec
from penstock.settings import EmbeddingSettings, ExtractionSettings, load_settings
from penstock.store.database import Database
from penstock.store.schema import nodes, run_documents, runs, work_items
from tests.factories import TENANT

Trouble = Fault | Exception | Callable[[], object]

BUDGETS = {Stage.TEXT: 4, Stage.EXTRACT: 2, Stage.EMBED: 5}


@dataclass
class ScriptedSteps:
    """The real steps but for parsing, with trouble where a document's text holds a word."""

    app: App
    trouble: dict[tuple[Stage, str], list[Trouble]] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """What every extraction finds beside what it really finds."""
    calls: dict[Stage, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, stage: Stage, word: str, *trouble: Trouble) -> None:
        """What happens the next times a document with this word comes to this stage."""
        self.trouble[stage, word] = list(trouble)

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]:
        bodies = [self.app.raw.get(str(document.raw_key)).decode() for document in documents]
        return [
            fault or ExtractedText(body, title=body.partition("\n")[0])
            for body, fault in self._meet(Stage.TEXT, keys, bodies)
        ]

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest], reused: int = 0
    ) -> list[ExtractionResult]:
        del reused
        met = self._meet(Stage.EXTRACT, keys, [request.text for request in requests])
        answers = self.app.extractor.extract(requests)
        return [fault or self._edit(a) for (_, fault), a in zip(met, answers, strict=True)]

    def embed(self, keys: Sequence[str], texts: Sequence[str], reused: int = 0) -> list[bytes]:
        del reused
        for _, fault in self._meet(Stage.EMBED, keys, texts):
            assert fault is None, "embedders raise; they do not answer with faults"
        return self.app.embedder.embed(texts)

    def _edit(self, answer: ExtractionResult) -> ExtractionResult:
        if not isinstance(answer, Extraction):
            return answer
        return replace(answer, fields={**answer.fields, **self.fields})

    def _meet(
        self, stage: Stage, keys: Sequence[str], bodies: Iterable[str]
    ) -> list[tuple[str, Fault | None]]:
        return [
            (body, self._meet_one(stage, key, body)) for key, body in zip(keys, bodies, strict=True)
        ]

    def _meet_one(self, stage: Stage, key: str, body: str) -> Fault | None:
        with self._lock:
            self.calls[stage][key] += 1
            words = [w for s, w in self.trouble if s is stage and w in body]
            found = next((self.trouble[stage, w] for w in words if self.trouble[stage, w]), None)
            trouble = found.pop(0) if found else None
        if isinstance(trouble, Exception):
            raise trouble
        if isinstance(trouble, Fault) or trouble is None:
            return trouble
        trouble()
        return None

    def count(self, stage: Stage) -> int:
        """How many documents came to this stage since the last time somebody asked."""
        return sum(self.calls.pop(stage, Counter()).values())


class Workplace:
    """A folder of documents, a database, and whatever is needed to ingest the one into the other.

    Retries come at once, since how long they wait is the work queue's own contract, and the rules
    extract in this process, which reads the files too, since children take longer to start than the
    rest takes together.
    """

    lease_seconds = 60

    def __init__(
        self,
        database: Database,
        home: Path,
        *,
        batch_size: int = 64,
        embedding: Mapping[str, Any] = MappingProxyType({}),
        **extraction: Any,
    ) -> None:
        self.folder = home / "documents"
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = load_settings(
            home=home,
            dsn=database.url,
            batch_size=batch_size,
            text_processes=1,
            heartbeat_seconds=20,
            extraction=ExtractionSettings(**{"profile": "document", **extraction}),
            embedding=EmbeddingSettings(backend="hash", **embedding),
        )
        self.app = open_app(settings)
        rules = {
            stage: RetryRule(budget, FixedDelays((0.01,))) for stage, budget in BUDGETS.items()
        }
        self.app.queue = WorkQueue(rules, settings.lease_seconds, settings.job_timeout_seconds)
        self.app.extractor = RulesExtractor()
        self.steps = ScriptedSteps(self.app)
        self.database = self.app.database

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def open(self, *, profile: str | None = None, force: bool = False) -> RunLease:
        """A run that is ready for documents."""
        run = self.record_run(profile, force)
        lease = take_run(self.database, run.id, lease_seconds=self.lease_seconds)
        begin_ingesting(self.database, lease)
        return lease

    def record_run(self, profile: str | None, force: bool) -> Run:
        """A new run over the folder, which no process has taken yet."""
        listing = FolderListing(self.folder)
        spec = SourceSpec(TENANT, listing.location, listing.kind, listing.location)
        return open_run(self.database, spec, profile=profile, force=force)

    def listed(self) -> list[Listed]:
        return list(FolderListing(self.folder).list())

    def admit(self, lease: RunLease) -> None:
        """Let everything in that the folder holds, and close the listing."""
        self.admit_some(lease, self.listed())
        close_listing(self.database, lease)

    def admit_some(self, lease: RunLease, listed: Iterable[Listed]) -> None:
        """Let these in; the listing stays open."""
        admission = replace(self.app.admission(lease), children=None)
        for batch in admission.fetch_batches(listed):
            admission.record(batch)

    def drain(self, run_id: int | None = None) -> None:
        """Work until nothing is left."""
        with self.app.heartbeat() as heartbeat:
            drain = self.app.worker(self.app.processor(self.steps), heartbeat, run_id=run_id)
            drain.poll_seconds = 0.01
            drain.run(lambda: True)

    def work_once(self) -> None:
        """Process one batch of whatever is due, waiting for nobody."""
        with self.database.write() as tx:
            claim = self.app.queue.claim(tx, "worker")
        self.app.processor(self.steps).process(claim)

    def ingest(self, *, profile: str | None = None, force: bool = False) -> RunReport:
        """A whole run. If a stage pauses, so does the run, and the pause is raised."""
        run = self.record_run(profile, force)
        with self.app.hold_run(run.id) as held:
            admission = replace(self.app.admission(held.lease), children=None)
            worker = self.app.run_worker(held, self.steps)
            worker.poll_seconds = 0.01
            return execute_run(
                held,
                discover=self.listed,
                fetch=admission.fetch_batches,
                admit=admission.record,
                worker=worker,
            )

    def expire_leases(self) -> None:
        """As if every worker and every flow had died a while ago."""
        with self.database.write() as tx:
            ago = tx.now - timedelta(seconds=1)
            for table in (work_items, runs):
                held = table.c.lease_token.is_not(None)
                tx.execute(sa.update(table).where(held).values(lease_expires_at=ago))

    def report(self, run_id: int) -> RunReport:
        with self.database.read() as tx:
            return report_run(tx, run_id)

    def node(self, name: str) -> sa.Row[Any]:
        with self.database.read() as tx:
            return tx.execute(sa.select(nodes).where(nodes.c.external_id == name)).one()

    def items(self, stage: Stage, name: str) -> list[sa.Row[Any]]:
        """The work items of a document's stage, oldest first."""
        c = work_items.c
        query = sa.select(work_items).where(c.stage == stage, c.node_id == self.node(name).id)
        with self.database.read() as tx:
            return list(tx.execute(query.order_by(c.id)))

    def document(self, run_id: int, name: str) -> sa.Row[Any]:
        """A document's line in a run."""
        c = run_documents.c
        query = sa.select(run_documents).where(c.run_id == run_id, c.external_id == name)
        with self.database.read() as tx:
            return tx.execute(query).one()

    def close(self) -> None:
        self.app.close()


def make_text(title: str, about: str = "mills") -> str:
    """Long enough to be worth extracting, and different for every title."""
    sentence = f"This paper is about {about} and what {title} found out about them in Ulm. "
    return f"{title}\n\n{sentence * 3}"


def counts(report: RunReport) -> dict[str, int]:
    return {status.value: count for status, count in report.counts.items() if count}
