"""A run's log: exact, in sequence, and whole for a reader who goes on from where it stopped."""

import logging
import random
import threading
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.events import Event, EventStage, Level, LogLine, read_log, record
from penstock.store.database import Database
from tests.factories import TENANT
from tests.together import run_together

pytestmark = pytest.mark.both_databases


def write(database: Database, run_id: int, *messages: str, **about: Any) -> None:
    with database.write() as tx:
        record(tx, *[Event(TENANT, "ING", text, run_id=run_id, **about) for text in messages])


def messages(lines: list[LogLine]) -> list[str]:
    return [line.message for line in lines]


def test_a_line_says_what_happened_where_and_when(database: Database) -> None:
    with database.write() as tx:
        event = Event(TENANT, "CRL", "new", run_id=1, source="acme", document="jobs/1")
        record(tx, event)
    with database.read() as tx:
        (line,) = read_log(tx, 1)
    assert (line.stage, line.level, line.message) == ("CRL", "INFO", "new")
    assert (line.run_id, line.source, line.document) == (1, "acme", "jobs/1")
    assert line.at.utcoffset() is not None
    assert line.as_json()["at"].endswith("+00:00")


def test_the_log_of_run_1_never_shows_run_12(database: Database) -> None:
    for run_id in (1, 12, 121):
        write(database, run_id, f"of {run_id}")
    with database.read() as tx:
        assert messages(read_log(tx, 1)) == ["of 1"]
        assert messages(read_log(tx, 12)) == ["of 12"]


def test_a_transaction_that_fails_leaves_no_line(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        with database.write() as tx:
            record(tx, Event(TENANT, "ING", "never happened", level="ERROR", run_id=1))
            raise ValueError("undone")

    with pytest.raises(ValueError, match="undone"):
        fail()
    with database.read() as tx:
        assert read_log(tx, 1) == []
    assert "never happened" not in caplog.text


def test_lines_are_filtered_by_stage_and_by_level(database: Database) -> None:
    lines: list[tuple[EventStage, Level]] = [
        ("CRL", "INFO"),
        ("TXT", "WARNING"),
        ("LLM", "ERROR"),
        ("CRL", "ERROR"),
    ]
    with database.write() as tx:
        events = [Event(TENANT, s, f"{s} {level}", level=level, run_id=1) for s, level in lines]
        record(tx, *events)
    with database.read() as tx:
        assert messages(read_log(tx, 1, stages=["crl"])) == ["CRL INFO", "CRL ERROR"]
        assert messages(read_log(tx, 1, level="WARNING")) == [
            "TXT WARNING",
            "LLM ERROR",
            "CRL ERROR",
        ]
        assert messages(read_log(tx, 1, stages=["CRL", "TXT"], level="error")) == ["CRL ERROR"]


@pytest.mark.parametrize("wrong", [{"stages": ["XYZ"]}, {"level": "LOUD"}])
def test_unknown_stages_and_levels_are_refused(
    database: Database, wrong: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match="use"), database.read() as tx:
        read_log(tx, 1, **wrong)  # type: ignore[arg-type]


def test_pages_join_without_a_gap_or_a_repeat(database: Database) -> None:
    write(database, 1, *[f"line {n}" for n in range(25)])
    seen: list[str] = []
    after = 0
    with database.read() as tx:
        while page := read_log(tx, 1, after=after, limit=10):
            seen += messages(page)
            after = page[-1].seq
    assert seen == [f"line {n}" for n in range(25)]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)  # SQLite has one writer
def test_a_line_that_is_committed_late_is_not_lost(database: Database) -> None:
    wrote, go_on = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with database.write() as tx:
            record(tx, Event(TENANT, "ING", "early and late", run_id=1))
            wrote.set()
            go_on.wait(30)

    slow = threading.Thread(target=write_slowly)
    slow.start()
    wrote.wait(30)
    write(database, 1, "quick")
    with database.read() as tx:
        first = read_log(tx, 1)
    go_on.set()
    slow.join()
    with database.read() as tx:
        second = read_log(tx, 1, after=first[-1].seq)
    assert messages(first + second) == ["quick", "early and late"]


def test_a_reader_that_follows_many_writers_sees_every_line_once(database: Database) -> None:
    writers, each = 6, 40
    done = threading.Event()
    seen: list[LogLine] = []

    def follow() -> None:
        after = 0
        while True:
            last = done.is_set()
            with database.read() as tx:
                page = read_log(tx, 1, after=after, limit=7)
            seen.extend(page)
            if page:
                after = page[-1].seq
            elif last:
                return

    reader = threading.Thread(target=follow)
    reader.start()

    def work(writer: int) -> None:
        for number in range(each):
            lines = [f"{writer}/{number}/{n}" for n in range(random.randint(1, 3))]
            write(database, 1, *lines)
            write(database, 2, "of another run")

    run_together(writers, work)
    done.set()
    reader.join()
    with database.read() as tx:
        assert seen == read_log(tx, 1, limit=100_000)
    assert len({line.seq for line in seen}) == len(seen)


def test_python_logging_hears_of_runs_and_documents_apart(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="penstock.events"):
        write(database, 3, "finished")
        write(database, 3, "new", document="jobs/1")
    heard = [(entry.name, entry.getMessage()) for entry in caplog.records]
    assert heard == [
        ("penstock.events.run", "run 3: finished"),
        ("penstock.events.document", "run 3: jobs/1: new"),
    ]


def test_log_lines_are_not_obeyed_by_a_terminal_and_the_stored_ones_are_as_they_were(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    evil = "a\x1b[2Jb\u202ec"
    with caplog.at_level(logging.INFO, logger="penstock.events"):
        write(database, 1, evil)
        write(database, 1, evil, document=evil)
    cleaned = "a\ufffd[2Jb\ufffdc"
    heard = [entry.getMessage() for entry in caplog.records]
    assert heard == [f"run 1: {cleaned}", f"run 1: {cleaned}: {cleaned}"]
    with database.read() as tx:
        stored = read_log(tx, 1)
    assert messages(stored) == [evil, evil]
    assert stored[1].document == evil
