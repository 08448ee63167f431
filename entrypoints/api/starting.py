"""Starts a run over HTTP: it is recorded here and processed by a Prefect worker."""

from collections.abc import Sequence

from entrypoints.api.prefect_runs import start_ingest
from penstock.app import App
from penstock.crawl.s3 import is_s3_location, parse_s3_location
from penstock.errors import PenstockError, UsageError
from penstock.runs.execute import open_source_run
from penstock.runs.lifecycle import abort_run, reopen_run
from penstock.runs.run import Run, RunStatus
from penstock.sources.catalogue import find_source
from penstock.sources.finder import is_web


class UnknownSource(UsageError):
    """The source of a request is not one that may be named over HTTP."""


def start_run(
    app: App,
    source: str,
    tenant_id: str,
    *,
    profile: str | None = None,
    force: bool = False,
    documents: Sequence[str] = (),
) -> tuple[Run, str]:
    """The run, and the id of the flow run that will do it."""
    _refuse_unnamed(app, source, tenant_id)
    run = open_source_run(
        app.sources, source, tenant_id, profile=profile, force=force, documents=documents
    )
    try:
        return run, start_ingest(run)
    except PenstockError as error:
        # One that was taken up again keeps its work for the next start.
        if run.status is RunStatus.PENDING:
            abort_run(app.database, app.queue, run.id, reason=f"it could not be started: {error}")
        raise


def resume_run(app: App, run_id: int) -> str:
    """The id of the flow run that goes on with it."""
    return start_ingest(reopen_run(app.database, run_id))


def _refuse_unnamed(app: App, source: str, tenant_id: str) -> None:
    """Callers over HTTP may not make the server read its own files, or buckets that its own keys
    open, unless the operator has named them."""
    if is_web(source) or _is_allowed(app, source, tenant_id):
        return
    with app.database.read() as tx:
        known = find_source(tx, tenant_id, source)
    if known is None or (known.kind == "s3" and known.name == known.location):
        raise UnknownSource(
            f"{source!r} is neither the name of a source nor a URL: folders of the server are "
            "added by its operator, with `penstock source add`, and so are places in S3, or they "
            "are named in PENSTOCK_API_S3_PREFIXES"
        )


def _is_allowed(app: App, source: str, tenant_id: str) -> bool:
    if not is_s3_location(source):
        return False
    return app.allowed_prefixes.allow(*parse_s3_location(source), tenant_id)
