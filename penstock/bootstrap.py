"""The one place where settings become working parts."""

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from pydantic import SecretStr

from penstock.documents import Stage
from penstock.errors import ConfigurationError, ServiceError
from penstock.settings import Settings, load_settings
from penstock.store.database import Database
from penstock.store.migration import check, current_revision, migrate
from penstock.work.queue import WorkQueue
from penstock.work.retry import Doubling, RetryRule, RetryRules, Steps

if TYPE_CHECKING:
    from redis import Redis

    from penstock.crawl.fetch import Fetcher
    from penstock.crawl.payload import PayloadReader
    from penstock.crawl.rawstore import RawStore
    from penstock.embed.embedder import Embedder
    from penstock.intake.intake import Intake
    from penstock.intake.request import Accepted
    from penstock.isolation.pool import ChildPool
    from penstock.llm.chain import ModelChain
    from penstock.llm.cleaning import Caps
    from penstock.llm.extractor import Extractor
    from penstock.llm.ratelimit import RateLimit
    from penstock.pipeline import steps as pipeline_steps
    from penstock.pipeline.drain import Drain
    from penstock.pipeline.observer import Observer
    from penstock.pipeline.processor import Processor
    from penstock.recovery import Recovered
    from penstock.runs.admission import Admission
    from penstock.runs.vocabulary import Run, RunLease
    from penstock.search.query import Filters, Hit, Mode
    from penstock.sources.finder import SourceFinder
    from penstock.text.pool import TextPool
    from penstock.work.heart import Heart
    from penstock.work.moves import Dispatch

log = logging.getLogger(__name__)
TEXT_RETRIES = 3
# Whoever commits waits no longer than this for Redis to hear of it.
REDIS_SECONDS = 2.0
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

    @cached_property
    def queue(self) -> WorkQueue:
        settings = self.settings
        return WorkQueue(
            retry_rules(settings),
            settings.lease_seconds,
            settings.job_timeout_seconds,
            self._dispatch(),
        )

    @cached_property
    def redis(self) -> "Redis | None":
        from penstock.work.redis_client import build_redis_client

        url = self.settings.redis_url
        return None if url is None else build_redis_client(url.get_secret_value(), REDIS_SECONDS)

    def _dispatch(self) -> "Dispatch | None":
        if self.redis is None:
            return None
        from penstock.dispatch.redis_dispatch import RedisDispatch

        return RedisDispatch(self.redis)

    @cached_property
    def raw(self) -> "RawStore":
        from penstock.crawl.rawstore import LocalRawStore
        from penstock.crawl.s3_rawstore import open_s3_raw_store

        if self.settings.raw_store is not None:
            return open_s3_raw_store(self.s3, self.settings.raw_store)
        return LocalRawStore(self.settings.raw_folder or self.settings.home)

    @cached_property
    def s3(self) -> Any:
        """The client of all buckets, of sources as well as of raw bytes."""
        from penstock.crawl.s3_client import S3Access, build_s3_client

        settings = self.settings
        access = S3Access(
            settings.s3_endpoint_url,
            settings.s3_region,
            _revealed(settings.s3_access_key_id),
            _revealed(settings.s3_secret_access_key),
            _revealed(settings.s3_session_token),
        )
        return build_s3_client(access)

    @cached_property
    def fetcher(self) -> "Fetcher":
        from penstock.crawl.fetch import Fetcher

        return Fetcher(
            allow_private=self.settings.allow_private_addresses,
            max_bytes=self.settings.max_document_bytes,
            delay_seconds=self.settings.crawl_delay_seconds,
            concurrency_per_host=self.settings.crawl_concurrency,
            contact=self.settings.crawl_contact,
            s3=lambda: self.s3,
        )

    @cached_property
    def sources(self) -> "SourceFinder":
        from penstock.sources.finder import SourceFinder

        return SourceFinder(self.database, lambda: self.fetcher, lambda: self.s3)

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

        return LocalRateLimit() if self.redis is None else SharedRateLimit(self.redis)

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
    def payload_reader(self) -> "PayloadReader":
        from penstock.crawl.payload import PayloadReader

        roots = tuple(Path(root) for root in self.settings.payload_roots)
        return PayloadReader(self.fetcher, roots)

    @cached_property
    def fetch_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.crawl_threads, thread_name_prefix="penstock-fetch")

    @cached_property
    def intake(self) -> "Intake":
        from penstock.dispatch.database_gate import DatabaseGate
        from penstock.dispatch.gate import Limits
        from penstock.dispatch.redis_gate import RedisGate
        from penstock.intake.acceptance import Acceptance
        from penstock.intake.intake import Intake
        from penstock.intake.plan import IntakeRules
        from penstock.llm.own_profiles import load_own_profiles

        extraction, embedding = self.settings.extraction, self.settings.embedding
        load_own_profiles(extraction.profiles)
        limits = Limits(embedding.queue_max_depth, embedding.tenant_max_pending)
        rules = IntakeRules(extraction.enabled, extraction.mode == "sync", extraction.profile)
        return Intake(
            self.database,
            Acceptance(self.queue, rules),
            DatabaseGate(limits),
            RedisGate(self.redis, limits) if self.redis is not None else None,
            embedding.queue_require_redis,
        )

    def embed_now(self, accepted: "Sequence[Accepted]") -> "list[Accepted]":
        """Embed new nodes before going on, those whose text is there; how they stand after that."""
        from penstock.intake.inline import embed_accepted

        processor = self.processor(stages=(Stage.EMBED,))
        ensure_vector_index(self)
        return embed_accepted(self.database, self.queue, processor.process, accepted)

    def search(self, query: str, filters: "Filters", mode: "Mode", limit: int) -> "list[Hit]":
        """Documents, best first."""
        from penstock.search.hybrid import search

        def embed(text: str) -> tuple[bytes, str]:
            return self.embedder.embed([text])[0], self.embedder.identity

        with self.database.read() as tx:
            return search(tx, query, filters, mode=mode, limit=limit, embed=embed)

    def recover(self) -> "Recovered":
        """One pass of recovery: items of dead workers, runs left behind, and what Redis missed."""
        from penstock.recovery import recover

        found = recover(self.database, self.queue, max_rescues=self.settings.max_rescues)
        self._reconcile()
        return found

    def _reconcile(self) -> None:
        if self.redis is None:
            return
        from penstock.dispatch.reconcile import reconcile

        try:
            reconcile(self.database, self.redis)
        except ServiceError as error:
            log.warning("Redis does not follow the database, the next sweep tries again: %s", error)

    def waker(self, callback: Callable[[], None]) -> "AbstractContextManager[object]":
        """Calls back at once when something is put into a queue, where Redis tells of it."""
        if self.redis is None:
            return nullcontext()
        from penstock.dispatch.waker import Waker

        return Waker(self.redis, callback)

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
        from penstock.pipeline.payloads import StoredPayloads
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
            StoredPayloads(
                lambda: self.payload_reader, lambda: self.raw, lambda: self.fetch_threads
            ),
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
        from penstock.crawl.circuit import Circuit
        from penstock.runs.admission import Admission
        from penstock.runs.assessment import Assessor, Forced
        from penstock.runs.known import Current
        from penstock.runs.watch import RunWatch

        run = lease.run
        current = Current(self.settings.extraction.version, run.profile, self.embedder.identity)
        forced = Forced(run.force, frozenset(run.forced or ()))
        watch = RunWatch(self.database, lease)
        # Also while a source is being listed: whoever aborts a run wants no more requests.
        self.fetcher.interrupt = watch.check
        return Admission(
            lease,
            self.database,
            self.queue,
            self.raw,
            self.fetcher,
            Assessor(current, forced, only_postings=run.source_kind == "jobs"),
            self.fetch_threads,
            self.settings.crawl_threads,
            self.settings.batch_size,
            watch,
            Circuit(run.source_name),
        )

    def open_run(
        self,
        source: str,
        tenant_id: str,
        *,
        profile: str | None = None,
        force: bool = False,
        documents: Sequence[str] = (),
    ) -> "Run":
        """Record a run of a source, given by its name or by where it is."""
        from penstock.llm.own_profiles import load_own_profiles
        from penstock.runs.lifecycle import open_run
        from penstock.runs.vocabulary import SourceSpec

        load_own_profiles(self.settings.extraction.profiles)
        known = self.sources.find(source, tenant_id)
        if known is None or known.name == known.location:
            listing = self.sources.recognise(source)
            spec = SourceSpec(tenant_id, listing.name, listing.kind, listing.location)
        else:
            spec = SourceSpec(tenant_id, known.name, known.kind, known.location)
            profile = profile or known.settings.profile
            force = force or known.settings.force
        return open_run(self.database, spec, profile=profile, force=force, forced=documents)

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
        if built.get("redis") is not None:
            built["redis"].close()
        if "s3" in built:
            self.s3.close()

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

        swept_at = time.monotonic()

        def sweep() -> None:
            nonlocal swept_at
            if time.monotonic() - swept_at >= self.settings.sweep_seconds:
                swept_at = time.monotonic()
                self.recover()

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


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


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
