"""What a dashboard reads of runs: pages of documents, timelines, reports, costs by day."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.rules.extractor import MODEL as RULES
from penstock.runs.costs import CostLine, FallbackLine, daily_costs, daily_fallbacks
from penstock.runs.report import OutcomeFilter, list_reports, page_documents, report_run
from penstock.runs.run import Change, DocumentStatus, RunStatus
from penstock.runs.timeline import run_timeline
from penstock.store.database import Database, Tx, new_node_id
from penstock.store.schema import extractions, model_calls, run_documents, runs, work_items
from tests.factories import NOON, TENANT, add_source, at

pytestmark = pytest.mark.both_databases


def after_noon(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def add_run(tx: Tx, source: str = "careers", tenant_id: str = TENANT, **values: Any) -> int:
    """A finished run of a minute, unless it is said otherwise."""
    row = {
        "tenant_id": tenant_id,
        "source_id": add_source(tx, source, tenant_id),
        "force": False,
        "status": RunStatus.FINISHED,
        "created_at": NOON,
        "started_at": NOON,
        "listed_at": NOON,
        "finished_at": after_noon(60),
        "ready": 1,
    }
    insert = sa.insert(runs).values(row | values).returning(runs.c.id)
    run_id: int = tx.execute(insert).scalar_one()
    return run_id


def add_document(tx: Tx, run_id: int, external_id: str, **values: Any) -> None:
    row = {
        "run_id": run_id,
        "external_id": external_id,
        "status": DocumentStatus.READY,
        "change": Change.NEW,
        "updated_at": tx.now,
    }
    tx.execute(sa.insert(run_documents).values(row | values))


def add_item(tx: Tx, run_id: int, stage: Stage, begun: float, ended: float, **values: Any) -> None:
    row = {
        "tenant_id": TENANT,
        "node_id": new_node_id(),
        "run_id": run_id,
        "stage": stage,
        "status": "complete",
        "outcome": "done",
        "priority": 0,
        "attempts": 0,
        "rescues": 0,
        "run_at": NOON,
        "payload": {},
        "created_at": NOON,
        "updated_at": NOON,
        "started_at": after_noon(begun),
        "finished_at": after_noon(ended),
    }
    tx.execute(sa.insert(work_items).values(row | values))


# Documents


@pytest.fixture
def documents(database: Database) -> Database:
    """Run 1 with a few documents, run 2 with one more."""
    failed = {"status": DocumentStatus.ERROR, "error_class": "timeout"}
    with database.write() as tx:
        first, second = add_run(tx), add_run(tx, "papers")
        add_document(tx, first, "a_1", url="https://acme.example/Mill")
        add_document(tx, first, "b%2", reason="Took too long", **failed)
        add_document(tx, first, "c", change=Change.CHANGED)
        add_document(tx, first, "d", change=Change.CHANGED, **failed)
        add_document(tx, first, "e", status=DocumentStatus.ERROR, error_class="corruption")
        add_document(tx, second, "aX1")
    return database


def names(database: Database, limit: int = 100, **wanted: Any) -> list[str]:
    with database.read() as tx:
        lines = page_documents(tx, OutcomeFilter(1, **wanted), limit)
    return [line.external_id for line in lines]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["a_1", "b%2", "c", "d", "e"]),
        ({"status": DocumentStatus.ERROR}, ["b%2", "d", "e"]),
        ({"change": Change.CHANGED}, ["c", "d"]),
        ({"error_class": "timeout"}, ["b%2", "d"]),
        ({"error_class": "timeout", "change": Change.CHANGED}, ["d"]),
        ({"status": DocumentStatus.ERROR, "after": "b%2"}, ["d", "e"]),
        ({"status": DocumentStatus.PENDING}, []),
        ({"text": "A_"}, ["a_1"]),
        ({"text": "%"}, ["b%2"]),
        ({"text": "mill"}, ["a_1"]),
        ({"text": "TOO LONG"}, ["b%2"]),
        ({"text": "\x00"}, []),
        ({"text": ""}, ["a_1", "b%2", "c", "d", "e"]),
    ],
)
def test_documents_are_chosen_by_what_became_of_them(
    documents: Database, wanted: dict[str, Any], found: list[str]
) -> None:
    assert names(documents, **wanted) == found


def test_pages_of_documents_join_without_a_gap_or_a_repeat(documents: Database) -> None:
    seen: list[str] = []
    while page := names(documents, 2, after=seen[-1] if seen else None):
        seen += page
    assert seen == ["a_1", "b%2", "c", "d", "e"]


def test_a_page_of_documents_is_read_in_the_order_of_the_primary_key(database: Database) -> None:
    with database.write() as tx:
        run_id = add_run(tx)
        row = {"run_id": run_id, "status": "ready", "change": "new", "updated_at": tx.now}
        lines = [row | {"external_id": f"{n:05}"} for n in range(5000)]
        tx.execute(sa.insert(run_documents), lines)
        if not database.is_sqlite:
            tx.execute(sa.text("ANALYZE run_documents"))
    with database.read() as tx, watched(tx) as statements:
        page = page_documents(tx, OutcomeFilter(run_id, after="02499"), 10)
    assert [line.external_id for line in page] == [f"{n:05}" for n in range(2500, 2510)]
    ((statement, values),) = statements
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.read() as tx:
        plan = str(tx.connection.exec_driver_sql(f"{explain} {statement}", values).all())
    assert ("autoindex" if database.is_sqlite else "run_documents_pkey") in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


@contextmanager
def watched(tx: Tx) -> Iterator[list[tuple[str, Any]]]:
    """What the database is asked meanwhile."""
    asked: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        asked.append((statement, values))

    sa.event.listen(tx.connection, "before_cursor_execute", note)
    yield asked
    sa.event.remove(tx.connection, "before_cursor_execute", note)


# Timelines


def test_a_timeline_counts_what_was_completed_slice_by_slice(database: Database) -> None:
    with database.write() as tx:
        run_id = add_run(tx)
        for ended in (0, 5, 59.9, 60):
            add_item(tx, run_id, Stage.TEXT, ended - 1, ended)
        add_item(tx, run_id, Stage.EMBED, 10, 25)
        add_item(tx, run_id, Stage.EMBED, 10, 25, status="failed", outcome=None)
        add_item(tx, run_id, Stage.EMBED, 10, 3600)
        add_item(tx, add_run(tx, "papers"), Stage.TEXT, 1, 2)
    with database.read() as tx:
        timeline = run_timeline(tx, run_id, slices=6)
    assert timeline is not None
    assert (timeline.begun, timeline.ended) == (NOON, after_noon(60))
    assert timeline.slice_seconds == 10
    assert timeline.done == {
        Stage.TEXT: [2, 0, 0, 0, 0, 2],
        Stage.EXTRACT: [0] * 6,
        Stage.EMBED: [0, 0, 1, 0, 0, 0],
    }


def test_a_timeline_has_the_median_and_the_95th_percentile(database: Database) -> None:
    with database.write() as tx:
        run_id = add_run(tx)
        for took in range(20):
            add_item(tx, run_id, Stage.TEXT, 10, 10 + took)
        add_item(tx, run_id, Stage.EMBED, 0, 5, started_at=None)
    with database.read() as tx:
        timeline = run_timeline(tx, run_id)
    assert timeline is not None
    assert timeline.latency_seconds == {
        Stage.TEXT: {0.5: 10.0, 0.95: 19.0},
        Stage.EXTRACT: {0.5: 0.0, 0.95: 0.0},
        Stage.EMBED: {0.5: 0.0, 0.95: 0.0},
    }


def test_a_sample_of_a_long_run_reaches_all_of_its_stages(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runs.timeline.SAMPLE", 10)
    with database.write() as tx:
        run_id = add_run(tx)
        for stage in [stage for _ in range(8) for stage in Stage for _ in range(4)]:
            add_item(tx, run_id, stage, 10, 13)
    with database.read() as tx:
        timeline = run_timeline(tx, run_id)
    assert timeline is not None
    assert timeline.latency_seconds == {stage: {0.5: 3.0, 0.95: 3.0} for stage in Stage}


def test_a_run_that_goes_on_has_a_timeline_until_now(database: Database) -> None:
    with database.write() as tx:
        run_id = add_run(tx, status=RunStatus.INGESTING, finished_at=None)
        add_item(tx, run_id, Stage.TEXT, 1, 2)
    with at(database, 120) as tx:
        timeline = run_timeline(tx, run_id, slices=2)
    assert timeline is not None
    assert (timeline.ended, timeline.done[Stage.TEXT]) == (after_noon(120), [1, 0])


def test_a_run_without_completed_items_has_no_timeline(database: Database) -> None:
    with database.write() as tx:
        run_id = add_run(tx)
        add_item(tx, run_id, Stage.TEXT, 1, 2, status="failed")
        pending = add_run(tx, "papers", status=RunStatus.PENDING, started_at=None)
    with database.read() as tx:
        assert [run_timeline(tx, one) for one in (run_id, pending, 99)] == [None] * 3


def test_a_run_of_no_length_has_a_timeline(database: Database) -> None:
    with database.write() as tx:
        run_id = add_run(tx, finished_at=NOON)
        add_item(tx, run_id, Stage.TEXT, 0, 0)
    with database.read() as tx:
        timeline = run_timeline(tx, run_id, slices=3)
    assert timeline is not None
    assert timeline.done[Stage.TEXT] == [1, 0, 0]


# Reports


def fill_runs(database: Database) -> list[int]:
    """Four runs of one tenant, one of them active, one with figures that were kept."""
    with at(database) as tx:
        kept = {
            "stages": {
                stage: {"total": 9, "done": 8, "failed": 1, "reused": 3, "worked": 5}
                for stage in Stage
            },
            "changes": dict.fromkeys(Change, 2),
        }
        active: dict[str, Any] = {"status": RunStatus.INGESTING, "finished_at": None, "ready": None}
        ids = [
            add_run(tx, "one"),
            add_run(tx, "two", figures=kept),
            add_run(tx, "three", flow_run_id="flow-3"),
            add_run(tx, "four", **active),
        ]
        add_run(tx, "theirs", "globex")
        for number, run_id in enumerate(ids, start=1):
            for n in range(number):
                add_document(tx, run_id, str(n), change=Change.CHANGED)
                add_item(tx, run_id, Stage.EXTRACT, 1, 2)
                add_call(tx, NOON, run_id=run_id, prompt_tokens=number)
                add_extraction(tx, NOON, run_id=run_id, fallback_reason="low_confidence")
    return ids


def test_reports_are_listed_as_each_is_reported(database: Database) -> None:
    ids = fill_runs(database)
    with database.read() as tx:
        listed = list_reports(tx, TENANT, 10)
        alone = [report_run(tx, run_id) for run_id in reversed(ids)]
    assert listed == alone
    four, three, two, _ = listed
    assert (four.counts[DocumentStatus.READY], four.changes[Change.CHANGED]) == (4, 4)
    assert (three.stages[Stage.EXTRACT].worked, three.spending.fallbacks) == (3, 3)
    assert three.spending.models["small"].prompt_tokens == 9
    assert (two.stages[Stage.TEXT].reused, two.changes[Change.NEW]) == (3, 2)


def test_reports_are_listed_page_by_page(database: Database) -> None:
    one, two, three, four = fill_runs(database)
    with database.read() as tx:
        pages = [list_reports(tx, TENANT, 2, before) for before in (None, three, one)]
    assert [[report.run.id for report in page] for page in pages] == [[four, three], [two, one], []]


def test_a_long_list_of_reports_asks_no_more_than_a_short_one(database: Database) -> None:
    fill_runs(database)
    asked = []
    for limit in (1, 3):
        with database.read() as tx, watched(tx) as statements:
            list_reports(tx, TENANT, limit)
        asked.append(len(statements))
    assert asked[0] == asked[1]


def test_a_report_has_its_times_and_its_flow_run(database: Database) -> None:
    ids = fill_runs(database)
    with database.read() as tx:
        told = report_run(tx, ids[2]).as_json()
        active = report_run(tx, ids[3]).as_json()
    assert told["created_at"] == told["started_at"] == NOON.isoformat()
    assert (told["finished_at"], told["flow_run_id"]) == (after_noon(60).isoformat(), "flow-3")
    assert (active["finished_at"], active["flow_run_id"]) == (None, None)


# Costs


def add_call(tx: Tx, called_at: datetime, **values: Any) -> None:
    row = {
        "tenant_id": TENANT,
        "node_id": new_node_id(),
        "model": "small",
        "outcome": "accepted",
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "cached_tokens": 1,
        "seconds": 0.5,
        "cost_usd": 0.25,
        "called_at": called_at,
    }
    tx.execute(sa.insert(model_calls).values(row | values))


def add_extraction(tx: Tx, extracted_at: datetime, **values: Any) -> None:
    row = {
        "tenant_id": TENANT,
        "node_id": new_node_id(),
        "cache_key": new_node_id(),
        "profile": "document",
        "version": "1",
        "model": "small",
        "confidence": 0.9,
        "fields": {},
        "extracted_at": extracted_at,
    }
    tx.execute(sa.insert(extractions).values(row | values))


def days(lines: Sequence[CostLine | FallbackLine]) -> list[int]:
    return [line.day.day for line in lines]


def test_costs_are_summed_by_day_tenant_and_model(database: Database) -> None:
    with at(database) as tx:
        add_call(tx, NOON)
        add_call(tx, NOON, outcome="low_confidence")
        add_call(tx, NOON, model="large", cost_usd=2.0)
        add_call(tx, NOON, tenant_id="globex")
        add_call(tx, NOON - timedelta(days=1))
        everybody = daily_costs(tx, None, days=7)
        ours = daily_costs(tx, TENANT, days=7)
    today = NOON.date()
    assert everybody == [
        CostLine(today, TENANT, "large", 1, 100, 10, 1, 2.0),
        CostLine(today, TENANT, "small", 2, 200, 20, 2, 0.5),
        CostLine(today, "globex", "small", 1, 100, 10, 1, 0.25),
        CostLine(today - timedelta(days=1), TENANT, "small", 1, 100, 10, 1, 0.25),
    ]
    assert ours == [line for line in everybody if line.tenant_id == TENANT]


def test_days_are_those_of_utc_whatever_the_session_says(database: Database) -> None:
    midnight = datetime(2031, 5, 4, tzinfo=UTC)
    with at(database) as tx:
        if not database.is_sqlite:
            tx.execute(sa.text("SET LOCAL TIME ZONE 'Pacific/Auckland'"))
        for second in (-1, 0, 86_399):
            add_call(tx, midnight + timedelta(seconds=second))
            add_extraction(tx, midnight + timedelta(seconds=second))
        found = daily_costs(tx, None, days=2)
        assert [(line.day, line.calls) for line in found] == [
            (date(2031, 5, 4), 2),
            (date(2031, 5, 3), 1),
        ]
        assert days(daily_costs(tx, None, days=1)) == [4]
        assert days(daily_fallbacks(tx, None, days=2)) == [4, 3]
        assert days(daily_fallbacks(tx, TENANT, days=1)) == [4]


def test_fallbacks_are_counted_among_what_models_answered(database: Database) -> None:
    with at(database) as tx:
        add_extraction(tx, NOON)
        add_extraction(tx, NOON, model="large", fallback_reason="low_confidence")
        add_extraction(tx, NOON, tenant_id="globex", fallback_reason="truncated")
        add_extraction(tx, NOON, model=RULES)
        add_extraction(tx, NOON - timedelta(days=1), model=RULES)
        ours = daily_fallbacks(tx, TENANT, days=7)
        everybody = daily_fallbacks(tx, None, days=7)
    assert ours == [FallbackLine(NOON.date(), 2, 1)]
    assert everybody == [FallbackLine(NOON.date(), 3, 2)]
    assert ours[0].rate == 0.5
    assert FallbackLine(NOON.date(), 0, 0).rate == 0
