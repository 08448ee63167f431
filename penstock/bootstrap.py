"""The one place where settings become working parts."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from penstock.crawl.duplicates import Duplicates
from penstock.documents import Stage
from penstock.errors import ConfigurationError
from penstock.settings import Settings, load_settings
from penstock.store.database import Database
from penstock.store.migration import check, current_revision, migrate
from penstock.work.queue import WorkQueue
from penstock.work.retry import Doubling, RetryRule, RetryRules, Steps

if TYPE_CHECKING:
    from penstock.crawl.fetch import Fetcher
    from penstock.crawl.listing import Listing
    from penstock.crawl.rawstore import RawStore
    from penstock.embed.embedder import Embedder
    from penstock.isolation.pool import ChildPool
    from penstock.llm.chain import ModelChain
    from penstock.llm.cleaning import Caps
    from penstock.llm.extractor import Extractor
    from penstock.llm.ratelimit import RateLimit
    from penstock.pipeline import steps as pipeline_steps
    from penstock.pipeline.drain import Drain
    from penstock.pipeline.observer import Observer
    from penstock.pipeline.processor import Processor
    from penstock.runs.admission import Admission
    from penstock.runs.vocabulary import RunLease
    from penstock.text.pool import TextPool
    from penstock.work.heart import Heart

TEXT_RETRIES = 3
FETCH_THREADS = 8
FETCH_BATCH = 2 * FETCH_THREADS
# How long a lane waits when nothing is due, before it looks again by itself.
IDLE_SECONDS = 0.25


@runtime_checkable
class Closable(Protocol):
    """A part that holds connections or threads."""

    def close(self) -> None: ...


class App:
    """Parts built from one set of settings, each on first use. Close it, or use it in a block."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self.queue = WorkQueue(
            retry_rules(settings), settings.lease_seconds, settings.job_timeout_seconds
        )

    @cached_property
    def raw(self) -> "RawStore":
        from penstock.crawl.rawstore import LocalRawStore

        return LocalRawStore(self.settings.raw_folder or self.settings.home)

    @cached_property
    def fetcher(self) -> "Fetcher":
        from penstock.crawl.fetch import Fetcher

        return Fetcher(
            allow_private=self.settings.allow_private_addresses,
            max_bytes=self.settings.max_document_bytes,
            delay_seconds=self.settings.crawl_delay_seconds,
        )

    @cached_property
    def children(self) -> "ChildPool":
        from penstock.isolation.pool import ChildPool
        from penstock.llm.rules import isolated
        from penstock.text import pool

        return ChildPool(
            processes=self.settings.text_processes,
            timeout_seconds=self.settings.text_timeout_seconds,
            warmup=(pool.WARMUP, isolated.WARMUP),
        )

    @cached_property
    def pool(self) -> "TextPool":
        from penstock.text.extensions import collect_extensions
        from penstock.text.pool import TextPool

        return TextPool(self.children, extensions=collect_extensions(self.settings.extractors))

    @cached_property
    def extractor(self) -> "Extractor":
        from penstock.llm.cleaning import Caps
        from penstock.llm.rules import IsolatedRules

        limits = self.settings.extraction
        caps = Caps(
            primary_skills=limits.max_primary_skills,
            recent_job_titles=limits.max_recent_titles,
            certifications=limits.max_certifications,
            industries=limits.max_industries,
        )
        if self.settings.asks_models:
            return self._model_chain(caps)
        return IsolatedRules(self.children, caps, limits.max_input_chars)

    def _model_chain(self, caps: "Caps") -> "ModelChain":
        from penstock.llm.asking import Asker
        from penstock.llm.breaker import Breaker
        from penstock.llm.chain import ChainSettings, ModelChain
        from penstock.llm.groq_client import build_groq_client
        from penstock.llm.modes import Modes
        from penstock.llm.prices import price_table
        from penstock.pipeline.ledger import StoreLedger

        settings, limits = self.settings, self.settings.extraction
        key = settings.groq_api_key
        chain = ChainSettings(
            limits.primary_model,
            limits.fallback_model,
            limits.confidence_threshold,
            limits.max_tokens,
            limits.max_input_chars,
            limits.concurrency,
            caps,
            price_table(limits.prices),
        )
        unpriced = [model for model in chain.models if model not in chain.prices]
        if settings.max_cost_usd_per_run is not None and unpriced:
            raise ConfigurationError(
                f"PENSTOCK_MAX_COST_USD_PER_RUN needs the price of {' and '.join(unpriced)}: "
                "name it in EXTRACTION_PRICES"
            )
        client = build_groq_client(
            key.get_secret_value() if key else None,
            limits.base_url,
            limits.timeout_seconds,
            connections=limits.concurrency,
        )
        asker = Asker(
            client,
            self._rate_limit(),
            Breaker(),
            Modes(limits.reasoning_effort),
            concurrency=limits.concurrency,
        )
        most = settings.max_cost_usd_per_run
        return ModelChain(chain, asker, StoreLedger(self.database, limits.version, most))

    def _rate_limit(self) -> "RateLimit":
        from penstock.llm.buckets import LocalRateLimit
        from penstock.llm.shared_buckets import SharedRateLimit
        from penstock.work.redis_client import build_redis_client

        url = self.settings.redis_url
        if url is None:
            return LocalRateLimit()
        return SharedRateLimit(build_redis_client(url.get_secret_value()))

    @cached_property
    def embedder(self) -> "Embedder":
        from penstock.embed.embedder import build_embedder

        return build_embedder(self.settings.embedding.backend, self.settings.embedding.model)

    @cached_property
    def steps(self) -> "pipeline_steps.DirectSteps":
        from penstock.pipeline.steps import DirectSteps

        return DirectSteps(
            self.raw, self.pool, self.extractor, self.embedder, self.settings.max_document_bytes
        )

    @cached_property
    def fetch_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="penstock-fetch")

    def heart(self) -> "Heart":
        from penstock.work.heart import Heart

        return Heart(self.database, self.queue, every_seconds=self.settings.heartbeat_seconds)

    def processor(
        self,
        steps: "pipeline_steps.Steps | None" = None,
        stages: Collection[Stage] = tuple(Stage),
        observer: "Observer | None" = None,
    ) -> "Processor":
        from penstock.llm.own_profiles import load_own_profiles
        from penstock.llm.profiles import profile_names
        from penstock.pipeline.batches import Line
        from penstock.pipeline.observer import NoObserver
        from penstock.pipeline.processor import Processor

        extraction = self.settings.extraction
        load_own_profiles(extraction.profiles)
        if extraction.profile not in profile_names():
            known = ", ".join(profile_names())
            raise ConfigurationError(
                f"EXTRACTION_PROFILE={extraction.profile} is not known: use one of {known}"
            )
        line = Line(
            self.database,
            self.queue,
            steps or self.steps,
            extraction.version,
            extraction.profile,
            self.pool.fingerprint,
            observer or NoObserver(),
        )
        embedder = self.embedder
        return Processor(
            line, self.extractor.identity, embedder.identity, embedder.window_chars, stages
        )

    @property
    def drain_size(self) -> int:
        """Documents claimed together: with models, twice as many as are asked about at once. Then
        no slot waits for a batch to end, and answers are soon committed."""
        if not self.settings.asks_models:
            return self.settings.batch_size
        return min(self.settings.batch_size, 2 * self.settings.extraction.concurrency)

    def drain(
        self, processor: "Processor", heart: "Heart", *, run_id: int | None = None
    ) -> "Drain":
        from penstock.pipeline.drain import Drain

        return Drain(
            self.database,
            self.queue,
            processor,
            heart,
            batch_size=self.drain_size,
            # One more than there are parsers: while one lane writes, the parsers stay busy.
            lanes=self.settings.text_processes + 1,
            poll_seconds=IDLE_SECONDS,
            run_id=run_id,
            on_idle=self._sweeper(),
        )

    def admission(self, lease: "RunLease") -> "Admission":
        from penstock.runs.admission import Admission
        from penstock.runs.assessment import Assessor
        from penstock.runs.known import Current

        current = Current(
            self.settings.extraction.version, lease.run.profile, self.embedder.identity
        )
        return Admission(
            self.database,
            self.queue,
            self.raw,
            self.fetcher,
            Assessor(current, lease.run.force),
            Duplicates(),
            self.fetch_threads,
        )

    def arrival_size(self, listing: "Listing") -> int:
        """How many listed documents are let in together: few where each has to be waited for."""
        return self.settings.batch_size if listing.kind in ("folder", "file") else FETCH_BATCH

    def close(self) -> None:
        """Stop what was started: threads, child processes, connections."""
        self.stop_parts()
        self.database.close()

    def stop_parts(self) -> None:
        """Stop threads and child processes; the database stays open."""
        built = self.__dict__
        if "fetch_threads" in built:
            self.fetch_threads.shutdown(cancel_futures=True)
        if "extractor" in built and isinstance(self.extractor, Closable):
            self.extractor.close()
        if "children" in built:
            self.children.close()
        if "fetcher" in built:
            self.fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _sweeper(self) -> Callable[[], None]:
        """A call for idle moments that recovers at most once in a sweep's time."""
        import time

        from penstock.recovery import recover

        swept_at = time.monotonic()

        def sweep() -> None:
            nonlocal swept_at
            if time.monotonic() - swept_at >= self.settings.sweep_seconds:
                swept_at = time.monotonic()
                recover(self.database, self.queue, max_rescues=self.settings.max_rescues)

        return sweep


def open_app(settings: Settings | None = None, *, timeout_seconds: float = 30.0) -> App:
    """Parts on a database of this version's schema.

    An empty database, or the embedded one, is brought there without asking. A Postgres that others
    work on is migrated only when somebody says so: `penstock doctor --fix`. `timeout_seconds` is
    how long a writer waits for another writer of a SQLite file.
    """
    settings = settings or load_settings()
    database = Database(settings.database_url, timeout_seconds=timeout_seconds)
    if database.is_sqlite or current_revision(database) is None:
        migrate(database)
    else:
        check(database)
    return App(settings, database)


def ensure_vector_index(app: App) -> None:
    """Have the index that vector search uses, for the vectors that are made now."""
    from penstock.search.nearest import ensure_index

    with app.database.write() as tx:
        ensure_index(tx, app.embedder.identity)


def retry_rules(settings: Settings) -> RetryRules:
    extraction, embedding = settings.extraction, settings.embedding
    return {
        Stage.TEXT: RetryRule(1 + TEXT_RETRIES, Steps()),
        Stage.EXTRACT: RetryRule(
            extraction.max_attempts,
            Doubling(extraction.retry_base_seconds, extraction.retry_max_seconds),
        ),
        Stage.EMBED: RetryRule(
            embedding.max_attempts,
            Doubling(embedding.retry_base_seconds, embedding.retry_max_seconds),
        ),
    }
