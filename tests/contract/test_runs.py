"""A run from its opening to its one ending, whoever dies on the way."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import ErrorClass, NotFound, RunRefused, StoreConflict, UsageError
from penstock.pipeline.stage import close_documents
from penstock.queue.items import Claim, ItemPayload, ItemStatus, Outcome
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.recovery import recover
from penstock.runs.lifecycle import (
    PENDING_SECONDS,
    RESTART_SECONDS,
    RunGone,
    abort_run,
    begin_ingesting,
    close_listing,
    drop_run,
    fail_abandoned,
    guard,
    open_run,
    pause_run,
    read_run,
    renew_run,
    run_of_flow,
    take_run,
    try_finalize,
)
from penstock.runs.report import (
    DocumentLine,
    OutcomeFilter,
    list_documents,
    page_documents,
    report_run,
)
from penstock.runs.run import Change, DocumentStatus, Run, RunLease, RunStatus, SourceSpec
from penstock.store.database import Database, Tx
from penstock.store.schema import events, nodes, run_documents, runs, work_items
from tests.factories import TENANT, add_node, make_fault, make_item, read_rows, somebody_waits
from tests.together import run_together, wait_until

pytestmark = pytest.mark.both_databases

QUEUE = WorkQueue(default_rules())


def make_spec(name: str = "careers", tenant_id: str = TENANT) -> SourceSpec:
    return SourceSpec(tenant_id, name, "folder", f"/{name}")


def failures(tx: Tx, run_id: int) -> list[DocumentLine]:
    return page_documents(tx, OutcomeFilter(run_id, DocumentStatus.ERROR), 100)


def start_run(database: Database, name: str = "careers") -> RunLease:
    """A run that is listing its source."""
    run = open_run(database, make_spec(name), profile=None, force=False)
    lease = take_run(database, run.id, lease_seconds=60, flow_run_id=f"flow of {name}")
    begin_ingesting(database, lease)
    return lease


def add_documents(
    database: Database,
    lease: RunLease,
    *names: str,
    status: DocumentStatus = DocumentStatus.PENDING,
) -> None:
    """Documents of this run with their nodes; pending ones with work to do."""
    run = lease.run
    with database.write() as tx:
        ids = {
            name: add_node(tx, source_id=run.source_id, external_id=name, tenant_id=run.tenant_id)
            for name in names
        }
        rows = [
            {
                "run_id": run.id,
                "external_id": name,
                "node_id": node_id,
                "status": status,
                "change": Change.NEW,
                "updated_at": tx.now,
            }
            for name, node_id in ids.items()
        ]
        tx.execute(sa.insert(run_documents), rows)
        if status is DocumentStatus.PENDING:
            items = [
                make_item(node_id, Stage.EMBED, run_id=run.id, payload=ItemPayload(name))
                for name, node_id in ids.items()
            ]
            QUEUE.enqueue(tx, items)


def list_again(database: Database, lease: RunLease, *names: str) -> None:
    """The source lists documents whose nodes are there already."""
    with database.write() as tx:
        rows = [
            {
                "run_id": lease.run.id,
                "external_id": name,
                "status": DocumentStatus.SKIPPED,
                "change": Change.SAME,
                "updated_at": tx.now,
            }
            for name in names
        ]
        tx.execute(sa.insert(run_documents), rows)


def claim_all(database: Database, run_id: int, limit: int = 64) -> Claim:
    with database.write() as tx:
        return QUEUE.claim(tx, "worker", run_id=run_id, limit=limit)


def finish(database: Database, claim: Claim) -> list[str]:
    """Complete and close what is still ours, as the last stage does."""
    with database.write() as tx:
        ours = QUEUE.complete(tx, claim, claim.items, Outcome.DONE)
        close_documents(tx, ours)
    return [item.document for item in ours]


def expire_lease(database: Database, run_id: int) -> None:
    """As if the flow that holds the run had died a while ago, and was not started again."""
    with database.write() as tx:
        ago = tx.now - timedelta(seconds=RESTART_SECONDS + 1)
        tx.execute(sa.update(runs).where(runs.c.id == run_id).values(lease_expires_at=ago))


def run_of(database: Database, run_id: int) -> Run:
    with database.read() as tx:
        return read_run(tx, run_id)


def counts_of(database: Database, run_id: int) -> dict[str, int]:
    """The counts a run was finalized with, those that are not zero."""
    c = runs.c
    columns = (c.ready, c.skipped, c.error_count, c.expired, c.pending)
    with database.read() as tx:
        row = tx.execute(sa.select(*columns).where(c.id == run_id)).one()
        told = report_run(tx, run_id).counts
    counts = {name.removesuffix("_count"): count for name, count in row._mapping.items()}
    assert counts == {status.value: count for status, count in told.items()}
    return {name: count for name, count in counts.items() if count}


def messages_of(database: Database, run_id: int) -> list[str]:
    query = sa.select(events.c.message).where(events.c.run_id == run_id).order_by(events.c.seq)
    with database.read() as tx:
        return list(tx.execute(query).scalars())


def recover_now(database: Database) -> tuple[int, ...]:
    return recover(database, QUEUE).finished_runs


# Opening and taking


def test_a_new_run_waits_for_a_flow_to_take_it(database: Database) -> None:
    run = open_run(database, make_spec(), profile="resume", force=True)
    assert (run.status, run.profile, run.force) == (RunStatus.PENDING, "resume", True)
    lease = take_run(database, run.id, lease_seconds=60, flow_run_id="flow")
    assert run_of(database, run.id).status is RunStatus.INITIALIZING
    assert run_of_flow(database, "flow") == run_of(database, run.id)
    begin_ingesting(database, lease)
    assert run_of(database, run.id).status is RunStatus.INGESTING


def test_a_flow_that_began_anew_after_its_run_was_given_up_belongs_to_the_new_one(
    database: Database,
) -> None:
    first = start_run(database)
    expire_lease(database, first.run.id)
    assert fail_abandoned(database, first.run.id)

    second = start_run(database)

    assert run_of_flow(database, "flow of careers") == run_of(database, second.run.id)


def test_a_second_run_of_a_source_is_refused_by_name(database: Database) -> None:
    lease = start_run(database)
    with pytest.raises(RunRefused, match=rf"run {lease.run.id} of careers is ingesting") as refusal:
        open_run(database, make_spec(), profile=None, force=False)
    assert refusal.value.active_run_id == lease.run.id
    assert f"penstock runs abort {lease.run.id}" in str(refusal.value)


def test_a_run_that_waits_for_its_flow_is_not_opened_twice(database: Database) -> None:
    open_run(database, make_spec(), profile=None, force=False)
    with pytest.raises(RunRefused, match="is pending"):
        open_run(database, make_spec(), profile=None, force=False)


def test_other_sources_and_tenants_run_beside_it(database: Database) -> None:
    first = start_run(database).run.id
    second = open_run(database, make_spec("papers"), profile=None, force=False).id
    third = open_run(database, make_spec(tenant_id="globex"), profile=None, force=False).id
    assert len({first, second, third}) == 3


def test_starts_at_once_of_one_source_make_one_run(database: Database) -> None:
    def start(_: int) -> int | None:
        try:
            return open_run(database, make_spec(), profile=None, force=False).id
        except RunRefused:
            return None

    opened = [run_id for run_id in run_together(6, start) if run_id is not None]
    assert len(opened) == 1


def test_one_flow_alone_takes_a_run(database: Database) -> None:
    run = open_run(database, make_spec(), profile=None, force=False)

    def take(_: int) -> RunLease | None:
        try:
            return take_run(database, run.id, lease_seconds=60)
        except RunGone:
            return None

    assert len([lease for lease in run_together(6, take) if lease]) == 1


def test_a_run_whose_flow_died_is_taken_up_and_the_dead_flow_fenced(database: Database) -> None:
    dead = start_run(database)
    add_documents(database, dead, "a")
    expire_lease(database, dead.run.id)
    again = open_run(database, make_spec(), profile=None, force=False)
    assert again.id == dead.run.id
    lease = take_run(database, again.id, lease_seconds=60)
    with pytest.raises(RunGone, match="another flow holds it"):
        close_listing(database, dead)
    with pytest.raises(RunGone, match="another flow holds it"):
        pause_run(database, dead, "late")
    drop_run(database, dead, "late")
    with database.write() as tx:
        guard(tx, lease)
    assert claim_all(database, lease.run.id)


def test_a_pending_run_that_no_flow_took_is_opened_again(database: Database) -> None:
    run = open_run(database, make_spec(), profile=None, force=False)
    with database.write() as tx:
        past = tx.now - timedelta(seconds=PENDING_SECONDS)
        tx.execute(sa.update(runs).values(lease_expires_at=past))
    assert open_run(database, make_spec(), profile=None, force=False).id == run.id


def test_a_renewed_lease_keeps_the_run(database: Database) -> None:
    lease = start_run(database)
    expire_lease(database, lease.run.id)
    with database.write() as tx:
        renew_run(tx, lease, 60)
    with pytest.raises(RunRefused):
        open_run(database, make_spec(), profile=None, force=False)


def test_a_finished_run_cannot_be_taken(database: Database) -> None:
    lease = start_run(database)
    close_listing(database, lease)
    assert try_finalize(database, lease.run.id)
    with pytest.raises(RunGone, match="is finished already; start a new one"):
        take_run(database, lease.run.id, lease_seconds=60)
    assert open_run(database, make_spec(), profile=None, force=False).id != lease.run.id


def test_a_run_of_another_tenant_is_not_found(database: Database) -> None:
    run_id = start_run(database).run.id
    with database.read() as tx, pytest.raises(NotFound, match=f"no run {run_id}"):
        read_run(tx, run_id, "globex")


# Pausing


def test_a_paused_run_keeps_its_backlog_and_can_be_taken_up_at_once(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a", "b")
    before = read_rows(database, work_items, run_documents)
    pause_run(database, lease, "GROQ_API_KEY is refused")
    run = run_of(database, lease.run.id)
    assert (run.status, run.paused_reason) == (RunStatus.INGESTING, "GROQ_API_KEY is refused")
    assert read_rows(database, work_items, run_documents) == before
    assert open_run(database, make_spec(), profile=None, force=False).id == run.id
    take_run(database, run.id, lease_seconds=60)
    assert run_of(database, run.id).paused_reason is None


def test_a_dropped_run_is_taken_up_by_the_next_start(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    drop_run(database, lease, "the disk is full")
    assert open_run(database, make_spec(), profile=None, force=False).id == lease.run.id
    assert "stopped: the disk is full" in messages_of(database, lease.run.id)


# Aborting


def test_an_aborted_run_counts_what_was_not_done_and_cancels_its_work(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a", "b", "c")
    finish(database, claim_all(database, lease.run.id, limit=1))
    run = abort_run(database, QUEUE, lease.run.id, reason="not needed")
    assert (run.status, run.error) == (RunStatus.ABORTED, "not needed")
    assert counts_of(database, run.id) == {"ready": 1, "pending": 2}
    with database.read() as tx:
        statuses = tx.execute(sa.select(work_items.c.status).order_by(work_items.c.id)).scalars()
        assert list(statuses) == ["complete", "cancelled", "cancelled"]
    assert not claim_all(database, run.id)


def test_a_worker_busy_with_an_aborted_run_changes_nothing(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    claim = claim_all(database, lease.run.id)
    abort_run(database, QUEUE, lease.run.id, reason="not needed")
    before = read_rows(database, work_items, run_documents, runs, nodes)
    assert finish(database, claim) == []
    assert not try_finalize(database, lease.run.id)
    assert recover_now(database) == ()
    assert read_rows(database, work_items, run_documents, runs, nodes) == before


@pytest.mark.parametrize("database", ["postgres"], indirect=True)  # SQLite has one writer
def test_an_abort_that_waits_for_a_worker_that_waits_for_it_is_tried_again(
    database: Database,
) -> None:
    # Postgres ends the one of the two whose wait it checks last: on a busy machine the worker's.
    assert any(abort_in_a_deadlock(database) for _ in range(10))


def abort_in_a_deadlock(database: Database) -> bool:
    """False when the worker's transaction was the one that Postgres ended."""
    lease = start_run(database)
    add_documents(database, lease, "a", "b")
    claim = claim_all(database, lease.run.id)
    first, second = sorted(claim.items, key=lambda item: item.id)
    with ThreadPoolExecutor(1) as pool:
        try:
            with database.write() as tx:
                QUEUE.complete(tx, claim, [second], Outcome.DONE)
                aborting = pool.submit(
                    abort_run, database, QUEUE, lease.run.id, reason="not needed"
                )
                wait_until(lambda: somebody_waits(database))
                close_documents(tx, [second, *QUEUE.complete(tx, claim, [first], Outcome.DONE)])
            worker_went_on = True
        except StoreConflict:
            worker_went_on = False
        assert aborting.result(timeout=60).status is RunStatus.ABORTED
    if worker_went_on:
        assert counts_of(database, lease.run.id) == {"ready": 2}
    return worker_went_on


def test_a_run_that_has_ended_cannot_be_aborted(database: Database) -> None:
    lease = start_run(database)
    abort_run(database, QUEUE, lease.run.id, reason="first")
    with pytest.raises(UsageError, match="is aborted already"):
        abort_run(database, QUEUE, lease.run.id, reason="second")
    assert run_of(database, lease.run.id).error == "first"


def test_a_flow_whose_run_was_aborted_may_not_write_to_it(database: Database) -> None:
    lease = start_run(database)
    abort_run(database, QUEUE, lease.run.id, reason="not needed")
    with pytest.raises(RunGone, match="is aborted"):
        close_listing(database, lease)
    with database.write() as tx:
        renew_run(tx, lease, 60)
    assert run_of(database, lease.run.id).status is RunStatus.ABORTED


# Finalizing


def test_a_run_is_finished_with_exact_counts(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a", "b")
    add_documents(database, lease, "c", status=DocumentStatus.SKIPPED)
    add_documents(database, lease, "d", "e", status=DocumentStatus.ERROR)
    finish(database, claim_all(database, lease.run.id))
    assert not try_finalize(database, lease.run.id), "the listing is still open"
    close_listing(database, lease)
    assert try_finalize(database, lease.run.id)
    run = run_of(database, lease.run.id)
    assert (run.status, run.error) == (RunStatus.FINISHED, None)
    assert counts_of(database, run.id) == {"ready": 2, "skipped": 1, "error": 2}
    with database.read() as tx:
        assert [line.external_id for line in failures(tx, run.id)] == ["d", "e"]
    assert not try_finalize(database, run.id)
    assert (
        messages_of(database, run.id)[-1] == "finished: 2 ready, 2 failed (unknown 2), 1 unchanged"
    )


def test_documents_are_listed_failures_first_then_by_name(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "d", "b")
    add_documents(database, lease, "e", "c", status=DocumentStatus.ERROR)
    add_documents(database, lease, "a", status=DocumentStatus.READY)
    with database.read() as tx:
        for limit in (None, 0, 1, 3, 5, 9):
            names = [line.external_id for line in list_documents(tx, lease.run.id, limit)]
            assert names == ["c", "e", "a", "b", "d"][:limit]


def test_a_document_that_fails_while_documents_are_listed_is_listed_once(
    database: Database,
) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a", "b")

    def fail(*_: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(fail_document, database, lease, "a").result(timeout=60)

    with database.read() as tx:
        sa.event.listen(tx.connection, "after_cursor_execute", fail)
        names = [line.external_id for line in list_documents(tx, lease.run.id)]
        sa.event.remove(tx.connection, "after_cursor_execute", fail)
    assert names == ["a", "b"]


def fail_document(database: Database, lease: RunLease, name: str) -> None:
    c = run_documents.c
    its = sa.update(run_documents).where(c.run_id == lease.run.id, c.external_id == name)
    with database.write() as tx:
        tx.execute(its.values(status=DocumentStatus.ERROR))


def test_a_run_with_pending_documents_is_not_finished(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    close_listing(database, lease)
    assert not try_finalize(database, lease.run.id)


def test_a_run_of_unchanged_documents_is_finished(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, *"abc", status=DocumentStatus.SKIPPED)
    close_listing(database, lease)
    assert try_finalize(database, lease.run.id)
    assert counts_of(database, lease.run.id) == {"skipped": 3}


def test_an_empty_source_is_a_finished_run(database: Database) -> None:
    lease = start_run(database)
    close_listing(database, lease)
    assert try_finalize(database, lease.run.id)
    assert counts_of(database, lease.run.id) == {}
    assert messages_of(database, lease.run.id)[-1] == "finished: no documents"


def test_a_failed_listing_ends_as_an_error_and_expires_nothing(database: Database) -> None:
    first = start_run(database)
    add_documents(database, first, "a", "b", status=DocumentStatus.SKIPPED)
    close_listing(database, first)
    try_finalize(database, first.run.id)
    second = start_run(database)
    close_listing(database, second, error="the site answered 500")
    assert try_finalize(database, second.run.id)
    run = run_of(database, second.run.id)
    assert (run.status, run.error) == (RunStatus.ERROR, "the site answered 500")
    assert counts_of(database, run.id) == {}
    assert expired_names(database) == []


@pytest.mark.full_suite
def test_a_run_that_many_workers_finish_at_once_is_finalized_once(database: Database) -> None:
    workers, repetitions = 8, 30 if database.is_sqlite else 100
    leases = [start_run(database, f"source {n}") for n in range(repetitions)]
    claims: list[list[Claim]] = []
    for lease in leases:
        add_documents(database, lease, *[f"document {n}" for n in range(workers)])
        close_listing(database, lease)
        claims.append([claim_all(database, lease.run.id, limit=1) for _ in range(workers)])
    in_step = threading.Barrier(workers, timeout=60)

    def work(worker: int) -> list[bool]:
        won = []
        for lease, claim in zip(leases, claims, strict=True):
            in_step.wait()
            assert len(finish(database, claim[worker])) == 1
            won.append(try_finalize(database, lease.run.id))
        return won

    won_by_worker = run_together(workers, work)
    assert [sum(won) for won in zip(*won_by_worker, strict=True)] == [1] * repetitions
    for lease in leases:
        assert run_of(database, lease.run.id).status is RunStatus.FINISHED
        assert counts_of(database, lease.run.id) == {"ready": workers}
        endings = [m for m in messages_of(database, lease.run.id) if m.startswith("finished")]
        assert endings == [f"finished: {workers} ready"]


def test_abort_and_finish_at_once_leave_one_ending(database: Database) -> None:
    for n in range(10):
        lease = start_run(database, f"source {n}")
        add_documents(database, lease, "a")
        close_listing(database, lease)
        finish(database, claim_all(database, lease.run.id))
        run_id = lease.run.id

        def end(worker: int, run_id: int = run_id) -> Any:
            if worker == 0:
                return try_finalize(database, run_id)
            try:
                return abort_run(database, QUEUE, run_id, reason="raced").status
            except UsageError:
                return None

        finished, aborted = run_together(2, end)
        status = run_of(database, run_id).status
        assert status is (RunStatus.FINISHED if finished else RunStatus.ABORTED)
        assert finished is (aborted is not RunStatus.ABORTED)


# Expiry


def expired_names(database: Database) -> list[str]:
    query = sa.select(nodes.c.external_id).where(nodes.c.expired_at.is_not(None))
    with database.read() as tx:
        return sorted(tx.execute(query).scalars())


def run_listing(database: Database, *listed: str, name: str = "careers") -> int:
    lease = start_run(database, name)
    list_again(database, lease, *listed) if listed else None
    close_listing(database, lease)
    assert try_finalize(database, lease.run.id)
    return lease.run.id


def seed_nodes(database: Database, names: Sequence[str], source: str = "careers") -> None:
    lease = start_run(database, source)
    add_documents(database, lease, *names, status=DocumentStatus.SKIPPED)
    close_listing(database, lease)
    assert try_finalize(database, lease.run.id)


def test_what_a_source_no_longer_lists_expires(database: Database) -> None:
    seed_nodes(database, "abc")
    run_id = run_listing(database, "a")
    assert expired_names(database) == ["b", "c"]
    assert counts_of(database, run_id) == {"skipped": 1, "expired": 2}


def test_a_source_that_lists_nothing_expires_all_of_its_own(database: Database) -> None:
    seed_nodes(database, "ab")
    seed_nodes(database, "xy", source="papers")
    run_listing(database)
    assert expired_names(database) == ["a", "b"]


def test_what_has_expired_does_not_expire_again(database: Database) -> None:
    seed_nodes(database, "ab")
    run_listing(database, "a")
    assert counts_of(database, run_listing(database, "a")) == {"skipped": 1}


# Recovery


def test_recovery_finishes_a_run_whose_last_worker_died_before_the_end(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    close_listing(database, lease)
    finish(database, claim_all(database, lease.run.id))
    assert recover_now(database) == (lease.run.id,)
    assert run_of(database, lease.run.id).status is RunStatus.FINISHED
    assert recover_now(database) == ()


def test_recovery_ends_a_run_whose_flow_died_while_listing(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    finish(database, claim_all(database, lease.run.id))
    drop_run(database, lease, "killed")
    assert recover_now(database) == (), "it may be started again"
    expire_lease(database, lease.run.id)
    assert recover_now(database) == (lease.run.id,)
    run = run_of(database, lease.run.id)
    assert run.status is RunStatus.ERROR
    assert "before the source was listed" in (run.error or "")
    assert counts_of(database, run.id) == {"ready": 1}
    assert expired_names(database) == []


def test_recovery_ends_a_run_whose_flow_died_while_listing_and_whose_work_is_gone(
    database: Database,
) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a", "b")
    finish(database, claim_all(database, lease.run.id, limit=1))
    with database.write() as tx:
        tx.execute(sa.delete(work_items).where(work_items.c.status == ItemStatus.PENDING))
    assert recover_now(database) == (), "its flow may still be listing"
    expire_lease(database, lease.run.id)
    assert recover_now(database) == (lease.run.id,)
    run = run_of(database, lease.run.id)
    assert run.status is RunStatus.ERROR
    assert "before the source was listed" in (run.error or "")
    assert counts_of(database, run.id) == {"ready": 1, "error": 1}
    assert expired_names(database) == []


def test_recovery_leaves_a_run_alone_that_is_being_listed(database: Database) -> None:
    lease = start_run(database)
    assert recover_now(database) == ()
    assert run_of(database, lease.run.id).status is RunStatus.INGESTING


@pytest.mark.parametrize("listed", [True, False])
def test_recovery_leaves_a_paused_run_alone(database: Database, listed: bool) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    if listed:
        close_listing(database, lease)
    finish(database, claim_all(database, lease.run.id))
    pause_run(database, lease, "no usable model")
    assert recover_now(database) == ()
    assert run_of(database, lease.run.id).status is RunStatus.INGESTING


def test_recovery_leaves_a_run_with_work_alone(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a", "b")
    close_listing(database, lease)
    expire_lease(database, lease.run.id)
    finish(database, claim_all(database, lease.run.id, limit=1))
    assert recover_now(database) == ()
    assert claim_all(database, lease.run.id)
    assert recover_now(database) == ()


def test_a_poison_document_ends_as_an_error_of_its_run(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "poison")
    close_listing(database, lease)
    dying = WorkQueue(default_rules(), lease_seconds=-1)
    for _ in range(3):
        with database.write() as tx:
            claim = dying.claim(tx, "victim", run_id=lease.run.id)
            dying.start(tx, claim, claim.items)
        recovered = recover(database, replace(QUEUE, max_rescues=2))
    assert recovered.finished_runs == (lease.run.id,)
    assert counts_of(database, lease.run.id) == {"error": 1}
    with database.read() as tx:
        [failure] = failures(tx, lease.run.id)
        status = tx.execute(sa.select(nodes.c.embedding_status)).scalar_one()
    assert (failure.external_id, failure.error_class) == ("poison", ErrorClass.UNKNOWN)
    assert status == "failed"


def test_recoveries_at_once_finish_a_run_once(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    close_listing(database, lease)
    finish(database, claim_all(database, lease.run.id))
    finished = run_together(4, lambda _: recover_now(database))
    assert [one for one in finished if one] == [(lease.run.id,)]


def test_a_failure_that_waits_for_its_retry_keeps_the_run_open(database: Database) -> None:
    lease = start_run(database)
    add_documents(database, lease, "a")
    close_listing(database, lease)
    claim = claim_all(database, lease.run.id)
    with database.write() as tx:
        QUEUE.fail(tx, claim, [(claim.items[0], make_fault())])
    assert not try_finalize(database, lease.run.id)
    assert recover_now(database) == ()


def test_a_document_is_closed_by_its_key_while_the_store_has_no_statistics(
    database: Database,
) -> None:
    lease = start_run(database)
    add_documents(database, lease, *map(str, range(500)))
    claim = claim_all(database, lease.run.id, limit=500)
    closed: list[tuple[str, Any]] = []

    def hear(_: object, _cursor: object, statement: str, given: Any, *_more: object) -> None:
        if statement.startswith("UPDATE run_documents"):
            closed.append((statement, given[0]))

    sa.event.listen(database.engine, "before_cursor_execute", hear)
    finish(database, claim)

    (asked,) = closed
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.read() as tx:
        rows = tx.connection.exec_driver_sql(f"{explain} {asked[0]}", asked[1])
        plan = " ".join(str(row) for row in rows)
    key = "sqlite_autoindex_run_documents_1" if database.is_sqlite else "run_documents_pkey"
    assert key in plan
    assert "ix_run_documents_counts" not in plan
