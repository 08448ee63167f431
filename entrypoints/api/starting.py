"""A run that somebody asks for over HTTP: recorded here, done by a Prefect worker."""

from collections.abc import Sequence

from entrypoints.api.prefect_runs import start_ingest
from penstock.bootstrap import App
from penstock.crawl.source import is_remote
from penstock.errors import PenstockError, UsageError
from penstock.runs.lifecycle import abort_run
from penstock.runs.vocabulary import Run, RunStatus
from penstock.sources.catalogue import find_source


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
    _refuse_local(app, source, tenant_id)
    run = app.open_run(source, tenant_id, profile=profile, force=force, documents=documents)
    try:
        return run, start_ingest(run)
    except PenstockError as error:
        # One that was taken up again keeps its work for the next start.
        if run.status is RunStatus.PENDING:
            abort_run(app.database, app.queue, run.id, reason=f"it could not be started: {error}")
        raise


def _refuse_local(app: App, source: str, tenant_id: str) -> None:
    """Whoever asks over HTTP may not have the server look at files of its own machine."""
    if is_remote(source):
        return
    with app.database.read() as tx:
        known = find_source(tx, tenant_id, source)
    if known is None:
        raise UsageError(
            f"{source!r} is neither the name of a source nor a URL: folders of the server are "
            "added by its operator, with `penstock source add`"
        )
