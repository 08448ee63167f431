"""Recovery as workers do it: its log, the runs it finishes, and its failures."""

import itertools
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import ErrorClass, StoreUnavailable
from penstock.operations.status import completed_items
from penstock.pipeline.processor import Processor
from penstock.pipeline.worker import WorkerThread
from penstock.queue.heartbeat import forget_old_workers
from penstock.queue.items import Claim, WorkItem
from penstock.queue.sweep import Recovered
from penstock.recovery import Recovery
from penstock.runs.run import DocumentStatus, RunStatus
from penstock.store import retry
from penstock.store.database import Database
from penstock.store.leader_lease import HELD_SECONDS, leader_lease
from penstock.store.schema import work_items, workers
from tests.contract.ingestion import Workplace
from tests.factories import Desk, at, make_fault, make_item, somebody_waits
from tests.together import wait_until

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.001)


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Iterator[Workplace]:
    place = Workplace(database, tmp_path / "home")
    yield place
    place.app.close()


def claim_all(place: Workplace, *, begin: bool) -> list[int]:
    """As a worker that is about to die."""
    with place.database.write() as tx:
        claim = place.app.queue.claim(tx, "doomed")
        if begin:
            place.app.queue.start(tx, claim, claim.items)
    place.expire_leases()
    return claim.ids


@pytest.mark.parametrize("begin", [True, False])
def test_the_log_names_recovered_jobs_their_start_and_their_worker(
    place: Workplace, caplog: pytest.LogCaptureFixture, begin: bool
) -> None:
    place.write("a.txt", "one")
    place.admit(place.open())
    [item_id] = claim_all(place, begin=begin)
    place.app.recovery.run()
    text = caplog.text
    assert f"Recovered 1 orphaned job(s) from 'processing' to 'pending': {item_id}" in text
    assert f"Job {item_id} (text) was running since 20" in text
    assert "held by doomed" in text


def test_many_jobs_are_counted_and_the_first_are_named(
    place: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(25):
        place.write(f"{number}.txt", f"document {number}")
    place.admit(place.open())
    claim_all(place, begin=True)
    place.app.recovery.run()
    assert "Recovered 25 orphaned job(s)" in caplog.text
    assert "and 5 more" in caplog.text
    assert caplog.text.count("was running since") == 20


def test_a_recovery_that_finds_nothing_is_logged_too(
    place: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert place.app.recovery.run() == Recovered()
    assert "No orphaned jobs found - all clear" in caplog.text


def test_one_process_recovers_at_a_time(place: Workplace) -> None:
    place.write("a.txt", "one")
    place.admit(place.open())
    claim_all(place, begin=True)
    worker = place.app.worker(place.app.processor(place.steps), place.app.heartbeat())
    with leader_lease(place.database, "recovery"):
        assert place.app.recovery.run() == Recovered(elsewhere=True)
        assert worker.sweep() == HELD_SECONDS
    assert len(place.app.recovery.run().items.rescued) == 1
    assert worker.sweep() == place.app.settings.sweep_seconds


def test_a_run_whose_work_was_deleted_by_hand_ends_failed(place: Workplace) -> None:
    place.write("a.txt", "one")
    place.write("b.txt", "two")
    lease = place.open()
    place.admit(lease)
    with place.database.write() as tx:
        tx.execute(sa.delete(work_items))
    assert place.app.recovery.run().finished_runs == (lease.run.id,)
    report = place.report(lease.run.id)
    assert report.run.status is RunStatus.ERROR
    assert report.counts[DocumentStatus.ERROR] == 2
    again = place.ingest()
    assert again.counts[DocumentStatus.READY] == 2


def test_a_run_taken_up_again_brings_back_lost_work_while_other_work_waits(
    place: Workplace,
) -> None:
    place.write("a.txt", "one")
    place.write("b.txt", "two")
    lease = place.open()
    place.admit_some(lease, place.listed())
    with place.database.write() as tx:
        lost = work_items.c.node_id == place.node("a.txt").id
        tx.execute(sa.delete(work_items).where(lost))
    place.expire_leases()
    report = place.ingest()
    assert report.run.id == lease.run.id
    assert report.counts[DocumentStatus.READY] == 2


def test_a_run_with_work_left_is_left_alone(place: Workplace) -> None:
    place.write("a.txt", "one")
    lease = place.open()
    place.admit(lease)
    assert place.app.recovery.run().finished_runs == ()
    assert place.report(lease.run.id).counts[DocumentStatus.PENDING] == 1


def test_a_failed_recovery_is_logged_and_work_goes_on(
    place: Workplace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Recovery) -> None:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(Recovery, "run", fail)
    place.write("a.txt", "one")
    # The next sweep is always due, and every sweep fails.
    place.app.settings = place.app.settings.model_copy(update={"sweep_seconds": 0.0})
    assert place.ingest().counts[DocumentStatus.READY] == 1
    worker = place.app.worker(place.app.processor(place.steps), place.app.heartbeat())
    assert worker.sweep() == 0.0
    assert "Failed to recover orphaned jobs: the database is away; the next sweep tries again" in (
        caplog.text
    )


def test_a_claim_whose_commit_was_not_answered_is_not_held_for_ever(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("a.txt", "one")
    lease = place.open()
    place.admit(lease)
    commit, answers = Database._commit, iter([False])

    def commit_unanswered(self: Database, connection: sa.Connection) -> None:
        commit(self, connection)
        if not next(answers, True):
            raise StoreUnavailable("the connection was lost")

    with place.app.heartbeat() as heartbeat:
        worker = place.app.worker(place.app.processor(place.steps), heartbeat)
        monkeypatch.setattr(Database, "_commit", commit_unanswered)
        assert WorkerThread(worker).do_one_batch()
    assert place.report(lease.run.id).counts[DocumentStatus.READY] == 1


@pytest.mark.parametrize("lost", range(8))
def test_what_was_completed_is_counted_once_whichever_commit_was_not_answered(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    place.write("a.txt", "one")
    place.write("b.txt", "two")
    lease = place.open()
    place.admit(lease)
    commit, commits = Database._commit, itertools.count()

    def commit_unanswered(self: Database, connection: sa.Connection) -> None:
        commit(self, connection)
        if next(commits) == lost:
            raise StoreUnavailable("the connection was lost")

    with place.app.heartbeat() as heartbeat:
        thread = WorkerThread(place.app.worker(place.app.processor(place.steps), heartbeat))
        monkeypatch.setattr(Database, "_commit", commit_unanswered)
        while thread.do_one_batch():
            """Until nothing is left."""
    assert next(commits) > lost
    assert place.report(lease.run.id).counts[DocumentStatus.READY] == 2
    with place.database.read() as tx:
        assert completed_items(tx) == 6


def test_what_could_not_be_given_back_is_given_back_with_the_next_claim(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("a.txt", "one")
    lease = place.open()
    place.admit(lease)
    place.steps.on(Stage.TEXT, "one", StoreUnavailable("away"))
    give_back, answers = Processor.give_back, iter([False])

    def give_back_later(self: Processor, claim: Claim) -> None:
        if not next(answers, True):
            raise StoreUnavailable("still away")
        give_back(self, claim)

    monkeypatch.setattr(Processor, "give_back", give_back_later)
    with place.app.heartbeat() as heartbeat:
        worker = place.app.worker(place.app.processor(place.steps), heartbeat)
        assert WorkerThread(worker).do_one_batch()
    assert place.report(lease.run.id).counts[DocumentStatus.READY] == 1


# SQLite has one writer at a time: there, nothing is recorded in the same moment.
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_work_that_another_records_in_this_moment_is_worth_another_try(desk: Desk) -> None:
    item = make_item()
    [item_id] = desk.enqueue(item)
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION))

    def requeue() -> list[WorkItem]:
        with at(desk.database) as tx:
            return desk.queue.requeue(tx, work_items.c.id == item_id, note="again")

    with ThreadPoolExecutor(1) as pool:
        with at(desk.database) as tx:
            desk.queue.enqueue(tx, [item])
            again = pool.submit(requeue)
            wait_until(lambda: somebody_waits(desk.database))
        with pytest.raises(StoreUnavailable):
            again.result(timeout=60)
    assert requeue() == [], "the new one is it"


def test_workers_of_long_ago_are_forgotten_unless_they_hold_something(desk: Desk) -> None:
    with at(desk.database) as tx:
        for number, days in enumerate((0, 6, 8, 9)):
            seen = tx.now - timedelta(days=days)
            row = {"id": f"w{number}", "host": "h", "pid": 1, "version": "1", "status": "running"}
            stamps = {"started_at": seen, "heartbeat_at": seen, "completed": 0, "failed": 0}
            tx.execute(sa.insert(workers).values(row | stamps))
    desk.enqueue(make_item())
    desk.claim("w3")
    with at(desk.database) as tx:
        assert forget_old_workers(tx) == 1
        left = tx.execute(sa.select(workers.c.id).order_by(workers.c.id)).scalars().all()
    assert left == ["w0", "w1", "w3"]


def test_the_next_sweep_comes_when_a_lease_ends(place: Workplace) -> None:
    place.write("a.txt", "one")
    place.admit(place.open())
    worker = place.app.worker(place.app.processor(place.steps), place.app.heartbeat())
    patient = replace(worker, sweep_seconds=1000)
    assert patient.sweep() == 1000
    with place.database.write() as tx:
        place.app.queue.claim(tx, "one that may die")
    lease_seconds = place.app.queue.lease_seconds
    assert lease_seconds - 10 < patient.sweep() <= lease_seconds
    place.expire_leases()
    assert len(place.app.recovery.run().items.freed) == 1
