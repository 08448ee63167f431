"""The composition root: builds parts from settings."""

import logging
import math
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from pydantic import SecretStr

from penstock import failpoints
from penstock.documents import Stage
from penstock.errors import ConfigurationError, PenstockError
from penstock.home import close_home
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import ExponentialDelays, FixedDelays, RetryRule, RetryRules
from penstock.settings import Settings, load_settings
from penstock.store.database import Database
from penstock.store.migration import check, current_revision, migrate_when_idle

if TYPE_CHECKING:
    from redis import Redis

    from penstock.crawl.access import AllowedPrefixes, OffLimits
    from penstock.crawl.fetch import Fetcher, PayloadReader
    from penstock.crawl.rawstore import RawStore
    from penstock.embed.embedder import Embedder
    from penstock.intake.intake import Intake
    from penstock.isolation.pool import ChildPool
    from penstock.llm.answers import Caps
    from penstock.llm.chain import Ledger, ModelChain, ModelSlots
    from penstock.llm.prompts import Extractor
    from penstock.llm.ratelimit import RateLimit
    from penstock.maintenance.maintenance import Maintenance
    from penstock.pipeline import steps as pipeline_steps
    from penstock.pipeline.processor import Processor
    from penstock.pipeline.worker import Worker
    from penstock.queue.configuration import Configuration
    from penstock.queue.heartbeat import Heartbeat
    from penstock.queue.items import QueueMirror
    from penstock.recovery import Recovery
    from penstock.review.decisions import Decider
    from penstock.runs.admission import Admission
    from penstock.runs.execute import HeldRun
    from penstock.runs.run import RunLease
    from penstock.search.hybrid import Searcher
    from penstock.sources.collect import Collector
    from penstock.sources.finder import SourceFinder
    from penstock.text.extract import TextPool


TEXT_RETRIES = 3
# Of <malloc.h>.
_M_ARENA_MAX = -8


def share_freed_memory() -> None:
    """Let threads that are started from now on take what others have freed.

    The C library of Linux gives them memory of their own, up to eight parts for each core, of which
    large texts and caches leave half unused. Others have no such setting.
    """
    import ctypes

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def retry_rules(settings: Settings) -> RetryRules:
    extraction, embedding = settings.extraction, settings.embedding
    return {
        Stage.TEXT: RetryRule(1 + TEXT_RETRIES, FixedDelays()),
        Stage.EXTRACT: RetryRule(
            extraction.max_attempts,
            ExponentialDelays(extraction.retry_base_seconds, extraction.retry_max_seconds),
        ),
        Stage.EMBED: RetryRule(
            embedding.max_attempts,
            ExponentialDelays(embedding.retry_base_seconds, embedding.retry_max_seconds),
        ),
    }


log = logging.getLogger(__name__)
# Timeout of a Redis call, which a commit waits for.
REDIS_SECONDS = 2.0
# How long an idle thread of a worker waits before it polls again.
IDLE_SECONDS = 0.25


@runtime_checkable
class Closable(Protocol):
    """A part that holds connections or threads."""

    def close(self) -> None: ...


class App:
    """Every part, built from settings on first use. Close it, or use it in a `with` block."""

    def __init__(self, settings: Settings, database: Database, blocks: Sequence[str] = ()) -> None:
        self.settings = settings
        self.database = database
        self.blocks = tuple(blocks)
        self.model_slots: ModelSlots | None = None
        """Slots for model calls that other processes share, if there are any."""

    @property
    def configuration(self) -> "Configuration":
        """What these parts make records with."""
        from penstock.queue.configuration import Configuration

        asks_models = self.settings.asks_models
        return Configuration(
            self.extractor.identity, asks_models, self.embedder.identity, self.blocks
        )

    @property
    def extraction_models(self) -> tuple[str, ...]:
        """Who may have made a record with these settings, as the record names it."""
        from penstock.rules.extractor import MODEL

        extraction = self.settings.extraction
        if not self.settings.asks_models:
            return (MODEL,)
        return (extraction.primary_model, extraction.fallback_model)

    @cached_property
    def queue(self) -> WorkQueue:
        settings = self.settings
        return WorkQueue(
            retry_rules(settings),
            settings.lease_seconds,
            settings.job_timeout_seconds,
            self._mirror(),
            settings.max_rescues,
        )

    @cached_property
    def redis(self) -> "Redis | None":
        from penstock.redis.client import build_redis_client

        url = self.settings.redis_url
        return None if url is None else build_redis_client(url.get_secret_value(), REDIS_SECONDS)

    def _mirror(self) -> "QueueMirror | None":
        if self.redis is None:
            return None
        from penstock.redis.mirror import RedisMirror

        return RedisMirror(self.redis)

    @cached_property
    def raw(self) -> "RawStore":
        from penstock.crawl.rawstore import LocalRawStore, open_s3_raw_store

        if self.settings.raw_store is not None:
            return open_s3_raw_store(self.s3, self.settings.raw_store)
        if self.settings.raw_folder is not None:
            return LocalRawStore(self.settings.raw_folder)
        return LocalRawStore(self.settings.home, private=True)

    @cached_property
    def s3(self) -> Any:
        """The client for all buckets, of sources and of raw bytes."""
        from penstock.crawl.s3 import S3Access, build_s3_client

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
            off_limits=self.off_limits,
        )

    @cached_property
    def off_limits(self) -> "OffLimits":
        """Places no source may read: the bytes and texts of all tenants, and our passwords."""
        from penstock.crawl.access import OffLimits
        from penstock.crawl.rawstore import RAW, raw_prefix

        settings = self.settings
        raw_store = settings.raw_store
        return OffLimits(
            (settings.raw_folder or settings.home / RAW).resolve(),
            None if raw_store is None else raw_prefix(raw_store),
            (*(path.resolve() for path in self.database.files), settings.postgres_folder.resolve()),
            settings.home.resolve(),
        )

    @cached_property
    def allowed_prefixes(self) -> "AllowedPrefixes":
        """S3 prefixes that callers of the API may name."""
        from penstock.crawl.access import AllowedPrefixes

        return AllowedPrefixes.parse(self.settings.api_s3_prefixes)

    @cached_property
    def sources(self) -> "SourceFinder":
        from penstock.llm.profiles import load_own_profiles
        from penstock.sources.finder import SourceFinder

        # The settings of a source may name a profile of the user's own.
        load_own_profiles(self.settings.extraction.profiles)
        return SourceFinder(
            self.database, lambda: self.fetcher, lambda: self.s3, lambda: self.off_limits
        )

    @cached_property
    def collector(self) -> "Collector":
        from penstock.sources.collect import Collector

        most = self.settings.max_document_bytes
        return Collector(self.sources, self.fetcher, self.raw, self.fetch_threads, most)

    @cached_property
    def children(self) -> "ChildPool":
        from penstock.isolation.pool import ChildPool
        from penstock.text.extract import WARMUP

        return ChildPool(
            processes=self.settings.text_processes,
            timeout_seconds=self.settings.text_timeout_seconds,
            warmup=(WARMUP,),
        )

    @cached_property
    def pool(self) -> "TextPool":
        from penstock.text.custom import collect_extensions
        from penstock.text.extract import TextPool

        return TextPool(self.children, extensions=collect_extensions(self.settings.extractors))

    @cached_property
    def extractor(self) -> "Extractor":
        return self.build_extractor()

    def build_extractor(self, ledger: "Ledger | None" = None) -> "Extractor":
        """A new extractor, whose calls to models are recorded by `ledger`; None: in the store."""
        from penstock.llm.answers import UNCAPPED
        from penstock.rules import RulesExtractor

        if self.settings.asks_models:
            chain = (self.settings, self.database, self.redis, UNCAPPED)
            return build_model_chain(
                *chain, self._begin_loading_embedder, slots=self.model_slots, ledger=ledger
            )
        max_chars = self.settings.extraction.max_input_chars
        return RulesExtractor(UNCAPPED, max_chars, children=self.children)

    @property
    def caps(self) -> "Caps":
        """How many items of each list a node gets."""
        from penstock.llm.answers import Caps

        limits = self.settings.extraction
        return Caps(
            primary_skills=limits.max_primary_skills,
            recent_job_titles=limits.max_recent_titles,
            certifications=limits.max_certifications,
            industries=limits.max_industries,
        )

    @cached_property
    def embedder(self) -> "Embedder":
        from penstock.embed.embedder import build_embedder

        return build_embedder(self.settings.embedding.backend, self.settings.embedding.model)

    def embedder_of(self, identity: str) -> "Embedder | None":
        """The embedder of this identity; None, with a warning, if it cannot be built any more."""
        if identity == self.embedder.identity:
            return self.embedder
        if identity not in self._other_embedders:
            self._other_embedders[identity] = self._build_other_embedder(identity)
        return self._other_embedders[identity]

    @cached_property
    def _other_embedders(self) -> "dict[str, Embedder | None]":
        return {}

    def _build_other_embedder(self, identity: str) -> "Embedder | None":
        from penstock.embed.embedder import embedder_named

        try:
            return embedder_named(identity, self.settings.embedding.backend)
        except ConfigurationError as error:
            log.warning(
                "the embedder %s, whose vectors search looks among, cannot be built any more (%s): "
                "search uses those of %s, and finds what has one; `penstock backfill --reason "
                "vectors` completes them",
                identity,
                error,
                self.embedder.identity,
            )
            return None

    def warm_up(self) -> None:
        """Begin in the background what takes a second each: a process that is about to ingest has
        other things to load meanwhile. The embedder would keep the first requests to models waiting
        and is loaded while these are answered."""
        share_freed_memory()
        self.children.warm_up()
        if not self.settings.asks_models:
            self._begin_loading_embedder()

    def _begin_loading_embedder(self) -> None:
        # Not a daemon: the interpreter would end in the middle of it, and so abort. Python 3.12
        # starts no thread any more once the program has come to its last line.
        with suppress(RuntimeError):
            threading.Thread(target=self._load_embedder, name="penstock-warm-up").start()

    def _load_embedder(self) -> None:
        from penstock.embed.embedder import WordLlamaEmbedder

        # The first document raises it again, where it pauses the run.
        with suppress(PenstockError):
            if isinstance(self.embedder, WordLlamaEmbedder):
                self.embedder.load()

    @cached_property
    def steps(self) -> "pipeline_steps.DirectSteps":
        from penstock.pipeline.steps import DirectSteps

        return DirectSteps(
            self.raw, self.pool, self.extractor, self.embedder, self.settings.max_document_bytes
        )

    @cached_property
    def payload_reader(self) -> "PayloadReader":
        from penstock.crawl.fetch import PayloadReader

        roots = tuple(Path(root) for root in self.settings.payload_roots)
        return PayloadReader(self.fetcher, roots, self.settings.home, self.allowed_prefixes)

    @cached_property
    def fetch_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.crawl_threads, thread_name_prefix="penstock-fetch")

    @cached_property
    def intake(self) -> "Intake":
        from penstock.intake.intake import Intake
        from penstock.intake.nodes import IntakeRules
        from penstock.llm.profiles import load_own_profiles
        from penstock.redis.backpressure import DatabaseIntakeGate, QueueLimits, RedisIntakeGate

        extraction, embedding = self.settings.extraction, self.settings.embedding
        load_own_profiles(extraction.profiles)
        limits = QueueLimits(embedding.queue_max_depth, embedding.tenant_max_pending)
        rules = IntakeRules(extraction.enabled, extraction.mode == "sync", extraction.profile)
        return Intake(
            self.database,
            self.queue,
            rules,
            DatabaseIntakeGate(limits),
            RedisIntakeGate(self.redis, limits) if self.redis is not None else None,
            embedding.queue_require_redis,
        )

    @cached_property
    def inline_processor(self) -> "Processor":
        """Embeds inside a request of the API."""
        from penstock.search.vectors import prepare_index

        prepare_index(self.database, self.embedder.identity)
        return self.processor(stages=(Stage.EMBED,))

    @cached_property
    def searcher(self) -> "Searcher":
        from penstock.search.hybrid import Searcher

        return Searcher(self.database, self._embed_query)

    def _embed_query(self, text: str, identity: str | None) -> tuple[bytes, str]:
        embedder = self.embedder_of(identity or self.embedder.identity) or self.embedder
        return embedder.embed([text])[0], embedder.identity

    @cached_property
    def decider(self) -> "Decider":
        from penstock.llm.profiles import load_own_profiles
        from penstock.review.decisions import Decider

        extraction = self.settings.extraction
        load_own_profiles(extraction.profiles)
        return Decider(self.database, self.queue, extraction.confidence_threshold)

    @cached_property
    def recovery(self) -> "Recovery":
        from penstock.recovery import Recovery

        return Recovery(self.database, self.queue, self.redis)

    @cached_property
    def maintenance(self) -> "Maintenance":
        from penstock.maintenance.maintenance import Maintenance
        from penstock.maintenance.retention import RetentionPolicy

        policy = RetentionPolicy.of(self.settings.model_dump())
        return Maintenance(self.database, lambda: self.raw, self.recovery.run, policy)

    def waker(self, callback: Callable[[], None]) -> "AbstractContextManager[object]":
        """Calls back as soon as an item is enqueued; does nothing without Redis."""
        if self.redis is None:
            return nullcontext()
        from penstock.redis.mirror import Waker

        return Waker(self.redis, callback)

    def heartbeat(self, rows: int = 1) -> "Heartbeat":
        from penstock.queue.heartbeat import Heartbeat

        every_seconds = self.settings.heartbeat_seconds
        return Heartbeat(self.database, self.queue, every_seconds=every_seconds, rows=rows)

    def processor(
        self,
        steps: "pipeline_steps.Steps | None" = None,
        stages: Collection[Stage] = tuple(Stage),
    ) -> "Processor":
        from penstock.llm.profiles import load_own_profiles, profile_names
        from penstock.pipeline.embed import Vectors
        from penstock.pipeline.processor import Processor
        from penstock.pipeline.stage import StageContext
        from penstock.pipeline.steps import StoredPayloads

        extraction = self.settings.extraction
        load_own_profiles(extraction.profiles)
        if extraction.profile not in (None, *profile_names()):
            known = ", ".join(profile_names())
            raise ConfigurationError(
                f"EXTRACTION_PROFILE={extraction.profile} is not known: use one of {known}"
            )
        context = StageContext(
            self.database,
            self.queue,
            steps or self.steps,
            extraction.version,
            extraction.profile,
            self.pool.fingerprint,
            payloads=StoredPayloads(
                lambda: self.payload_reader, lambda: self.raw, lambda: self.fetch_threads
            ),
            caps=self.caps,
            threshold=extraction.confidence_threshold,
            passage_chars=self.settings.embedding.passage_chars,
        )
        embedder = self.embedder
        return Processor(
            context, self.extractor.identity, Vectors(embedder, self.embedder_of), stages
        )

    @property
    def profile_hashes(self) -> tuple[tuple[str, str], ...]:
        """Of the profiles as they are now: what was extracted with others is outdated."""
        from penstock.llm.profiles import load_own_profiles, profile_hashes

        load_own_profiles(self.settings.extraction.profiles)
        return profile_hashes()

    @property
    def claim_size(self) -> int:
        """Documents claimed together. With models, four times as many as are asked at once: no call
        slot waits for a batch to end, answers are committed soon, and many documents share what a
        batch costs, in Prefect two task runs."""
        if not self.settings.asks_models:
            return self.settings.batch_size
        return min(self.settings.batch_size, 4 * self.settings.extraction.concurrency)

    def worker(
        self, processor: "Processor", heartbeat: "Heartbeat", *, run_id: int | None = None
    ) -> "Worker":
        from penstock.pipeline.worker import Worker
        from penstock.queue.configuration import ServedKeys

        # One more than there are parsers: while one thread writes, the parsers stay busy.
        threads = self.settings.text_processes + 1
        return Worker(
            self.database,
            self.queue,
            processor,
            heartbeat,
            batch_size=self.claim_size,
            threads=threads,
            poll_seconds=IDLE_SECONDS,
            run_id=run_id,
            least_suspects=self.least_suspects(threads),
            served=ServedKeys(self.database, self.configuration) if run_id is None else None,
            recover=self.recovery.run,
            sweep_seconds=self.settings.sweep_seconds,
            cut_off=self.cut_off,
        )

    def least_suspects(self, threads: int) -> int:
        """Rescued items that a thread takes together at least: with models, so many that all call
        slots are used. The items of one process die together, in one batch or in several."""
        if not self.settings.asks_models:
            return 1
        return math.ceil(self.settings.extraction.concurrency / threads)

    def admission(self, lease: "RunLease") -> "Admission":
        from penstock.crawl.fetch import SourceCircuit
        from penstock.crawl.rawstore import LocalRawStore
        from penstock.runs.admission import Admission, RunWatch
        from penstock.runs.compare import Comparison
        from penstock.runs.up_to_date import Assessor, Forced, Target

        run = lease.run
        forced = Forced(run.force, frozenset(run.forced or ()))
        watch = RunWatch(self.database, lease)
        # An aborted run makes no more requests, not even for its listing.
        self.fetcher.interrupt = watch.check
        return Admission(
            lease,
            self.database,
            self.queue,
            self.fetcher,
            Comparison(
                self.raw,
                run.tenant_id,
                run.source_name,
                self.off_limits,
                self.settings.max_document_bytes,
            ),
            self.children if isinstance(self.raw, LocalRawStore) else None,
            Target(
                self.settings.extraction.version,
                self.embedder.identity,
                profile_hashes=self.profile_hashes,
                passage_chars=self.settings.embedding.passage_chars,
            ),
            Assessor(forced, only_postings=run.source_kind == "jobs"),
            self.fetch_threads,
            self.settings.crawl_threads,
            self.settings.batch_size,
            watch,
            SourceCircuit(run.source_name),
        )

    def hold_run(
        self, run_id: int, flow_run_id: str | None = None
    ) -> "AbstractContextManager[HeldRun]":
        from penstock.runs.execute import hold_run

        return hold_run(
            self.database,
            self.queue,
            run_id,
            heartbeat=self.heartbeat(),
            lease_seconds=self.settings.lease_seconds,
            cut_off=self.cut_off,
            configuration=self.configuration,
            flow_run_id=flow_run_id,
        )

    def run_worker(self, held: "HeldRun", steps: "pipeline_steps.Steps | None" = None) -> "Worker":
        """What processes the items of one run."""
        return self.worker(self.processor(steps), held.heartbeat, run_id=held.run.id)

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

    def cut_off(self) -> None:
        """End model calls and parsing under way, from any thread: they raise Interrupted."""
        built = self.__dict__
        if "extractor" in built and isinstance(self.extractor, Closable):
            self.extractor.close()
        if "children" in built:
            self.children.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def open_app(
    settings: Settings | None = None,
    *,
    timeout_seconds: float = 30.0,
    blocks: Sequence[str] = (),
) -> App:
    """The parts on a database of this version's schema; `blocks` names those that the settings are
    from.

    An empty database is migrated at once, and so is a SQLite file that no worker uses; a Postgres
    that holds data only by `penstock migrate`, since other machines may be about to use it.
    `timeout_seconds` is how long a writer waits for another writer of a SQLite file.
    """
    settings = settings or load_settings()
    failpoints.arm(settings.faults)
    close_home(settings.home)
    database = Database(
        settings.database_url,
        timeout_seconds=timeout_seconds,
        # Postgres ends a transaction that is idle for longer: its leases have expired by then.
        idle_seconds=settings.lease_seconds,
    )
    try:
        if database.is_sqlite or current_revision(database) is None:
            migrate_when_idle(database, lease_seconds=settings.lease_seconds)
        else:
            check(database)
    except BaseException:
        database.close()
        raise
    return App(settings, database, blocks)


def build_model_chain(
    settings: Settings,
    database: Database,
    redis: "Redis | None",
    caps: "Caps",
    meanwhile: Callable[[], None] = lambda: None,
    slots: "ModelSlots | None" = None,
    ledger: "Ledger | None" = None,
) -> "ModelChain":
    """The chain of models: primary, then fallback; `meanwhile` and `slots` as for `ModelChain`.
    Without a `ledger`, calls and answers are recorded in the store."""
    from penstock.llm.caller import ModelCaller
    from penstock.llm.chain import ChainSettings, ModelChain, price_table
    from penstock.llm.groq import build_groq_client
    from penstock.llm.prompts import JsonModes
    from penstock.pipeline.extract import StoreLedger
    from penstock.retry import CircuitBreaker
    from penstock.rules.vocabulary import spellings_of

    limits = settings.extraction
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
        spellings_of,
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
    caller = ModelCaller(
        client,
        _rate_limit(redis),
        CircuitBreaker(),
        JsonModes(limits.reasoning_effort),
        concurrency=limits.concurrency,
    )
    most = settings.max_cost_usd_per_run
    ledger = ledger or StoreLedger(database, limits.version, most)
    return ModelChain(chain, caller, ledger, meanwhile, slots)


def _rate_limit(redis: "Redis | None") -> "RateLimit":
    from penstock.llm.ratelimit import LocalGate, RateLimit
    from penstock.redis.ratelimit import FallbackCallGate, RedisCallGate

    if redis is None:
        return RateLimit(LocalGate())
    return RateLimit(FallbackCallGate(redis, RedisCallGate(redis)))
