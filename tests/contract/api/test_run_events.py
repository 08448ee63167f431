"""A run's log as it is written, without a gap and without a line twice."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.events import Event, record
from penstock.runs.lifecycle import abort_run
from penstock.runs.run import RunLease
from penstock.store.database import Database
from tests.contract.api.service import Service
from tests.contract.api.streams import Reader
from tests.contract.ingestion import Workplace, make_text
from tests.factories import TENANT
from tests.together import run_together

QUERY = f"tenant_id={TENANT}"


@pytest.fixture
def workplace(database: Database, tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(database, tmp_path / "work")
    yield workplace
    workplace.close()


def reader_of(service: Service, run_id: int, query: str = QUERY) -> Reader:
    return Reader(service, f"/runs/{run_id}/events", query)


def logged(service: Service, run_id: int) -> list[int]:
    lines = service.get(f"/runs/{run_id}/logs", tenant_id=TENANT, limit=10_000)["lines"]
    return [line["seq"] for line in lines]


def say(database: Database, lease: RunLease, message: str) -> None:
    with database.write() as tx:
        record(tx, Event(TENANT, "ING", message, run_id=lease.run.id))


def test_an_ended_run_is_told_to_its_end(service: Service, workplace: Workplace) -> None:
    workplace.write("a.txt", make_text("a"))
    run_id = workplace.ingest().run.id

    reader = reader_of(service, run_id).read()

    assert dict(reader.answer["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert dict(reader.answer["headers"])[b"cache-control"] == b"no-store"
    assert reader.numbers == logged(service, run_id)
    assert reader.has_ended
    assert reader.events[-1].data == {"run_id": run_id}
    first = reader.events[0]
    assert first.event == "log"
    assert first.data["seq"] == first.id
    assert first.data.keys() >= {"at", "stage", "level", "message", "document"}


def test_a_reader_that_lost_its_connection_goes_on_where_it_was(
    service: Service, workplace: Workplace
) -> None:
    for name in "abc":
        workplace.write(f"{name}.txt", make_text(name))
    run_id = workplace.ingest().run.id
    whole = logged(service, run_id)

    for cut in range(len(whole)):
        reader = reader_of(service, run_id)
        if cut:
            reader.read(most=cut)
            assert reader.numbers == whole[:cut]
        reader.read()
        assert reader.numbers == whole, f"cut after {cut}"
        assert reader.has_ended


def test_lines_are_sent_as_they_are_written_until_the_run_ends(
    service: Service, workplace: Workplace
) -> None:
    lease = workplace.open()
    written = threading.Event()

    def write(number: int) -> None:
        for line in range(20):
            say(workplace.database, lease, f"line {line} of writer {number}")

    def end() -> None:
        run_together(4, write)
        written.set()
        abort_run(workplace.database, workplace.app.queue, lease.run.id, reason="enough")

    ending = threading.Thread(target=end)
    reader = reader_of(service, lease.run.id)
    ending.start()
    try:
        while not reader.has_ended:
            # Cut again and again while lines come.
            reader.read(most=None if written.is_set() else 7)
    finally:
        ending.join()

    assert reader.numbers == logged(service, lease.run.id)
    messages = [one.data["message"] for one in reader.events if one.event == "log"]
    assert len([one for one in messages if " of writer " in one]) == 80
    assert any("aborted" in one for one in messages)


def test_a_reader_may_begin_in_the_middle(service: Service, workplace: Workplace) -> None:
    workplace.write("a.txt", make_text("a"))
    run_id = workplace.ingest().run.id
    whole = logged(service, run_id)

    assert reader_of(service, run_id, f"{QUERY}&after={whole[2]}").read().numbers == whole[3:]
    asked = reader_of(service, run_id, f"{QUERY}&after={whole[0]}")
    asked.headers["last-event-id"] = str(whole[2])
    assert asked.read().numbers == whole[3:], "what was received last counts more"


@pytest.mark.parametrize("odd", ["", "x", "-1", "9" * 30, "9" * 5000, "1.5"])
def test_an_odd_last_event_id_begins_at_the_beginning(
    service: Service, workplace: Workplace, odd: str
) -> None:
    run_id = workplace.ingest().run.id
    reader = reader_of(service, run_id)
    reader.headers["last-event-id"] = odd

    assert reader.read().numbers == logged(service, run_id)


def test_a_reader_may_want_only_what_went_wrong(service: Service, workplace: Workplace) -> None:
    workplace.write("bad.txt", make_text("bad"))
    workplace.steps.on(Stage.TEXT, "bad", Fault(ErrorClass.CORRUPTION, "it is broken"))
    run_id = workplace.ingest().run.id

    reader = reader_of(service, run_id, f"{QUERY}&level=ERROR").read()

    assert [one.data["message"] for one in reader.events[:-1]] == ["corruption: it is broken"]
    assert reader.has_ended
