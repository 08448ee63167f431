"""Executes a run: list → admit → work → finalize → report.

This is the one order of a run. The flow, the tests and the benches call it with seams of their own:
the flow's are Prefect tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from penstock.crawl.listing import Listed
from penstock.errors import (
    ConfigurationError,
    Interrupted,
    ListingFailed,
    RunRefused,
    UsageError,
)
from penstock.queue.configuration import Configuration
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.queue import WorkQueue
from penstock.runs.admission import AdmittedDocument
from penstock.runs.lifecycle import (
    begin_ingesting,
    close_listing,
    drop_run,
    open_run,
    pause_interrupted,
    pause_run,
    read_run,
    renew_run,
    take_run,
    try_finalize,
)
from penstock.runs.report import RunReport, report_run
from penstock.runs.run import Run, RunLease, SourceSpec
from penstock.sources.catalogue import SourceSettings
from penstock.sources.finder import SourceFinder
from penstock.store.database import Database
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import work_items

Fetch = Callable[[Iterable[Listed]], Iterable[Sequence[AdmittedDocument]]]
Admit = Callable[[Sequence[AdmittedDocument]], object]


class RunWorker(Protocol):
    """What processes the items of a run while its documents are admitted."""

    def in_background(self, tick: Callable[[], None]) -> AbstractContextManager[object]:
        """Work while the block runs, and on until all items are done."""

    def wake(self) -> None:
        """Look for items now."""

    def check(self) -> None:
        """Raise what the work has failed with."""

    def stop(self) -> None:
        """End after the batches at hand."""


def list_source(finder: SourceFinder, run: Run) -> Iterable[Listed]:
    """The documents of a run's source; ListingFailed when it cannot be listed."""
    settings = SourceSettings.model_validate(run.settings)
    return finder.listing(run.source_kind, run.location, settings).list()


@dataclass(slots=True)
class HeldRun:
    """A run that this process works on."""

    database: Database
    queue: WorkQueue
    lease: RunLease
    heartbeat: Heartbeat
    cut_off: Callable[[], None]
    """Ends the parsing and the model calls that are under way."""
    worker: RunWorker | None = None

    @property
    def run(self) -> Run:
        return self.lease.run

    def stop(self) -> None:
        """Have the run paused, to be resumed later; from any thread."""
        if self.worker is not None:
            self.worker.stop()
        with suppress(RunRefused):
            pause_interrupted(self.database, self.lease)


_held: list[HeldRun] = []


def open_source_run(
    finder: SourceFinder,
    source: str,
    tenant_id: str,
    *,
    profile: str | None = None,
    force: bool = False,
    documents: Sequence[str] = (),
    run_id: int | None = None,
) -> Run:
    """Record a run of a source, given by its name or by where it is; or find the recorded one."""
    if not source:
        raise UsageError("name a source to ingest")
    if run_id is not None:
        return _recorded_run(finder.database, run_id, source)
    known = finder.find(source, tenant_id)
    if known is None or known.name == known.location:
        listing = finder.recognise(source)
        # A source that was not given a name has its location for one.
        spec = SourceSpec(tenant_id, listing.location, listing.kind, listing.location)
    else:
        spec = SourceSpec(tenant_id, known.name, known.kind, known.location)
        profile = profile or known.settings.profile
        force = force or known.settings.force
    return open_run(finder.database, spec, profile=profile, force=force, forced=documents)


def _recorded_run(database: Database, run_id: int, source: str) -> Run:
    with database.read() as tx:
        run = read_run(tx, run_id)
    if source not in (run.source_name, run.location):
        raise UsageError(f"run {run_id} is one of {run.source_name}, not of {source}")
    return run


@contextmanager
def hold_run(
    database: Database,
    queue: WorkQueue,
    run_id: int,
    *,
    heartbeat: Heartbeat,
    lease_seconds: float,
    cut_off: Callable[[], None],
    configuration: Configuration | None = None,
    flow_run_id: str | None = None,
) -> Iterator[HeldRun]:
    """Be the one process that works on this run. However the block ends, the run can be resumed."""
    lease = take_run(
        database,
        run_id,
        lease_seconds=lease_seconds,
        configuration=configuration,
        flow_run_id=flow_run_id,
    )
    held = HeldRun(database, queue, lease, heartbeat, cut_off)
    try:
        _held.append(held)
        with heartbeat:
            heartbeat.also_renew(lambda tx: renew_run(tx, lease, lease_seconds))
            yield held
    except ConfigurationError as fault:
        pause_run(database, lease, getattr(fault, "reason", str(fault)))
        raise
    except RunRefused:
        raise
    except (Interrupted, KeyboardInterrupt):
        # It may have come in the moment after the last document, or be noted already.
        with suppress(RunRefused):
            pause_interrupted(database, lease)
        raise
    except BaseException as error:
        # Also a worker that gets a SIGTERM: the work stays, and the next start goes on with it.
        drop_run(database, lease, f"{type(error).__name__}: {error}")
        raise
    finally:
        _held.remove(held)


def execute_run(
    held: HeldRun,
    *,
    discover: Callable[[], Iterable[Listed]],
    fetch: Fetch,
    admit: Admit,
    worker: RunWorker,
    finalize: Callable[[Database, int], object] = try_finalize,
    on_progress: Callable[[], None] = lambda: None,
    max_failed: float | None = None,
) -> RunReport:
    """Do everything that a run consists of.

    Args:
        held: The run, held by this process.
        discover: Lists the documents of the source; ListingFailed ends the listing, not the run.
        fetch: Fetches what is listed and compares it with what is known, in batches.
        admit: Records one batch: nodes, work items and the documents of the run.
        worker: Takes the items through text, fields and vectors while documents come in.
        finalize: Ends the run when nothing is left to do.
        on_progress: Called now and then while the run goes on.
        max_failed: The run fails when more than this share of its documents does; None: all.
    """
    database, run_id = held.database, held.run.id
    held.worker = worker
    with worker.in_background(on_progress):
        for _ in admit_listed(database, held.lease, discover, fetch, admit, max_failed):
            worker.wake()
            worker.check()
            on_progress()
    finalize(database, run_id)
    return read_report(database, run_id)


def admit_listed(
    database: Database,
    lease: RunLease,
    discover: Callable[[], Iterable[Listed]],
    fetch: Fetch,
    admit: Admit,
    max_failed: float | None = None,
) -> Iterator[int]:
    """Admit every document that the source lists; after each batch, how many were in it."""
    begin_ingesting(database, lease, max_failed)
    try:
        for batch in fetch(discover()):
            admit(batch)
            yield len(batch)
    except ListingFailed as failure:
        close_listing(database, lease, error=str(failure))
    else:
        close_listing(database, lease)


@retry_while_unavailable
def read_report(database: Database, run_id: int) -> RunReport:
    with database.read() as tx:
        return report_run(tx, run_id)


def interrupt_runs() -> None:
    """Pause the runs of this process: what is under way is cut off and given back."""
    for held in _held.copy():
        held.stop()
        held.cut_off()


def leave_runs() -> None:
    """The same for a process that ends now: its threads will not give back what they hold."""
    for held in _held.copy():
        held.stop()
        mine = work_items.c.lease_owner == held.heartbeat.owner
        with held.database.write() as tx:
            held.queue.take_away(tx, mine)
