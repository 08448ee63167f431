"""The life of a run: open, take, pause, abort, finalize. Every step is guarded by its lease."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.errors import ConfigurationError, ErrorClass, NotFound, RunRefused, UsageError
from penstock.events import Event, record
from penstock.failpoints import hit
from penstock.llm.profiles import profile_named
from penstock.queue.configuration import (
    Configuration,
    read_configuration,
    record_configuration,
)
from penstock.queue.queue import WorkQueue
from penstock.runs.run import Change, DocumentStatus, Run, RunLease, RunStatus, SourceSpec
from penstock.store.database import Database, Tx
from penstock.store.retry import retry_after_deadlock, retry_while_unavailable
from penstock.store.schema import (
    ACTIVE_ITEM,
    ACTIVE_RUN,
    nodes,
    run_documents,
    runs,
    sources,
    work_items,
)


def expire_missing(tx: Tx, run: Run) -> int:
    """Mark as expired every node of the source that this run has not listed; how many."""
    # Not `NOT IN`: once the list outgrows its memory, Postgres reads all of it for every node.
    listed = sa.exists().where(
        run_documents.c.run_id == run.id, run_documents.c.external_id == nodes.c.external_id
    )
    gone = (
        sa.update(nodes)
        .where(nodes.c.source_id == run.source_id, nodes.c.expired_at.is_(None))
        .where(~listed)
        .values(expired_at=tx.now)
        .returning(nodes.c.id, nodes.c.external_id, nodes.c.url)
    )
    rows = [
        {
            "run_id": run.id,
            "external_id": row.external_id,
            "node_id": row.id,
            "url": row.url,
            "status": DocumentStatus.EXPIRED,
            "change": Change.REMOVED,
            "reason": "no longer listed by its source",
            "updated_at": tx.now,
        }
        for row in tx.execute(gone)
    ]
    if rows:
        tx.execute(sa.insert(run_documents), rows)
        record(tx, *[_expiry_event(run, row) for row in rows])
    return len(rows)


def _expiry_event(run: Run, row: dict[str, Any]) -> Event:
    return Event(
        run.tenant_id,
        "CRL",
        f"expired: {row['reason']}",
        run_id=run.id,
        node_id=row["node_id"],
        source=run.source_name,
        document=row["external_id"],
    )


# How long a recorded run waits for its flow before another start may take it up. If both come,
# the first to take the run works on it and the other is refused.
PENDING_SECONDS = 60.0


# How long a run whose flow died before all was listed waits to be taken up again, by Prefect.
RESTART_SECONDS = 120.0


class RunGone(RunRefused):
    """The run was aborted, finished or taken by another flow."""


def open_run(
    database: Database,
    spec: SourceSpec,
    *,
    profile: str | None,
    force: bool,
    forced: Sequence[str] = (),
) -> Run:
    """Record a new run of this source, or reopen the one that a crash or a pause left active."""
    if profile is not None:
        profile_named(profile)
    with database.write() as tx:
        source_id = _ensure_source(tx, spec)
        _lock_source(tx, source_id)
        active = _active_run(tx, source_id)
        wanted = {"profile": profile, "force": force, "forced": list(forced) or None}
        if active is None:
            return _insert_run(tx, spec, source_id, wanted)
        if active.lease_expires_at is None or active.lease_expires_at < tx.now:
            again = sa.update(runs).where(runs.c.id == active.id)
            tx.execute(again.values(wanted))
            run = read_run(tx, active.id)
            record(tx, _event(run, "taken up again"))
            return run
        raise RunRefused(
            f"run {active.id} of {spec.name} is {active.status} since "
            f"{active.created_at:%Y-%m-%d %H:%M:%S} UTC; wait for it (`penstock run {active.id}`) "
            f"or end it with `penstock runs abort {active.id}`",
            active.id,
        )


def reopen_run(database: Database, run_id: int) -> Run:
    """An active run that no flow works on, so that another may take it up."""
    with database.write() as tx:
        run = read_run(tx, run_id)
        if not run.status.active:
            raise RunGone(
                f"run {run_id} is {run.status}: there is nothing to resume; start a new one", run_id
            )
        held = sa.select(runs.c.id).where(runs.c.id == run_id, runs.c.lease_expires_at >= tx.now)
        if tx.execute(held).first():
            raise RunRefused(f"run {run_id} is {run.status} already, by another flow", run_id)
        record(tx, _event(run, "taken up again"))
    return run


def take_run(
    database: Database,
    run_id: int,
    *,
    lease_seconds: float,
    configuration: Configuration | None = None,
    flow_run_id: str | None = None,
) -> RunLease:
    """Become the one flow that writes to this run. Its work, also what is left of it, is to be done
    by `configuration` from now on; None: by any worker. `flow_run_id`: of Prefect, if a flow run
    does this; when it crashes, its run is found by it."""
    token = uuid.uuid4().hex
    with database.write() as tx:
        run = read_run(tx, run_id)
        if not run.status.active:
            raise RunGone(f"run {run_id} is {run.status} already; start a new one", run_id)
        if configuration is not None:
            _refuse_rules_for_models(run, read_configuration(tx, run.configuration), configuration)
        taken = (
            sa.update(runs)
            .where(runs.c.id == run_id, ACTIVE_RUN)
            .where(
                sa.or_(
                    runs.c.status == RunStatus.PENDING,
                    runs.c.lease_expires_at.is_(None),
                    runs.c.lease_expires_at < tx.now,
                )
            )
            .values(
                status=RunStatus.INITIALIZING,
                paused_reason=None,
                started_at=sa.func.coalesce(runs.c.started_at, tx.now),
                listed_at=None,
                flow_run_id=flow_run_id,
                lease_token=token,
                lease_expires_at=tx.now + timedelta(seconds=lease_seconds),
            )
        )
        if tx.execute(taken).rowcount != 1:
            raise RunGone(f"run {run_id} is being worked on by another flow", run_id)
        if configuration is not None:
            _assign(tx, run, configuration)
        return RunLease(read_run(tx, run_id), token)


def _refuse_rules_for_models(
    run: Run, before: Configuration | None, configuration: Configuration
) -> None:
    if before is not None and before.asks_models and not configuration.asks_models:
        blocks = f" and the blocks {', '.join(before.blocks)}" if before.blocks else ""
        raise ConfigurationError(
            f"run {run.id} was begun with the models {before.extractor}{blocks}, and this process "
            f"has no key for models: set GROQ_API_KEY or name the blocks, or end the run with "
            f"`penstock runs abort {run.id}` and start it anew"
        )


def _assign(tx: Tx, run: Run, configuration: Configuration) -> None:
    """Have all work of the run that is left done by this configuration."""
    key = record_configuration(tx, configuration)
    if key == run.configuration:
        return
    tx.execute(sa.update(runs).where(runs.c.id == run.id).values(configuration=key))
    left = sa.update(work_items).where(work_items.c.run_id == run.id, ACTIVE_ITEM)
    tx.execute(left.values(requires=key))
    if run.configuration is not None:
        record(
            tx, _event(run, f"goes on with another configuration: {configuration}", level="WARNING")
        )


def renew_run(tx: Tx, lease: RunLease, lease_seconds: float) -> None:
    """Extend the lease. A lost one is no error here: the next guarded write raises RunGone."""
    expiry = tx.now + timedelta(seconds=lease_seconds)
    tx.execute(sa.update(runs).where(_held(lease)).values(lease_expires_at=expiry))


def guard(tx: Tx, lease: RunLease) -> None:
    """Raise RunGone unless the lease still holds the run; locks the run until the commit."""
    tx.execute(sa.select(runs.c.id).where(_held(lease)).with_for_update())
    guard_reading(tx, lease)


def guard_reading(tx: Tx, lease: RunLease) -> None:
    """Raise RunGone unless the lease still holds the run; takes no lock."""
    if tx.execute(sa.select(runs.c.id).where(_held(lease))).first() is None:
        status = read_run(tx, lease.run.id).status
        raise RunGone(
            f"run {lease.run.id} is {status}: another flow holds it, or it has ended", lease.run.id
        )


@retry_while_unavailable
def begin_ingesting(database: Database, lease: RunLease, max_failed: float | None = None) -> None:
    """Set the run to `ingesting`: its source is being listed. It fails when more than the share
    `max_failed` of its documents does, or all of them."""
    values = {"status": RunStatus.INGESTING, "max_failed": max_failed}
    _write_guarded(database, lease, values)


@retry_while_unavailable
def close_listing(database: Database, lease: RunLease, *, error: str | None = None) -> None:
    """Record the end of the listing. Only a successful one expires documents that are gone."""
    with database.write() as tx:
        guard(tx, lease)
        if error is None:
            expired = expire_missing(tx, lease.run)
            listed = sum(count_documents(tx, lease.run.id).values()) - expired
            record(tx, _event(lease.run, f"listed: {listed} documents, {expired} gone"))
        else:
            record(tx, _event(lease.run, error, level="ERROR"))
        values = {"listed_at": tx.now, "error": error}
        tx.execute(sa.update(runs).where(runs.c.id == lease.run.id).values(values))


@retry_while_unavailable
def pause_run(database: Database, lease: RunLease, reason: str) -> None:
    """Pause the run with a reason and release its lease: any flow may resume it."""
    values = {"paused_reason": reason, "lease_token": None, "lease_expires_at": None}
    _write_guarded(database, lease, values, _event(lease.run, f"paused: {reason}", level="ERROR"))


def pause_interrupted(database: Database, lease: RunLease) -> None:
    """Pause a run whose flow is being stopped."""
    pause_run(database, lease, _interrupted(lease.run.id))


def pause_unheld(database: Database, run_id: int) -> None:
    """Pause a run that no flow has taken yet, or whose flow has released it."""
    reason = _interrupted(run_id)
    with database.write() as tx:
        free = sa.or_(runs.c.status == RunStatus.PENDING, runs.c.lease_expires_at <= tx.now)
        unheld = sa.and_(runs.c.id == run_id, ACTIVE_RUN, runs.c.paused_reason.is_(None), free)
        paused = {"paused_reason": reason, "lease_token": None, "lease_expires_at": None}
        if tx.execute(sa.update(runs).where(unheld).values(paused)).rowcount:
            record(tx, _event(read_run(tx, run_id), f"paused: {reason}", level="ERROR"))


def note_pause(database: Database, run_id: int, reason: str, *, unheld: bool = False) -> None:
    """Record why an active run does not go on; its lease stays as it is. With `unheld`, only if no
    flow holds the run: that one may be able to go on."""
    with database.write() as tx:
        other = runs.c.paused_reason.is_distinct_from(reason)
        noted = sa.update(runs).where(runs.c.id == run_id, ACTIVE_RUN, other)
        if unheld:
            expiry = runs.c.lease_expires_at
            noted = noted.where(sa.or_(expiry.is_(None), expiry <= tx.now))
        if tx.execute(noted.values(paused_reason=reason)).rowcount:
            record(tx, _event(read_run(tx, run_id), f"paused: {reason}", level="ERROR"))


@retry_while_unavailable
def drop_run(database: Database, lease: RunLease, reason: str) -> None:
    """Release a run without ending it: its work stays, and the next start resumes it."""
    with database.write() as tx:
        dropped = sa.update(runs).where(_held(lease)).values(lease_expires_at=tx.now)
        tx.execute(dropped)
        record(tx, _event(lease.run, f"stopped: {reason}", level="ERROR"))


def release_run(database: Database, run_id: int, flow_run_id: str) -> None:
    """Release the lease of a flow run that ended without ending its run."""
    with database.write() as tx:
        left = sa.and_(runs.c.id == run_id, runs.c.flow_run_id == flow_run_id, ACTIVE_RUN)
        held = sa.and_(left, runs.c.lease_token.is_not(None))
        tx.execute(sa.update(runs).where(held).values(lease_expires_at=tx.now))


@retry_after_deadlock
def abort_run(database: Database, queue: WorkQueue, run_id: int, *, reason: str) -> Run:
    """End a run now: unfinished documents stay counted as pending, their work is cancelled."""
    with database.write() as tx:
        tx.execute(sa.select(runs.c.id).where(runs.c.id == run_id).with_for_update())
        run = read_run(tx, run_id)
        if not run.status.active:
            raise UsageError(f"run {run_id} is {run.status} already and cannot be aborted")
        # A worker in the middle of a commit may open the next stage while we wait for it.
        while _has_work(tx, run_id):
            queue.cancel(tx, work_items.c.run_id == run_id)
        _end(tx, run, RunStatus.ABORTED, error=reason)
        return read_run(tx, run_id)


@retry_while_unavailable
def try_finalize(database: Database, run_id: int) -> bool:
    """Finish the run if nothing is left to do; True for the one caller that did it.

    Runs in a transaction of its own, after the last document's was committed: two workers that
    finish together each see the other's document, and the guarded update lets one of them win.
    """
    with database.write() as tx:
        columns = (runs.c.error, runs.c.max_failed)
        row = tx.execute(sa.select(*columns).where(_finalizable(run_id)).with_for_update()).first()
        if row is None or _has_pending(tx, run_id):
            return False
        error = row.error or _too_many_failed(tx, run_id, row.max_failed)
        status = RunStatus.FINISHED if error is None else RunStatus.ERROR
        hit("run.unfinalized")
        return _end(tx, read_run(tx, run_id), status, error=error)


def _too_many_failed(tx: Tx, run_id: int, max_failed: float | None) -> str | None:
    """Why the run itself has failed; None if enough of its documents have not."""
    counts = count_documents(tx, run_id)
    failed = counts[DocumentStatus.ERROR]
    listed = failed + counts[DocumentStatus.READY] + counts[DocumentStatus.SKIPPED]
    if not failed or (
        failed < listed and failed / listed <= (1.0 if max_failed is None else max_failed)
    ):
        return None
    return f"{failed:,} of {listed:,} documents failed ({name_failures(tx, run_id)})"


def name_outcome(
    tx: Tx, run_id: int, counts: Mapping[DocumentStatus, int], *, doubtful: int = 0, reused: int = 0
) -> str:
    """What became of a run's documents, in the same words everywhere: "4 ready, 1 needs review,
    3 failed (corruption 3)"."""
    failed = counts[DocumentStatus.ERROR]
    named = [
        (counts[DocumentStatus.READY], "ready"),
        (doubtful, "needs review" if doubtful == 1 else "need review"),
        (failed, f"failed ({name_failures(tx, run_id)})" if failed else ""),
        (counts[DocumentStatus.SKIPPED], "unchanged"),
        (counts[DocumentStatus.EXPIRED], "gone"),
        (counts[DocumentStatus.PENDING], "not done"),
        (reused, "reused"),
    ]
    return ", ".join(f"{count:,} {name}" for count, name in named if count) or "no documents"


def name_failures(tx: Tx, run_id: int) -> str:
    """The failures of a run by class, the most frequent first: "corruption 2, timeout 1"."""
    c = run_documents.c
    counted = (
        sa.select(c.error_class, sa.func.count().label("documents"))
        .where(c.run_id == run_id, c.status == DocumentStatus.ERROR)
        .group_by(c.error_class)
    )
    found = sorted(tx.execute(counted), key=lambda row: (-row.documents, row.error_class or ""))
    return ", ".join(f"{row.error_class or ErrorClass.UNKNOWN} {row.documents:,}" for row in found)


def close_workless(database: Database, run_id: int) -> int:
    """Mark pending documents of a listed run that have no work item (deleted by hand, perhaps) as
    errors, so that the run can end; the next run retries them. Returns how many."""
    c = run_documents.c
    with database.write() as tx:
        over = sa.or_(runs.c.listed_at.is_not(None), runs.c.lease_expires_at < _too_late(tx))
        left = sa.select(runs.c.id).where(runs.c.id == run_id, ACTIVE_RUN, over)
        if tx.execute(left.with_for_update()).first() is None or _has_work(tx, run_id):
            return 0
        waiting = sa.update(run_documents).where(
            c.run_id == run_id, c.status == DocumentStatus.PENDING
        )
        ended = {
            "status": DocumentStatus.ERROR,
            "error_class": ErrorClass.UNKNOWN,
            "reason": "its work item is gone; the next run takes it up",
            "updated_at": tx.now,
        }
        return tx.execute(waiting.values(ended)).rowcount


def fail_abandoned(database: Database, run_id: int) -> bool:
    """End a run whose flow never started, or died while listing."""
    reason = "its flow ended before the source was listed; start the run again"
    with database.write() as tx:
        row = tx.execute(sa.select(runs).where(runs.c.id == run_id).with_for_update()).one()
        expired = row.lease_expires_at is not None and row.lease_expires_at < _too_late(tx)
        if row.listed_at is not None or not expired or _has_pending(tx, run_id):
            return False
        return _end(tx, read_run(tx, run_id), RunStatus.ERROR, error=reason)


def _too_late(tx: Tx) -> datetime:
    """A run that is not listed and whose lease ended before this is not taken up any more."""
    return tx.now - timedelta(seconds=RESTART_SECONDS)


def read_run(tx: Tx, run_id: int, tenant_id: str | None = None) -> Run:
    query = select_runs().where(runs.c.id == run_id)
    if tenant_id is not None:
        query = query.where(runs.c.tenant_id == tenant_id)
    row = tx.execute(query).first()
    if row is None:
        raise NotFound(f"there is no run {run_id}; `penstock runs` lists them")
    return run_from(row)


def run_of_flow(database: Database, flow_run_id: str) -> Run | None:
    """The run that a Prefect flow run belongs to; the last one, if it was started again after its
    first was given up."""
    query = select_runs().where(runs.c.flow_run_id == flow_run_id).order_by(runs.c.id.desc())
    with database.read() as tx:
        row = tx.execute(query).first()
        return None if row is None else run_from(row)


def select_runs() -> sa.Select[Any]:
    names = (sources.c.name.label("source_name"), sources.c.kind.label("source_kind"))
    return sa.select(runs, *names, sources.c.location, sources.c.settings).join(sources)


def run_from(row: sa.Row[Any]) -> Run:
    names = Run.__dataclass_fields__
    values = {name: getattr(row, name) for name in names} | {"status": RunStatus(row.status)}
    return Run(**values)


def count_documents(tx: Tx, run_id: int) -> dict[DocumentStatus, int]:
    """Documents of a run by status; every status is there."""
    counted = (
        sa.select(run_documents.c.status, sa.func.count().label("documents"))
        .where(run_documents.c.run_id == run_id)
        .group_by(run_documents.c.status)
    )
    found = {row.status: row.documents for row in tx.execute(counted)}
    return {status: found.get(status, 0) for status in DocumentStatus}


def count_for_review(tx: Tx, run_id: int) -> int:
    """Documents that this run made ready and that need review."""
    c = run_documents.c
    flagged = sa.select(sa.func.count()).where(c.run_id == run_id, c.needs_review)
    return int(tx.execute(flagged).scalar_one())


def _interrupted(run_id: int) -> str:
    return f"interrupted; `penstock resume {run_id}` goes on with it"


def _write_guarded(
    database: Database, lease: RunLease, values: dict[str, Any], *events: Event
) -> None:
    with database.write() as tx:
        guard(tx, lease)
        tx.execute(sa.update(runs).where(runs.c.id == lease.run.id).values(values))
        record(tx, *events)


def _end(tx: Tx, run: Run, status: RunStatus, *, error: str | None) -> bool:
    counts = count_documents(tx, run.id)
    ended = (
        sa.update(runs)
        .where(runs.c.id == run.id, ACTIVE_RUN)
        .values(
            status=status,
            error=error,
            paused_reason=None,
            finished_at=tx.now,
            lease_token=None,
            lease_expires_at=None,
            needs_review=count_for_review(tx, run.id),
            **_count_columns(counts),
        )
    )
    if tx.execute(ended).rowcount != 1:
        return False
    record(tx, _event(run, f"{status}: {name_outcome(tx, run.id, counts)}"))
    return True


def count_column(status: DocumentStatus) -> str:
    """The column of `runs` that keeps the final count of a status."""
    return "error_count" if status is DocumentStatus.ERROR else status.value


def _count_columns(counts: Mapping[DocumentStatus, int]) -> dict[str, int]:
    return {count_column(status): count for status, count in counts.items()}


def _finalizable(run_id: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        runs.c.id == run_id,
        runs.c.status == RunStatus.INGESTING,
        runs.c.listed_at.is_not(None),
    )


def _has_pending(tx: Tx, run_id: int) -> bool:
    pending = run_documents.c.status == DocumentStatus.PENDING
    query = sa.select(sa.literal(1)).where(run_documents.c.run_id == run_id, pending).limit(1)
    return tx.execute(query).first() is not None


def _has_work(tx: Tx, run_id: int) -> bool:
    query = sa.select(sa.literal(1)).where(work_items.c.run_id == run_id, ACTIVE_ITEM).limit(1)
    return tx.execute(query).first() is not None


def _held(lease: RunLease) -> sa.ColumnElement[bool]:
    return sa.and_(runs.c.id == lease.run.id, runs.c.lease_token == lease.token, ACTIVE_RUN)


def _ensure_source(tx: Tx, spec: SourceSpec) -> int:
    row = {
        "tenant_id": spec.tenant_id,
        "name": spec.name,
        "kind": spec.kind,
        "location": spec.location,
        "created_at": tx.now,
    }
    insert = tx.insert(sources).values(row)
    back = {"location": insert.excluded.location, "removed_at": None}
    known = insert.on_conflict_do_update(index_elements=["tenant_id", "name"], set_=back)
    found = tx.execute(known.returning(sources.c.id, sources.c.kind)).one()
    if found.kind != spec.kind:
        # Listed as another kind, all its documents would look removed.
        raise UsageError(
            f"{spec.name} was ingested as a {found.kind} before and now looks like a {spec.kind}: "
            "fix its location, or give the new source another name"
        )
    return int(found.id)


def _lock_source(tx: Tx, source_id: int) -> None:
    """Serialize two starts of the same source."""
    tx.execute(sa.select(sources.c.id).where(sources.c.id == source_id).with_for_update())


def _active_run(tx: Tx, source_id: int) -> sa.Row[Any] | None:
    return tx.execute(sa.select(runs).where(runs.c.source_id == source_id, ACTIVE_RUN)).first()


def _insert_run(tx: Tx, spec: SourceSpec, source_id: int, wanted: dict[str, Any]) -> Run:
    row = wanted | {
        "tenant_id": spec.tenant_id,
        "source_id": source_id,
        "status": RunStatus.PENDING,
        "created_at": tx.now,
        "lease_expires_at": tx.now + timedelta(seconds=PENDING_SECONDS),
    }
    run_id: int = tx.execute(sa.insert(runs).values(row).returning(runs.c.id)).scalar_one()
    run = read_run(tx, run_id)
    record(tx, _event(run, f"run of {spec.name} recorded"))
    return run


def _event(run: Run, message: str, *, level: Any = "INFO") -> Event:
    return Event(run.tenant_id, "ING", message, level=level, run_id=run.id, source=run.source_name)
