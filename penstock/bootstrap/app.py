"""What the parts do together: work, intake, runs, search and recovery."""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.bootstrap.parts import Parts
from penstock.documents import Stage
from penstock.errors import ConfigurationError, PenstockError, ServiceError

if TYPE_CHECKING:
    from penstock.intake.intake import Intake
    from penstock.intake.request import Accepted
    from penstock.maintenance.outcome import Maintained
    from penstock.pipeline import steps as pipeline_steps
    from penstock.pipeline.drain import Drain
    from penstock.pipeline.observer import Observer
    from penstock.pipeline.processor import Processor
    from penstock.recovery import Recovered
    from penstock.runs.admission import Admission
    from penstock.runs.vocabulary import Run, RunLease
    from penstock.search.query import Filters, Hit, Mode
    from penstock.work.heart import Heart


log = logging.getLogger(__name__)
# How long a lane waits when nothing is due, before it looks again by itself.
IDLE_SECONDS = 0.25


class App(Parts):
    """Parts built from one set of settings, and what is done with them."""

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

        processor = self._inline_processor
        return embed_accepted(self.database, self.queue, processor.process, accepted)

    @cached_property
    def _inline_processor(self) -> "Processor":
        ensure_vector_index(self)
        return self.processor(stages=(Stage.EMBED,))

    def search(self, query: str, filters: "Filters", mode: "Mode", limit: int) -> "list[Hit]":
        """Documents, best first."""
        from penstock.search.hybrid import search
        from penstock.search.identity import active_identity

        with self.database.read() as tx:

            def embed(text: str) -> tuple[bytes, str]:
                # Until the vectors of a new model are complete, search looks among the old ones.
                active = active_identity(tx) or self.embedder.identity
                embedder = self.embedder_of(active) or self.embedder
                return embedder.embed([text])[0], embedder.identity

            return search(tx, query, filters, mode=mode, limit=limit, embed=embed)

    def recover(self) -> "Recovered":
        """One pass of recovery: items of dead workers, runs left behind, and what Redis missed.

        Nothing is done, and nothing found, while another process is at it.
        """
        from penstock.recovery import Recovered, recover
        from penstock.store.duty import duty

        with duty(self.database, "recovery") as ours:
            if not ours:
                log.info("another worker is recovering at this moment")
                return Recovered(elsewhere=True)
            found = recover(self.database, self.queue, max_rescues=self.settings.max_rescues)
            self._reconcile()
            return found

    def try_recover(self) -> "Recovered | None":
        """The same, where work goes on without it; None when it did not get through."""
        try:
            return self.recover()
        except PenstockError as error:
            log.warning("recovery did not get through, the next sweep tries again: %s", error)
            return None

    def maintain(self, *, dry_run: bool = False) -> "Maintained":
        """Forget what is old, delete raw bytes that nobody needs, and give back the room; or only
        tell how much that would be."""
        from penstock.maintenance.keeping import Keeping
        from penstock.maintenance.maintenance import Maintenance

        keeping = Keeping.of(self.settings.model_dump())
        maintenance = Maintenance(self.database, lambda: self.raw, self._recover_told, keeping)
        return maintenance.run(dry_run=dry_run)

    def _recover_told(self) -> str:
        found = self.recover()
        if found.elsewhere:
            return "another worker is at it"
        items = found.items
        back = len(items.freed) + len(items.rescued)
        ended = len(found.finished_runs)
        return f"{back} jobs taken back, {len(items.dead)} of them dead, {ended} runs finished"

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
        from penstock.pipeline.vectors import Vectors

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
        return Processor(line, self.extractor.identity, Vectors(embedder, self.embedder_of), stages)

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

    def _sweeper(self) -> Callable[[], None]:
        """A call for idle moments that recovers at most once in a sweep's time."""
        import time

        due_at = time.monotonic() + self.settings.sweep_seconds

        def sweep() -> None:
            nonlocal due_at
            if time.monotonic() >= due_at:
                due_at = time.monotonic() + self.settle(self.try_recover())

        return sweep

    def settle(self, found: "Recovered | None") -> float:
        """Seconds until the next sweep. Soon, if another process has the duty: it may have died
        at it."""
        from penstock.store.duty import HELD_SECONDS

        if found is not None and found.elsewhere:
            return min(HELD_SECONDS, self.settings.sweep_seconds)
        return self.settings.sweep_seconds


def ensure_vector_index(app: App) -> None:
    """Have the index that vector search uses, for the vectors that are made now."""
    from penstock.search.nearest import ensure_index

    with app.database.write() as tx:
        ensure_index(tx, app.embedder.identity)
