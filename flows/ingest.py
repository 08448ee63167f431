"""Flow `ingest`: one source, from its listing to searchable records and exact counts."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from blocks.configuration import settings_with
from flows.hooks import abort_cancelled_run
from penstock.bootstrap import App, ensure_vector_index, open_app
from penstock.crawl.listing import Listing
from penstock.crawl.source import recognise_source
from penstock.errors import ConfigurationError, ListingFailed, PenstockError, RunRefused, UsageError
from penstock.pipeline.drain import Drain
from penstock.runs.batches import in_batches
from penstock.runs.lifecycle import (
    abort_run,
    begin_ingesting,
    close_listing,
    drop_run,
    open_run,
    pause_run,
    read_run,
    renew_run,
    take_run,
    try_finalize,
)
from penstock.runs.report import RunReport, list_failures, report_run
from penstock.runs.vocabulary import RunLease, RunStatus, SourceSpec
from tasks.admission import Arrivals, admit_documents
from tasks.artifacts import ProgressArtifact, publish_summary
from tasks.labels import tag_flow_run
from tasks.results import forget_old_results
from tasks.steps import TaskSteps


def _run_name() -> str:
    parameters = flow_run.get_parameters() or {}
    run_id = parameters.get("run_id")
    what = parameters.get("source") or (f"run {run_id}" if run_id else "?")
    return f"ingest {what}"


@flow(
    name="ingest",
    flow_run_name=_run_name,
    on_cancellation=[abort_cancelled_run],
    persist_result=False,
)
def ingest(
    source: str | None = None,
    tenant: str = "default",
    profile: str | None = None,
    force: bool = False,
    run_id: int | None = None,
    blocks: list[str] | None = None,
) -> dict[str, Any]:
    """Discover → fetch → work items → process until they are done → finalize.

    Args:
        source: A folder, a file, a file of URLs, or the URL of a site or sitemap.
        tenant: Whose documents these are.
        profile: The fields to extract (resume, job_posting, document); empty: by content.
        force: Process documents again even if they are unchanged.
        run_id: Take up this recorded run instead of starting a new one.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_app(settings_with(blocks or [])) as app:
        run_id = run_id or _open(app, source, tenant, profile, force)
        with _taken(app, run_id) as lease, app.heart() as heart:
            heart.keep(lambda tx: renew_run(tx, lease, app.settings.lease_seconds))
            tag_flow_run(f"tenant:{lease.run.tenant_id}", f"source:{lease.run.source_name}")
            progress = ProgressArtifact(run_id)

            def show_progress() -> None:
                if progress.due():
                    progress.show(_report(app, lease.run.id))

            ensure_vector_index(app)
            steps = TaskSteps(app.steps, f"run {run_id}")
            drain = app.drain(app.processor(steps, observer=heart), heart, run_id=run_id)
            with drain.beside(show_progress):
                _admit_all(app, lease, drain, show_progress)
            try_finalize(app.database, run_id)
            report = _report(app, run_id)
            progress.show(report)
            forget_old_results()
        return _conclude(app, report)


def _open(app: App, source: str | None, tenant: str, profile: str | None, force: bool) -> int:
    if not source:
        raise UsageError("name a source to ingest, or the run_id of a run to take up")
    listing = recognise_source(source, app.fetcher)
    spec = SourceSpec(tenant, listing.name, listing.kind, listing.location)
    return open_run(app.database, spec, profile=profile, force=force).id


@contextmanager
def _taken(app: App, run_id: int) -> Iterator[RunLease]:
    """Hold the run; however the block ends, the run is left in a state somebody can go on from."""
    lease = take_run(app.database, run_id, lease_seconds=app.settings.lease_seconds)
    try:
        yield lease
    except ConfigurationError as fault:
        pause_run(app.database, lease, getattr(fault, "reason", str(fault)))
        raise
    except RunRefused:
        raise
    except KeyboardInterrupt:
        # It may have come in the moment after the last document.
        with suppress(UsageError):
            abort_run(app.database, app.queue, run_id, reason="interrupted")
        raise
    except BaseException as error:
        # Also a worker told to stop (SIGTERM): the work stays, and the next start goes on with it.
        drop_run(app.database, lease, f"{type(error).__name__}: {error}")
        raise


def _admit_all(app: App, lease: RunLease, drain: Drain, show_progress: Any) -> None:
    """Bring in every document the source lists, a batch at a time."""
    begin_ingesting(app.database, lease, flow_run.get_id())
    admission = app.admission(lease)
    try:
        listing = _listing(app, lease)
        for batch in in_batches(listing.list(), app.arrival_size(listing)):
            admit_documents(Arrivals(admission, lease, batch))
            drain.wake()
            drain.check()
            show_progress()
    except ListingFailed as failure:
        close_listing(app.database, lease, error=str(failure))
    else:
        close_listing(app.database, lease)


def _listing(app: App, lease: RunLease) -> Listing:
    """The run's source, as it is now; one that has gone or changed its kind cannot be listed."""
    run = lease.run
    try:
        listing = recognise_source(run.location, app.fetcher)
    except UsageError as error:
        raise ListingFailed(str(error)) from error
    if listing.kind != run.source_kind:
        kinds = f"a {listing.kind}, no longer like a {run.source_kind}"
        raise ListingFailed(f"{run.location} looks like {kinds}: mend it")
    return listing


def _report(app: App, run_id: int) -> RunReport:
    with app.database.read() as tx:
        return report_run(tx, run_id)


def _conclude(app: App, report: RunReport) -> dict[str, Any]:
    with app.database.read() as tx:
        failures = list_failures(tx, report.run.id)
        run = read_run(tx, report.run.id)
    publish_summary(report, failures)
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items() if count)
    get_run_logger().info(
        "run %d %s: %s in %.1f s", run.id, run.status, counts or "no documents", report.seconds
    )
    if run.status is not RunStatus.FINISHED:
        raise PenstockError(f"run {run.id} ended as {run.status}: {run.error}")
    return report.as_json()
