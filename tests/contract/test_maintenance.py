"""What maintenance forgets, to the second, and what it never touches."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import ErrorClass, StoreUnavailable, Unmaintained
from penstock.intake.nodes import KEPT, NewNode, StoredPayload, keep_answer
from penstock.maintenance import maintenance as vacuuming
from penstock.maintenance import retention as retention_module
from penstock.maintenance.maintenance import Maintenance, vacuum
from penstock.maintenance.retention import Figure, Maintained, Retention, RetentionPolicy
from penstock.operations.nodes import refresh_node
from penstock.operations.status import completed_items, failed_attempts
from penstock.queue.heartbeat import REMEMBERED
from penstock.queue.items import ItemStatus
from penstock.runs.report import list_documents
from penstock.runs.run import DocumentStatus
from penstock.store import retry
from penstock.store.database import Database, Tx
from penstock.store.lifetime_counters import read_counter
from penstock.store.schema import (
    attempts,
    events,
    idempotency_keys,
    metadata,
    model_calls,
    run_documents,
    runs,
    work_items,
    workers,
)
from tests.contract.ingestion import Workplace, make_text
from tests.factories import NOON, TENANT, Desk, add_node, add_source, at, make_fault, make_item
from tests.factories import read_rows as rows_of
from tests.together import run_together

pytestmark = pytest.mark.both_databases

DAY = 86_400.0
SECOND = timedelta(seconds=1)


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
    place.close()


def retain(
    database: Database,
    now: datetime = NOON,
    keeping: RetentionPolicy = RetentionPolicy(),  # noqa: B008 - it is frozen
    *,
    dry_run: bool = False,
) -> Retention:
    return Retention(database, now, keeping, dry_run)


def days_from_now(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def add_event(tx: Tx, when: datetime, run_id: int | None = None) -> None:
    row = {"tenant_id": TENANT, "run_id": run_id, "stage": "ING", "level": "INFO"}
    tx.execute(sa.insert(events).values(row | {"message": "it happened", "at": when}))


def add_run(tx: Tx, status: str, ended: datetime | None = None, name: str = "careers") -> int:
    row = {
        "tenant_id": TENANT,
        "source_id": add_source(tx, name),
        "force": False,
        "status": status,
        "created_at": tx.now,
        "finished_at": ended,
    }
    run_id: int = tx.execute(sa.insert(runs).values(row).returning(runs.c.id)).scalar_one()
    return run_id


def add_call(tx: Tx, when: datetime, run_id: int | None = None) -> None:
    row = {
        "tenant_id": TENANT,
        "node_id": "00000000-0000-0000-0000-000000000000",
        "model": "small",
        "outcome": "accepted",
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "seconds": 1.0,
        "cost_usd": 0.01,
    }
    tx.execute(sa.insert(model_calls).values(row | {"run_id": run_id, "called_at": when}))


def count(database: Database, table: sa.Table) -> int:
    with database.read() as tx:
        query = sa.select(sa.func.count()).select_from(table)
        return int(tx.execute(query).scalar_one())


def complete(desk: Desk, run_id: int | None = None) -> int:
    """A job that was completed at the second the desk shows."""
    [item_id] = desk.enqueue(make_item(run_id=run_id))
    desk.complete(desk.claim(only=[item_id], run_id=run_id))
    return item_id


def kill(desk: Desk, run_id: int | None = None) -> int:
    [item_id] = desk.enqueue(make_item(run_id=run_id))
    desk.fail(desk.claim(only=[item_id], run_id=run_id), make_fault(ErrorClass.CORRUPTION))
    return item_id


def cancel(desk: Desk) -> int:
    [item_id] = desk.enqueue(make_item())
    desk.cancel(work_items.c.id == item_id)
    return item_id


@pytest.mark.parametrize(("age", "left"), [(-1.0, 1), (0.0, 1), (1.0, 0)])
def test_an_event_is_forgotten_a_second_after_its_time(
    database: Database, age: float, left: int
) -> None:
    with at(database) as tx:
        add_event(tx, NOON - timedelta(days=30, seconds=age))
    assert retain(database).forget_events() == 1 - left
    assert count(database, events) == left


@pytest.mark.parametrize("end", [complete, cancel])
@pytest.mark.parametrize(("age", "left"), [(-1.0, 1), (0.0, 1), (1.0, 0)])
def test_a_job_that_ended_is_forgotten_a_second_after_its_time(
    desk: Desk, end: Callable[[Desk], int], age: float, left: int
) -> None:
    end(desk)
    now = NOON + timedelta(days=30, seconds=age)
    retention = retain(desk.database, now)
    assert retention.forget_dead_letters() == 0
    assert retention.forget_jobs() == 1 - left
    assert len(desk.rows()) == left


@pytest.mark.parametrize(("age", "left"), [(-1.0, 1), (0.0, 1), (1.0, 0)])
def test_a_dead_letter_is_kept_longer_and_goes_with_its_history(
    desk: Desk, age: float, left: int
) -> None:
    kill(desk)
    retention = retain(desk.database, NOON + timedelta(days=90, seconds=age))
    assert retention.forget_jobs() == 0
    assert retention.forget_dead_letters() == 1 - left
    assert count(desk.database, attempts) == left


def test_a_job_is_kept_as_long_as_the_dead_letter_that_it_supersedes(desk: Desk) -> None:
    """Without it, replaying the letter would bring old content back."""
    item = make_item()
    desk.enqueue(item)
    desk.fail(desk.claim(), make_fault(ErrorClass.CORRUPTION))
    desk.enqueue(item)
    desk.complete(desk.claim())
    retention = retain(desk.database, NOON + timedelta(days=40))
    assert (retention.forget_jobs(), retention.forget_dead_letters()) == (0, 0)
    retention = retain(desk.database, NOON + timedelta(days=91))
    assert (retention.forget_dead_letters(), retention.forget_jobs()) == (1, 1)


def test_what_has_not_ended_is_never_forgotten(desk: Desk) -> None:
    desk.enqueue(make_item())
    [waiting] = desk.enqueue(make_item())
    desk.fail(desk.claim(only=[waiting]), make_fault())
    [held] = desk.enqueue(make_item())
    desk.claim(only=[held])
    before = rows_of(desk.database, work_items, attempts)
    retention = retain(desk.database, NOON + timedelta(days=3650))
    assert (retention.forget_jobs(), retention.forget_dead_letters()) == (0, 0)
    assert rows_of(desk.database, work_items, attempts) == before


def test_nothing_of_an_active_run_is_forgotten(desk: Desk) -> None:
    database = desk.database
    with at(database) as tx:
        active, ended = add_run(tx, "ingesting"), add_run(tx, "finished", NOON, "other")
        for run_id in (active, ended):
            add_event(tx, NOON, run_id)
            add_call(tx, NOON, run_id)
            document = {"run_id": run_id, "external_id": "a", "status": "pending", "change": "new"}
            tx.execute(sa.insert(run_documents).values(document | {"updated_at": NOON}))
    kept = {complete(desk, active), kill(desk, active)}
    complete(desk, ended)
    kill(desk, ended)
    retention = retain(database, NOON + timedelta(days=365), RetentionPolicy(model_calls=30))
    assert retention.forget_events() == 1
    assert retention.forget_jobs() == 1
    assert retention.forget_dead_letters() == 1
    assert retention.forget_run_documents() == 1
    assert retention.forget_model_calls() == 1
    assert set(desk.rows()) == kept
    with database.read() as tx:
        for table in (events, run_documents, model_calls):
            assert tx.execute(sa.select(table.c.run_id)).scalars().all() == [active]


def test_zero_keeps_for_ever(desk: Desk) -> None:
    with at(desk.database) as tx:
        add_event(tx, NOON)
        add_call(tx, NOON)
    complete(desk)
    kill(desk)
    before = rows_of(desk.database, *metadata.tables.values())
    retention = retain(
        desk.database, NOON + timedelta(days=36_000), RetentionPolicy(0, 0, 0, 0, 0, 0, 0)
    )
    for forget in (
        retention.forget_events,
        retention.forget_jobs,
        retention.forget_dead_letters,
        retention.forget_run_documents,
        retention.forget_model_calls,
    ):
        assert forget() == 0
    assert rows_of(desk.database, *metadata.tables.values()) == before


def test_model_calls_are_kept_for_ever_by_default(database: Database) -> None:
    with at(database) as tx:
        add_call(tx, NOON)
        add_call(tx, NOON + SECOND)
    now = NOON + timedelta(days=400) + SECOND
    assert retain(database, now).forget_model_calls() == 0
    assert retain(database, now, RetentionPolicy(model_calls=400)).forget_model_calls() == 1
    assert count(database, model_calls) == 1


def test_a_run_is_reported_as_before_when_its_jobs_and_documents_are_forgotten(
    place: Workplace,
) -> None:
    for name in ("a", "b", "c"):
        place.write(f"{name}.txt", make_text(f"Paper {name}"))
    place.steps.on(Stage.TEXT, "Paper c", make_fault(ErrorClass.CORRUPTION))
    first = place.ingest()
    place.remove("a.txt")
    second = place.ingest()
    assert second.counts[DocumentStatus.EXPIRED] == 1
    told = [first.as_json(), second.as_json()]

    retention = retain(place.database, days_from_now(31))
    assert retention.forget_jobs() > 0
    assert [place.report(one.run.id).as_json() for one in (first, second)] == told
    retention = retain(place.database, days_from_now(181))
    assert retention.forget_dead_letters() > 0
    assert retention.forget_jobs() == 1, "it told that the work of a dead letter was done since"
    assert retention.forget_run_documents() == 6

    assert [place.report(one.run.id).as_json() for one in (first, second)] == told
    assert count(place.database, work_items) == count(place.database, run_documents) == 0
    with place.database.read() as tx:
        assert list_documents(tx, first.run.id) == []


@pytest.mark.parametrize(("age", "left"), [(-1.0, 2), (1.0, 0)])
def test_documents_are_kept_so_long_after_the_end_of_their_run(
    database: Database, age: float, left: int
) -> None:
    with at(database) as tx:
        run_id = add_run(tx, "aborted", NOON)
        for name in "ab":
            document = {"run_id": run_id, "external_id": name, "status": "ready", "change": "new"}
            # Written long before: the end of the run counts.
            long_ago = NOON - timedelta(days=900)
            tx.execute(sa.insert(run_documents).values(document | {"updated_at": long_ago}))
    now = NOON + timedelta(days=180, seconds=age)
    assert retain(database, now).forget_run_documents() == 2 - left
    assert count(database, run_documents) == left
    assert count(database, runs) == 1


def test_the_next_run_after_everything_was_forgotten_finds_nothing_changed(
    place: Workplace,
) -> None:
    place.write("a.txt", make_text("Paper a"))
    place.ingest()
    maintenance = Maintenance(
        place.database,
        lambda: place.app.raw,
        lambda: "",
        RetentionPolicy(*[1] * 7),
        days_from_now(400),
    )
    assert maintenance.run().failures == []
    again = place.ingest()
    assert again.counts[DocumentStatus.SKIPPED] == 1
    assert place.app.raw.get(str(place.node("a.txt").raw_key))


def test_totals_of_failed_attempts_and_completed_items_never_go_down(desk: Desk) -> None:
    database = desk.database
    for _ in range(3):
        kill(desk)
    desk.later(200 * DAY)
    kill(desk)
    with database.write() as tx:
        for number, age in enumerate((timedelta(0), REMEMBERED + timedelta(hours=1))):
            row = {"id": f"w{number}", "host": "h", "pid": 1, "version": "1", "status": "stopped"}
            times = {"started_at": tx.now - age, "heartbeat_at": tx.now - age}
            tx.execute(sa.insert(workers).values(row | times | {"completed": 5, "failed": 0}))
    retention = retain(database, NOON + timedelta(days=100))
    assert retention.forget_dead_letters() == 3
    assert retain(database, days_from_now(0), dry_run=True).forget_workers() == 1
    assert retain(database, days_from_now(0)).forget_workers() == 1
    with database.read() as tx:
        assert failed_attempts(tx) == {"corruption": 4}
        assert completed_items(tx) == 10


def test_request_keys_are_forgotten_as_recovery_does_it(database: Database) -> None:
    with database.write() as tx:
        keep_answer(tx, TENANT, "young", "x", [])
        keep_answer(replace(tx, now=tx.now - KEPT - SECOND), TENANT, "old", "x", [])
    assert retain(database, days_from_now(0), dry_run=True).forget_request_keys() == 1
    assert retain(database, days_from_now(0)).forget_request_keys() == 1
    assert count(database, idempotency_keys) == 1


def maintain(database: Database, now: datetime, **values: Any) -> Maintained:
    def no_store() -> Any:
        raise StoreUnavailable("the store is away")

    maintenance = Maintenance(database, no_store, lambda: "all clear", RetentionPolicy(), now)
    return replace(maintenance, **values).run()


def test_a_dry_run_has_the_same_figures_and_writes_nothing(place: Workplace) -> None:
    for name in ("a", "b"):
        place.write(f"{name}.txt", make_text(f"Paper {name}"))
    place.ingest()
    maintenance = Maintenance(
        place.database, lambda: place.app.raw, lambda: "", RetentionPolicy(), days_from_now(365)
    )
    before = rows_of(place.database, *metadata.tables.values())
    would = maintenance.run(dry_run=True)
    assert rows_of(place.database, *metadata.tables.values()) == before
    done = maintenance.run()
    assert [part.figures for part in would.parts] == [part.figures for part in done.parts]
    figures = {figure.what: figure.count for part in done.parts for figure in part.figures}
    assert figures["jobs"] == 6
    assert figures["run documents"] == 2
    assert figures["events"] > 0


def test_a_part_that_fails_is_reported_and_the_others_are_done(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with at(database) as tx:
        add_event(tx, NOON)

    def stumble() -> str:
        raise ZeroDivisionError

    done = maintain(database, NOON + timedelta(days=31), recover=stumble)
    assert [part.name for part in done.parts if part.error] == ["reconcile", "raw objects"]
    assert done.failures[1] == "raw objects: the store is away"
    assert "failed unexpectedly" in caplog.text
    assert Figure("events", 1) in [figure for part in done.parts for figure in part.figures]
    with pytest.raises(Unmaintained, match=r"reconcile: ZeroDivisionError; raw objects: the store"):
        done.raise_failures()


def test_a_line_is_logged_about_every_part(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    done = maintain(database, NOON)
    for part in done.parts:
        assert str(part) in caplog.text
    assert "events: 0\n" in caplog.text
    assert "reconcile: all clear" in caplog.text


class Stopped(BaseException):
    """As a process that is killed."""


def test_interrupted_halfway_it_goes_on_the_next_time(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        place.write(f"{number}.txt", make_text(f"Paper {number}"))
    place.steps.on(Stage.TEXT, "Paper 3", *[make_fault(ErrorClass.CORRUPTION)])
    report = place.ingest()
    monkeypatch.setattr(retention_module, "ROWS", 4)
    delete, goes = retention_module._delete, iter([True, True, False])

    def delete_some(*arguments: Any) -> int:
        if not next(goes, True):
            raise Stopped
        return delete(*arguments)

    monkeypatch.setattr(retention_module, "_delete", delete_some)
    retention = retain(place.database, days_from_now(200))
    with pytest.raises(Stopped):
        retention.forget_jobs()
    assert count(place.database, work_items) == 25 - 8
    assert place.report(report.run.id).as_json() == report.as_json()

    assert retention.forget_jobs() == 25 - 8 - 1
    assert retention.forget_dead_letters() == 1
    assert retention.forget_run_documents() == 9
    assert place.report(report.run.id).as_json() == report.as_json()


def test_two_at_once_share_the_work_and_count_nothing_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "ROWS", 7)
    for _ in range(60):
        kill(desk)
    now = NOON + timedelta(days=91)
    forgotten = run_together(2, lambda _: retain(desk.database, now).forget_dead_letters())
    assert sum(forgotten) == 60
    assert desk.rows() == {}
    with desk.database.read() as tx:
        assert read_counter(tx, "failed_attempts") == {"corruption": 60}


# SQLite has one writer at a time: there, nobody holds a row.
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_locked_rows_are_passed_over(desk: Desk) -> None:
    held, other = kill(desk), kill(desk)
    with desk.database.write() as tx:
        tx.execute(sa.select(work_items).where(work_items.c.id == held).with_for_update())
        assert retain(desk.database, NOON + timedelta(days=91)).forget_dead_letters() == 1
    assert set(desk.rows()) == {held}
    assert other not in desk.rows()


def test_a_dead_letter_that_was_just_replayed_is_not_forgotten(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    item_id = kill(desk)
    delete = retention_module._delete

    def delete_later(*arguments: Any) -> int:
        desk.requeue()
        return delete(*arguments)

    monkeypatch.setattr(retention_module, "_delete", delete_later)
    assert retain(desk.database, NOON + timedelta(days=91)).forget_dead_letters() == 0
    assert desk.row(item_id).status == ItemStatus.PENDING
    assert count(desk.database, attempts) == 1


def test_a_worker_goes_on_meanwhile_and_waits_for_nothing_long(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "ROWS", 500)
    with at(place.database) as tx:
        row = {"tenant_id": TENANT, "stage": "ING", "level": "INFO", "message": "x", "at": NOON}
        tx.execute(sa.insert(events), [row] * 20_000)
    for number in range(40):
        place.write(f"{number}.txt", make_text(f"Paper {number}"))
    ended = threading.Event()
    longest = [0.0]

    def watch() -> None:
        while not ended.wait(0.005):
            began = time.monotonic()
            with place.database.write() as tx:
                tx.execute(sa.select(sa.literal(1)))
            longest[0] = max(longest[0], time.monotonic() - began)

    watcher = threading.Thread(target=watch)
    watcher.start()
    now = NOON + timedelta(days=31)
    forgetter = threading.Thread(target=retain(place.database, now).forget_events)
    forgetter.start()
    report = place.ingest()
    forgetter.join()
    ended.set()
    watcher.join()
    assert report.counts[DocumentStatus.READY] == 40
    with place.database.read() as tx:
        old = sa.select(sa.func.count()).where(events.c.at == NOON)
        assert tx.execute(old).scalar_one() == 0
    assert longest[0] < 5.0


def test_an_upload_can_be_read_anew_after_its_job_was_forgotten(place: Workplace) -> None:
    key = place.app.raw.put(TENANT, "uploads", "x/cv.md", b"# Agnes", "md")
    upload = StoredPayload(key, "cv.md", 7, "text/markdown", "hash")
    [node] = place.app.intake.accept(TENANT, [NewNode(upload=upload)])
    with place.database.write() as tx:
        [item] = place.app.queue.cancel(tx, work_items.c.node_id == node.id)
    assert retain(place.database, days_from_now(31)).forget_jobs() == 1
    with place.database.write() as tx:
        again = refresh_node(tx, place.app.queue, TENANT, node.id)
        query = sa.select(work_items.c.payload).where(work_items.c.id == again["job_id"])
        payload = tx.execute(query).scalar_one()
    assert payload == {**item.payload.to_json(), "refresh": True}


def fill(database: Database, megabytes: int) -> None:
    message = "x" * 10_000
    row = {"tenant_id": TENANT, "stage": "ING", "level": "INFO", "message": message, "at": NOON}
    with at(database) as tx:
        tx.execute(sa.insert(events), [row] * (100 * megabytes))


def file_size(database: Database) -> int:
    with database.outside() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(str(database.engine.url.database)).stat().st_size


@pytest.fixture
def freed(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Two megabytes were written and forgotten again, which is worth the while here."""
    monkeypatch.setattr(vacuuming, "WORTH_BYTES", 1_000_000)
    fill(database, 2)
    retain(database, NOON + timedelta(days=31)).forget_events()
    return database


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_file_that_is_mostly_free_is_written_anew(freed: Database) -> None:
    before = file_size(freed)
    assert "would be written anew" in vacuum(freed, dry_run=True)
    assert "given back" in vacuum(freed, dry_run=False)
    assert file_size(freed) < before - 1_500_000
    assert "not worth it" in vacuum(freed, dry_run=False)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_file_that_workers_use_is_left_as_it_is(freed: Database) -> None:
    before = file_size(freed)
    Desk(freed).enqueue(make_item())
    Desk(freed).claim()
    assert "workers are running" in vacuum(freed, dry_run=False)
    assert file_size(freed) >= before


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_file_that_is_locked_is_left_for_the_next_time(freed: Database) -> None:
    other = Database(freed.url)
    try:
        with freed.write():
            began = time.monotonic()
            assert "left for the next time" in vacuum(other, dry_run=False)
            assert time.monotonic() - began < 30
    finally:
        other.close()
    assert "given back" in vacuum(freed, dry_run=False)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_tables_are_vacuumed_and_locked_ones_passed_over(database: Database) -> None:
    fill(database, 1)
    retain(database, NOON + timedelta(days=31)).forget_events()
    assert vacuum(database, dry_run=False).endswith("tables looked at")
    with database.write() as tx:
        tx.execute(sa.text("LOCK TABLE events IN SHARE UPDATE EXCLUSIVE MODE"))
        said = vacuum(database, dry_run=False)
    assert 'skipping vacuum of "events" --- lock not available' in said
    assert '"nodes"' not in said


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_tables_of_others_are_passed_over(database: Database) -> None:
    with database.write() as tx:
        tx.execute(sa.text("DROP ROLE IF EXISTS penstock_guest"))
        tx.execute(sa.text("CREATE ROLE penstock_guest LOGIN SUPERUSER"))
    try:
        with database.outside() as connection:
            connection.exec_driver_sql("ALTER ROLE penstock_guest NOSUPERUSER")
        url = sa.engine.make_url(database.url).set(username="penstock_guest")
        guest = Database(url.render_as_string(hide_password=False))
        try:
            assert "permission denied" in vacuum(guest, dry_run=False)
        finally:
            guest.close()
    finally:
        with database.write() as tx:
            tx.execute(sa.text("DROP ROLE penstock_guest"))


def test_progress_is_logged_now_and_then(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(retention_module, "LOG_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(retention_module, "ROWS", 2)
    with at(database) as tx:
        for _ in range(3):
            add_event(tx, NOON)
        add_node(tx)
    retain(database, NOON + timedelta(days=31)).forget_events()
    assert "events: 2 forgotten so far" in caplog.text
