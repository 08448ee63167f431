"""Flow `ingest`: one source, from its listing to searchable records and exact counts."""

from functools import partial
from typing import Any, cast

from prefect import flow
from prefect.runtime import flow_run

from flows import hooks
from flows.opening import open_flow_app
from flows.parameters import AtLeastOne, Share, TenantName, Text
from penstock.runs.execute import execute_run, list_source, open_source_run
from penstock.runs.lifecycle import try_finalize
from penstock.search.vectors import prepare_index
from tasks.artifacts import run_progress
from tasks.documents import TaskSteps, admit_documents
from tasks.events import shown_run_log, tag_flow_run


def _run_name() -> str:
    return f"ingest {(flow_run.get_parameters() or {}).get('source', '?')}"


@flow(
    name="ingest",
    flow_run_name=_run_name,
    on_completion=[hooks.settle_run],
    on_failure=[hooks.settle_run],
    on_crashed=[hooks.settle_run],
    on_cancellation=[hooks.abort_cancelled_run],
)
def ingest(
    source: Text,
    tenant: TenantName = "default",
    profile: Text | None = None,
    force: bool = False,
    documents: list[Text] | None = None,
    run_id: AtLeastOne | None = None,
    max_failed: Share | None = None,
    blocks: list[str] | None = None,
) -> dict[str, Any]:
    """Discover → fetch → extract text → extract fields → embed → finalize; the run's figures.

    Args:
        source: The name of a source, a folder, a file, a file of URLs, the URL of a site, sitemap,
            feed or job board, or s3://bucket/prefix.
        tenant: Whose documents these are.
        profile: The fields to extract (resume, job_posting, document); empty: by content.
        force: Process documents again even if they are unchanged.
        documents: Process these again even if they are unchanged (ids, URLs or node ids).
        run_id: Take up this recorded run of the source instead of starting a new one.
        max_failed: Fail when more than this share of the documents does; empty: when all do.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    wanted: dict[str, Any] = {"profile": profile, "force": force, "documents": documents or []}
    with open_flow_app(blocks, run_id) as app, shown_run_log():
        app.warm_up()
        if done := hooks.conclude_ended(app):
            return cast(dict[str, Any], done)
        run = open_source_run(app.sources, source, tenant, run_id=run_id, **wanted)
        with hooks.told_if_stopped(app, run.id), app.hold_run(run.id, flow_run.get_id()) as held:
            hooks.replace_suspended(run)
            tag_flow_run(f"tenant:{held.run.tenant_id}", f"source:{held.run.source_name}")
            prepare_index(app.database, app.embedder.identity)
            progress = run_progress(app.database, held.run)
            admission = app.admission(held.lease)
            steps = TaskSteps(app.steps, f"run {run.id}", app.settings.extraction.version)
            execute_run(
                held,
                discover=partial(list_source, app.sources, held.run),
                fetch=admission.fetch_batches,
                admit=partial(admit_documents, admission),
                worker=app.run_worker(held, steps),
                finalize=try_finalize,
                on_progress=progress.refresh,
                max_failed=app.settings.max_failed if max_failed is None else max_failed,
            )
            progress.show()
        return cast(dict[str, Any], hooks.conclude_run(app, run.id))
