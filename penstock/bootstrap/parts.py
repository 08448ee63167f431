"""Stores, clients and pools, each built from the settings on first use."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from pydantic import SecretStr

from penstock.bootstrap.rules import retry_rules
from penstock.errors import ConfigurationError
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.work.queue import WorkQueue

if TYPE_CHECKING:
    from redis import Redis

    from penstock.crawl.fetch import Fetcher
    from penstock.crawl.payload import PayloadReader
    from penstock.crawl.rawstore import RawStore
    from penstock.embed.embedder import Embedder
    from penstock.isolation.pool import ChildPool
    from penstock.llm.extractor import Extractor
    from penstock.pipeline import steps as pipeline_steps
    from penstock.sources.finder import SourceFinder
    from penstock.text.pool import TextPool
    from penstock.work.moves import Dispatch


log = logging.getLogger(__name__)
# Whoever commits waits no longer than this for Redis to hear of it.
REDIS_SECONDS = 2.0


@runtime_checkable
class Closable(Protocol):
    """A part that holds connections or threads."""

    def close(self) -> None: ...


class Parts:
    """What everything else is made of. Close it, or use it in a block."""

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
            from penstock.bootstrap.models import build_model_chain

            return build_model_chain(self.settings, self.database, self.redis, caps)
        return IsolatedRules(self.children, caps, limits.max_input_chars)

    @cached_property
    def embedder(self) -> "Embedder":
        from penstock.embed.embedder import build_embedder

        return build_embedder(self.settings.embedding.backend, self.settings.embedding.model)

    def embedder_of(self, identity: str) -> "Embedder | None":
        """Whoever makes vectors of this identity; None, with a warning, if nobody can any more."""
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
        return PayloadReader(self.fetcher, roots, self.settings.raw_store)

    @cached_property
    def fetch_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.crawl_threads, thread_name_prefix="penstock-fetch")

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


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
