"""Flow `backfill`: brings old nodes up to date, a bounded batch at a time, after all fresh work."""

import time
from collections.abc import Callable
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.opening import open_flow_app
from flows.parameters import AtLeastOne, Days, TenantName, Text
from penstock.backfill.dispatcher import Dispatcher
from penstock.backfill.record import (
    Backfill,
    BackfillStatus,
    count_failed,
    finish_backfill,
    open_backfill,
)
from penstock.backfill.selection import Reason, Selection
from penstock.bootstrap import App, ensure_vector_index
from penstock.bootstrap.backfills import choose_nodes, dispatcher, estimate, switch_vectors
from penstock.errors import PenstockError
from penstock.pipeline.drain import Drain
from penstock.store.patience import patient
from tasks.backfill_artifacts import BackfillProgress, publish_end, publish_estimate
from tasks.dispatching import NextBatch, dispatch_nodes
from tasks.labels import tag_flow_run
from tasks.results import forget_old_results
from tasks.steps import TaskSteps

LOOK_SECONDS = 0.5


def _run_name() -> str:
    parameters = flow_run.get_parameters() or {}
    whose = "all tenants" if parameters.get("all_tenants") else parameters.get("tenant")
    reasons = ", ".join(map(str, parameters.get("reasons") or [])) or "all reasons"
    return f"backfill {whose} {reasons}"


@flow(name="backfill", flow_run_name=_run_name, persist_result=False)
def backfill(
    tenant: TenantName = "default",
    source: Text | None = None,
    reasons: list[Reason] | None = None,
    stale_days: Days | None = None,
    limit: AtLeastOne | None = None,
    dry_run: bool = False,
    all_tenants: bool = False,
    blocks: list[str] | None = None,
) -> dict[str, Any]:
    """Select → dispatch batch by batch → process until its own items are done.

    A flow run that was killed is taken up by the next one with the same parameters.

    Args:
        tenant: Whose documents; not looked at with all_tenants.
        source: Only documents of this source.
        reasons: Why documents need work: outdated, unextracted, failed, vectors, stale. Empty: all
            of them, stale only with stale_days.
        stale_days: Documents that were done longer ago than this are stale.
        limit: At most so many documents; the next run with the same limit does the next ones.
        dry_run: Count and estimate the cost; change nothing.
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
        record = open_backfill(app.database, selection)
        _work(app, dispatcher(app, record), record.enqueued + found.nodes)
        return _conclude(app, record)


def _source_tags(selection: Selection) -> list[str]:
    return [f"source:{selection.source}"] if selection.source else []


def _work(app: App, dispatching: Dispatcher, expected: int) -> None:
    """Dispatch, and help with whatever is due, until all that was dispatched is done."""
    progress = BackfillProgress(dispatching.backfill_id, expected)

    def show_progress() -> None:
        if progress.due():
            progress.show(dispatching.read().enqueued, dispatching.count_left())

    with app.heart() as heart:
        ensure_vector_index(app)
        app.try_recover()
        steps = TaskSteps(app.steps, f"backfill {dispatching.backfill_id}")
        drain = app.drain(app.processor(steps, observer=heart), heart)
        with app.waker(drain.wake), drain.beside(show_progress):
            _dispatch_all(dispatching, drain, show_progress)
            while dispatching.count_left():
                _wait(drain, show_progress)
            # What is fresh meanwhile is others' to do.
            drain.stop()
    progress.show(dispatching.read().enqueued, dispatching.count_left())


def _dispatch_all(dispatching: Dispatcher, drain: Drain, show_progress: Callable[[], None]) -> None:
    while True:
        if not dispatching.has_room():
            _wait(drain, show_progress)
            continue
        if dispatch_nodes(NextBatch(dispatching)).exhausted:
            return
        drain.wake()


def _wait(drain: Drain, show_progress: Callable[[], None]) -> None:
    drain.check()
    show_progress()
    time.sleep(LOOK_SECONDS)


def _conclude(app: App, record: Backfill) -> dict[str, Any]:
    patient(finish_backfill)(app.database, record.id)
    ended, failed = _read_end(app, record.id)
    vectors = None
    if ended.status is BackfillStatus.FINISHED and Reason.VECTORS in record.selection.reasons:
        vectors = switch_vectors(app)
    forget_old_results()
    figures = ended.as_json() | {"failed": failed, "vectors": vectors}
    publish_end(figures)
    get_run_logger().info(
        "backfill %d %s: %d nodes, %d failed", ended.id, ended.status, ended.enqueued, failed
    )
    if ended.status is BackfillStatus.ABORTED:
        raise PenstockError(f"backfill {ended.id} was aborted")
    return figures


@patient
def _read_end(app: App, backfill_id: int) -> tuple[Backfill, int]:
    from penstock.backfill.record import read_backfill

    with app.database.read() as tx:
        return read_backfill(tx, backfill_id), count_failed(tx, backfill_id)
