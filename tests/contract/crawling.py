"""Runs over a site on loopback without Prefect: the same order of calls as the flow."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.documents import ExtractionRequest, Fault, RawDocument, Stage, StoredDocument
from penstock.errors import DocumentFault
from penstock.pipeline.steps import DirectSteps, ExtractionResult, TextResult
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import FixedDelays, RetryRule
from penstock.rules import RulesExtractor
from penstock.runs.execute import admit_listed, execute_run, list_source, open_source_run
from penstock.runs.lifecycle import take_run
from penstock.runs.report import DocumentLine, RunReport, list_documents, report_run
from penstock.runs.run import RunLease
from penstock.settings import EmbeddingSettings, ExtractionSettings, load_settings
from penstock.sources.catalogue import SourceSettings, put_source
from penstock.store.database import Database
from penstock.store.schema import nodes, work_items
from penstock.text.extract import extract_text
from tests.factories import TENANT

BUDGETS = {Stage.TEXT: 4, Stage.EXTRACT: 2, Stage.EMBED: 5}


class CountedSteps:
    """The real steps, parsing in this process; counts extractions and may be told to fail them."""

    def __init__(self, app: App) -> None:
        self._direct = DirectSteps(app.raw, app.pool, app.extractor, app.embedder, 1 << 26)
        self._app = app
        self.extracted = 0
        self.fault: Fault | None = None
        self.before_extraction: Callable[[], object] = lambda: None

    def parse(self, keys: Any, documents: Any) -> list[TextResult]:
        del keys
        loaded = [self._direct._load(document) for document in documents]
        return [self._parse_one(one) for one in loaded]

    def _parse_one(self, document: Any) -> TextResult:
        if isinstance(document, StoredDocument):
            content = Path(document.path).read_bytes()
            document = RawDocument(document.name, content, document.media_type, document.source)
        try:
            return extract_text(document)
        except DocumentFault as fault:
            return Fault.of(fault)

    def extract(
        self, keys: Any, requests: Sequence[ExtractionRequest], reused: int = 0
    ) -> list[ExtractionResult]:
        del reused
        self.before_extraction()
        self.extracted += len(requests)
        if self.fault is not None:
            return [self.fault for _ in requests]
        return self._direct.extract(keys, requests)

    def embed(self, keys: Any, texts: Any, reused: int = 0) -> list[bytes]:
        return self._direct.embed(keys, texts, reused)


class Crawler:
    """A database, and whatever is needed to ingest a site into it. Tries and waits are short."""

    def __init__(self, database: Database, home: Path, **settings: Any) -> None:
        chosen = {
            "allow_private_addresses": True,
            "crawl_delay_seconds": 0.0,
            "batch_size": 8,
            "text_processes": 1,
            "heartbeat_seconds": 20,
            "extraction": ExtractionSettings(profile="document"),
            "embedding": EmbeddingSettings(backend="hash"),
        }
        self.app = open_app(load_settings(home=home, dsn=database.url, **(chosen | settings)))
        rules = {
            stage: RetryRule(budget, FixedDelays((0.01,))) for stage, budget in BUDGETS.items()
        }
        self.app.queue = WorkQueue(rules, 60, 1800)
        self.app.extractor = RulesExtractor()
        self.app.fetcher._wait = lambda seconds: time.sleep(min(seconds, 0.01))
        self.database = self.app.database
        self.steps = CountedSteps(self.app)

    def keep(self, name: str, location: str, kind: str = "site", **settings: Any) -> str:
        with self.database.write() as tx:
            chosen = SourceSettings.model_validate(settings)
            put_source(tx, TENANT, name, kind, location, chosen)
        return name

    def start(self, source: str, **wanted: Any) -> RunLease:
        """A run that is about to list its source."""
        run = open_source_run(self.app.sources, source, TENANT, **wanted)
        return take_run(self.database, run.id, lease_seconds=60)

    def admit(self, lease: RunLease) -> None:
        """List and fetch everything, and close the listing."""
        admission = self.app.admission(lease)
        discover = partial(list_source, self.app.sources, lease.run)
        for _ in admit_listed(
            self.database, lease, discover, admission.fetch_batches, admission.record
        ):
            pass

    def drain(self) -> None:
        with self.app.heartbeat() as heartbeat:
            drain = self.app.worker(self.app.processor(self.steps), heartbeat)
            drain.poll_seconds = 0.01
            drain.run(lambda: True)

    def ingest(self, source: str, **wanted: Any) -> RunReport:
        run = open_source_run(self.app.sources, source, TENANT, **wanted)
        with self.app.hold_run(run.id) as held:
            admission = self.app.admission(held.lease)
            worker = self.app.run_worker(held, self.steps)
            worker.poll_seconds = 0.01
            return execute_run(
                held,
                discover=partial(list_source, self.app.sources, held.run),
                fetch=admission.fetch_batches,
                admit=admission.record,
                worker=worker,
            )

    def report(self, run_id: int) -> RunReport:
        with self.database.read() as tx:
            return report_run(tx, run_id)

    def documents(self, run_id: int) -> dict[str, DocumentLine]:
        """The documents of a run by the end of their address."""
        with self.database.read() as tx:
            lines = list_documents(tx, run_id)
        return {line.external_id.rpartition("/")[2]: line for line in lines}

    def node(self, ending: str) -> sa.Row[Any]:
        with self.database.read() as tx:
            query = sa.select(nodes).where(nodes.c.external_id.endswith(ending, autoescape=True))
            return tx.execute(query).one()

    def active_items(self) -> int:
        with self.database.read() as tx:
            active = work_items.c.status.in_(["pending", "processing", "retry_pending"])
            return int(tx.execute(sa.select(sa.func.count()).where(active)).scalar_one())

    def close(self) -> None:
        self.app.close()


@contextmanager
def crawler_on(database: Database, home: Path, **settings: Any) -> Iterator[Crawler]:
    crawler = Crawler(database, home, **settings)
    try:
        yield crawler
    finally:
        crawler.close()
