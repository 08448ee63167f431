"""Pages out of a run's log, and one rule for lines in the store and lines in memory."""

import string
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.events import (
    LEVELS,
    STAGES,
    Event,
    LogFilter,
    LogLine,
    count_log,
    page_log,
    read_log,
    record,
)
from penstock.store.database import Database
from tests.factories import TENANT

pytestmark = pytest.mark.both_databases

EVERYTHING = LogFilter()
TRICKY = ("100% sure", "100 sure", "a_b", "aXb", "back\\slash", "a/b", "Ümläut", "", "it's; --")
ASCII = string.printable


def fill(database: Database, run_id: int = 1) -> None:
    """A line of every stage and level, and some that a pattern might mistake."""
    with database.write() as tx:
        for stage, level in product(STAGES, LEVELS):
            event = Event(TENANT, stage, f"{stage} {level}", level=level, run_id=run_id)  # type: ignore[arg-type]
            record(tx, event)
        for text in TRICKY:
            record(tx, Event(TENANT, "TXT", text, run_id=run_id, source="Acme", document="Jobs/1"))
        record(tx, Event(TENANT, "TXT", "of another run", run_id=run_id + 1))


def messages(lines: list[LogLine]) -> list[str]:
    return [line.message for line in lines]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0%", ["100% sure"]),
        ("A_B", ["a_b"]),
        ("k\\s", ["back\\slash"]),
        ("A/B", ["a/b"]),
        ("üMLÄ", ["Ümläut"]),
        ("'S; -", ["it's; --"]),
        ("aCmE", list(TRICKY)),
        ("jobs/", list(TRICKY)),
        ("crl err", ["CRL ERROR"]),
        ("no such", []),
        ("\x00", []),
    ],
)
def test_a_text_is_found_as_it_stands_in_message_document_or_source(
    database: Database, text: str, found: list[str]
) -> None:
    fill(database)
    wanted = LogFilter(text=text)
    with database.read() as tx:
        assert messages(page_log(tx, 1, wanted, offset=0, limit=100)) == found
        assert messages(read_log(tx, 1, text=text)) == found
        assert count_log(tx, 1, wanted) == len(found)


def test_pages_by_place_join_to_the_whole_log(database: Database) -> None:
    fill(database)
    with database.read() as tx:
        whole = read_log(tx, 1)
        pages = [page_log(tx, 1, EVERYTHING, offset=n, limit=7) for n in range(0, 35, 7)]
        errors = LogFilter(level="error")
        assert [line for page in pages for line in page] == whole
        assert count_log(tx, 1, EVERYTHING) == len(whole)
        assert messages(page_log(tx, 1, errors, offset=1, limit=2)) == ["CRL ERROR", "TXT ERROR"]
        assert page_log(tx, 1, EVERYTHING, offset=len(whole), limit=7) == []


def test_an_empty_text_leaves_nothing_out(database: Database) -> None:
    fill(database)
    with database.read() as tx:
        assert read_log(tx, 1, text="", level="") == read_log(tx, 1)


@pytest.mark.parametrize("wrong", [{"stages": ("XYZ",)}, {"level": "LOUD"}])
def test_words_that_no_line_has_are_refused_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="use"):
        LogFilter(**wrong)  # type: ignore[arg-type]


def takes(wanted: LogFilter, line: LogLine) -> bool:
    """The rule in other words."""
    where = [line.message, line.document or "", line.source or ""]
    return (
        (not wanted.stages or line.stage in wanted.stages)
        and line.level in wanted.levels
        and any((wanted.text or "").lower() in one.lower() for one in where)
    )


def test_a_filter_finds_what_its_rule_says(database: Database) -> None:
    fill(database)
    texts = st.none() | st.sampled_from(["1", "%", "_", "ACME", "jobs", "rr"])
    texts |= st.text(ASCII, max_size=2)
    stages = st.lists(st.sampled_from(STAGES), max_size=3, unique=True).map(tuple)
    with database.read() as tx:
        whole = read_log(tx, 1)

        @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.builds(LogFilter, stages, st.none() | st.sampled_from(LEVELS), texts))
        def compare(wanted: LogFilter) -> None:
            found = page_log(tx, 1, wanted, offset=0, limit=1000)
            assert found == [line for line in whole if takes(wanted, line)]
            assert count_log(tx, 1, wanted) == len(found)

        compare()
