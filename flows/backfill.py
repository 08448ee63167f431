"""Flow `backfill`: brings old nodes up to date, a bounded batch at a time, after all fresh work."""

import time
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.opening import open_flow_app
from flows.parameters import AtLeastOne, Days, TenantName, Text
from penstock.app import App
from penstock.backfill.backfill import (
    Backfill,
    BackfillStatus,
    Dispatcher,
    count_failed,
    dispatcher,
    finish_backfill,
    interruptible,
    interruptible_by,
    open_backfill,
    read_backfill,
    switch_vectors,
    undecided_canaries,
    waiting_for,
)
from penstock.backfill.canary import canary_work, open_canary
from penstock.backfill.canary_report import report_canary
from penstock.backfill.estimate import estimate
from penstock.backfill.selection import Selection, choose_nodes
from penstock.errors import PenstockError
from penstock.runs.up_to_date import Reason
from penstock.search.vectors import prepare_index
from penstock.store.retry import retry_while_unavailable
from tasks.artifacts import (
    backfill_progress,
    canary_progress,
    publish_canary,
    publish_end,
    publish_estimate,
)
from tasks.documents import TaskSteps, enqueue_nodes
from tasks.events import tag_flow_run

POLL_SECONDS = 0.5


def _run_name() -> str:
    parameters = flow_run.get_parameters() or {}
    whose = "all tenants" if parameters.get("all_tenants") else parameters.get("tenant")
    reasons = ", ".join(map(str, parameters.get("reasons") or [])) or "all reasons"
    return f"backfill {whose} {reasons}"


@flow(name="backfill", flow_run_name=_run_name)
def backfill(
    tenant: TenantName = "default",
    source: Text | None = None,
    reasons: list[Reason] | None = None,
    stale_days: Days | None = None,
    limit: AtLeastOne | None = None,
    dry_run: bool = False,
    canary: AtLeastOne | None = None,
    all_tenants: bool = False,
    blocks: list[str] | None = None,
) -> dict[str, Any]:
    """Select → dispatch batch by batch → process until its own items are done.

    A flow run that was killed is taken up by the next one with the same parameters.

    Args:
        tenant: Whose documents; not looked at with all_tenants.
        source: Only documents of this source.
        reasons: Why documents need work: outdated, unextracted, failed, vectors, extractor (another
            one made its fields), stale. Empty: all but extractor, stale only with stale_days.
        stale_days: Documents that were done longer ago than this are stale.
        limit: At most so many documents; the next run with the same limit does the next ones.
        dry_run: Count and estimate the cost; change nothing.
        canary: Extract a sample of so many documents beside their records, and change nothing else;
            `penstock backfill promote` or `discard` decides.
        all_tenants: Documents of all tenants.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        selection = choose_nodes(
            app,
            None if all_tenants else tenant,
            all_tenants=all_tenants,
            source=source,
            reasons=reasons,
            stale_days=stale_days,
            limit=limit,
        )
        tag_flow_run(f"tenant:{selection.tenant_id or '*'}", *_source_tags(selection))
        found = estimate(app, selection)
        get_run_logger().info("backfill of %s: %s", selection, found.as_json())
        if dry_run:
            publish_estimate(found)
            return found.as_json() | {"dry_run": True}
        if canary is not None:
            return _try(app, selection, canary)
        _warn_of_canaries(app, selection)
        record = open_backfill(app.database, selection)
        _work(app, dispatcher(app, record), record.enqueued + found.nodes)
        return _conclude(app, record)


def _warn_of_canaries(app: App, selection: Selection) -> None:
    with app.database.read() as tx:
        for one in undecided_canaries(tx, selection.tenant_id):
            get_run_logger().warning("%s", waiting_for(one.id))


def _source_tags(selection: Selection) -> list[str]:
    return [f"source:{selection.source}"] if selection.source else []


def _try(app: App, selection: Selection, size: int) -> dict[str, Any]:
    """Extract a sample, and say what would change and what it would cost to do it all."""
    canary = open_canary(app, selection, size)
    steps = TaskSteps(app.steps, f"canary {canary.id}", app.settings.extraction.version)
    work = canary_work(app, canary.id, steps)
    progress = canary_progress(app.database, canary.id)

    def interrupt() -> None:
        work.stop()
        app.cut_off()

    with interruptible_by(interrupt, work.stop):
        for _ in work.run():
            progress.refresh()
    progress.show()
    with app.database.read() as tx:
        found = report_canary(tx, canary).as_json()
    publish_canary(found)
    return found


def _work(app: App, dispatcher: Dispatcher, expected: int) -> None:
    """Enqueue, and process whatever is due, until all that was enqueued is done."""
    progress = backfill_progress(dispatcher, expected)
    with app.heartbeat() as heartbeat:
        prepare_index(app.database, app.embedder.identity)
        label = f"backfill {dispatcher.backfill_id}"
        steps = TaskSteps(app.steps, label, app.settings.extraction.version)
        worker = app.worker(app.processor(steps), heartbeat)
        worker.sweep()
        with (
            interruptible(worker),
            app.waker(worker.wake),
            worker.in_background(progress.refresh),
        ):
            exhausted = False
            while not exhausted or dispatcher.count_left():
                if not exhausted and dispatcher.has_room():
                    exhausted = enqueue_nodes(dispatcher).exhausted
                    worker.wake()
                else:
                    worker.check()
                    progress.refresh()
                    time.sleep(POLL_SECONDS)
            # Fresh work that came meanwhile is left to other workers.
            worker.stop()
    progress.show()


def _conclude(app: App, record: Backfill) -> dict[str, Any]:
    retry_while_unavailable(finish_backfill)(app.database, record.id)
    ended, failed = _read_end(app, record.id)
    vectors = None
    if ended.status is BackfillStatus.FINISHED and Reason.VECTORS in record.selection.reasons:
        vectors = switch_vectors(app)
    figures = ended.as_json() | {"failed": failed, "vectors": vectors}
    publish_end(figures)
    get_run_logger().info(
        "backfill %d %s: %d nodes, %d failed", ended.id, ended.status, ended.enqueued, failed
    )
    if ended.status is BackfillStatus.ABORTED:
        raise PenstockError(f"backfill {ended.id} was aborted")
    return figures


@retry_while_unavailable
def _read_end(app: App, backfill_id: int) -> tuple[Backfill, int]:
    with app.database.read() as tx:
        return read_backfill(tx, backfill_id), count_failed(tx, backfill_id)
