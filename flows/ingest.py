"""Flow `ingest`: one source, from its listing to searchable records and exact counts."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.hooks import abort_cancelled_run, settle_run
from flows.opening import open_flow_app
from flows.parameters import AtLeastOne, TenantName, Text
from penstock.bootstrap import App, ensure_vector_index
from penstock.errors import ConfigurationError, ListingFailed, PenstockError, RunRefused, UsageError
from penstock.pipeline.drain import Drain
from penstock.runs.lifecycle import (
    abort_run,
    begin_ingesting,
    close_listing,
    drop_run,
    pause_run,
    read_run,
    renew_run,
    take_run,
    try_finalize,
)
from penstock.runs.report import RunReport, group_failures, report_run
from penstock.runs.slowest import list_slowest
from penstock.runs.vocabulary import RunLease, RunStatus
from penstock.sources.definition import SourceSettings
from penstock.store.patience import patient
from tasks.admission import Arrivals, admit_documents
from tasks.artifacts import ProgressArtifact, publish_summary
from tasks.labels import tag_flow_run
from tasks.loglines import shown_run_log
from tasks.results import forget_old_results
from tasks.steps import TaskSteps

# Failed documents that are shown of each class.
EXAMPLES = 20


def _run_name() -> str:
    parameters = flow_run.get_parameters() or {}
    run_id = parameters.get("run_id")
    what = parameters.get("source") or (f"run {run_id}" if run_id else "?")
    return f"ingest {what}"


@flow(
    name="ingest",
    flow_run_name=_run_name,
    on_completion=[settle_run],
    on_failure=[settle_run],
    on_crashed=[settle_run],
    on_cancellation=[abort_cancelled_run],
    persist_result=False,
)
def ingest(
    source: Text | None = None,
    tenant: TenantName = "default",
    profile: Text | None = None,
    force: bool = False,
    documents: list[Text] | None = None,
    run_id: AtLeastOne | None = None,
    blocks: list[str] | None = None,
) -> dict[str, Any]:
    """Discover → fetch → work items → process until they are done → finalize.

    Args:
        source: The name of a source, a folder, a file, a file of URLs, the URL of a site, sitemap,
            feed or job board, or s3://bucket/prefix.
        tenant: Whose documents these are.
        profile: The fields to extract (resume, job_posting, document); empty: by content.
        force: Process documents again even if they are unchanged.
        documents: Process these again even if they are unchanged (ids, URLs or node ids).
        run_id: Take up this recorded run instead of starting a new one.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        run_id = run_id or _open(
            app, source, tenant, profile=profile, force=force, documents=documents or []
        )
        with shown_run_log(), _taken(app, run_id) as lease, app.heart() as heart:
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


def _open(app: App, source: str | None, tenant: str, **wanted: Any) -> int:
    if not source:
        raise UsageError("name a source to ingest, or the run_id of a run to take up")
    return app.open_run(source, tenant, **wanted).id


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
    run, admission = lease.run, app.admission(lease)
    try:
        settings = SourceSettings.model_validate(run.settings)
        listing = app.sources.listing(run.source_kind, run.location, settings)
        for batch in admission.bring(listing.list()):
            admit_documents(Arrivals(admission, batch))
            drain.wake()
            drain.check()
            show_progress()
    except ListingFailed as failure:
        close_listing(app.database, lease, error=str(failure))
    else:
        close_listing(app.database, lease)


@patient
def _report(app: App, run_id: int) -> RunReport:
    with app.database.read() as tx:
        return report_run(tx, run_id)


def _conclude(app: App, report: RunReport) -> dict[str, Any]:
    with app.database.read() as tx:
        failures = group_failures(tx, report.run.id, examples=EXAMPLES)
        slowest = list_slowest(tx, report.run.id)
        run = read_run(tx, report.run.id)
    publish_summary(report, failures, slowest)
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items() if count)
    get_run_logger().info(
        "run %d %s: %s in %.1f s", run.id, run.status, counts or "no documents", report.seconds
    )
    if run.status is not RunStatus.FINISHED:
        raise PenstockError(f"run {run.id} ended as {run.status}: {run.error}")
    return report.as_json()
