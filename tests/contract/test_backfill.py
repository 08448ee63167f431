"""Which nodes a backfill takes: each of them once, and never too many at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backfill.backfill import (
    BACKFILL_PRIORITY,
    BackfillStatus,
    Dispatcher,
    abort_backfill,
    count_failed,
    finish_backfill,
    interruptible,
    leave_backfills,
    list_backfills,
    open_backfill,
    read_backfill,
)
from penstock.backfill.selection import choose_nodes
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass, NotFound, UsageError
from penstock.operations.nodes import delete_node
from penstock.queue.items import ItemPayload, ItemStatus, NewItem
from penstock.runs.up_to_date import USUAL, Reason
from penstock.settings import EmbeddingSettings, ExtractionSettings
from penstock.store.database import Database
from penstock.store.schema import backfills, metadata, model_calls, nodes, work_items
from tests.contract.backfilling import BODY, UP_TO_DATE, Archive
from tests.factories import TENANT, add_source, read_rows
from tests.together import run_together

pytestmark = pytest.mark.both_databases

BROKEN = Fault(ErrorClass.CORRUPTION, "the file is broken")
OTHER = "other/model@8"


@pytest.fixture
def archive(database: Database, tmp_path: Path) -> Iterator[Archive]:
    archive = Archive(database, tmp_path / "home")
    yield archive
    archive.close()


def kill(archive: Archive, node_id: str, stage: Stage, **payload: Any) -> int:
    """Have an item of this node end as a dead letter, as the pipeline leaves it; its id."""
    queue = archive.app.queue
    with archive.database.write() as tx:
        item = NewItem(TENANT, node_id, stage, payload=ItemPayload("x.txt", **payload))
        number = queue.enqueue(tx, [item])[node_id, stage]
        claim = queue.claim(tx, "worker", only=[number])
        queue.fail(tx, claim, [(claim.items[0], BROKEN)])
        what = "embedding" if stage is Stage.EMBED else "extraction"
        failed = sa.update(nodes).where(nodes.c.id == node_id)
        tx.execute(failed.values({f"{what}_status": "failed", f"{what}_error": "broken"}))
    return number


# ---- reasons -------------------------------------------------------------------------------


def test_nodes_of_another_version_are_outdated(archive: Archive) -> None:
    archive.put()
    older = archive.put(extraction_version="0.9.0")
    skipped = archive.put(
        extraction_version="0.9.0", extraction_status="skipped", extracted_at=None
    )
    never = archive.put(extraction_version=None, extraction_status=None, given={"extract": False})

    archive.start(Reason.OUTDATED).dispatch()

    assert archive.placed() == {older: Stage.EXTRACT, skipped: Stage.EXTRACT}
    archive.drain()
    assert archive.read(older).extraction_version == UP_TO_DATE
    assert archive.read(never).extraction_status is None


def test_what_was_never_extracted_is_only_what_should_be(archive: Archive) -> None:
    with archive.database.write() as tx:
        source = add_source(tx)
    never: dict[str, Any] = {"extraction_version": None, "extraction_status": None}
    of_run = archive.put(**never, source_id=source, given=None)
    lost = archive.put(**(never | {"extraction_status": "queued"}))
    archive.put(**never, given={"extract": False})
    undecided = archive.put(**never, given={"extract": None})
    archive.put(**never, given=None, source_id=None, url="file:///attachment.txt")

    archive.start(Reason.UNEXTRACTED).dispatch()
    assert archive.placed() == {of_run: Stage.EXTRACT, lost: Stage.EXTRACT}

    archive.drain()
    extraction = archive.app.settings.extraction.model_copy(update={"enabled": True})
    archive.app.settings = archive.app.settings.model_copy(update={"extraction": extraction})
    archive.start(Reason.UNEXTRACTED).dispatch()
    assert archive.placed() == {undecided: Stage.EXTRACT}, "runs extract, and HTTP if it is enabled"


def test_failed_nodes_begin_where_they_failed_and_dead_letters_are_requeued(
    archive: Archive,
) -> None:
    archive.put()
    extraction = archive.put()
    embedding = archive.put()
    textless = archive.put(text=None, vector=None, extraction_version=None)
    raw = archive.app.raw.put(TENANT, "none", "x.txt", BODY.encode(), "txt")
    dead = {
        kill(archive, extraction, Stage.EXTRACT),
        kill(archive, embedding, Stage.EMBED),
        kill(archive, textless, Stage.TEXT, raw_key=raw, size=len(BODY)),
    }

    dispatcher = archive.start(Reason.FAILED)
    dispatcher.dispatch()

    assert archive.placed() == {
        extraction: Stage.EXTRACT,
        embedding: Stage.EMBED,
        textless: Stage.TEXT,
    }
    assert {row.id for row in archive.waiting()} == dead, "their history goes on"
    assert all(row.priority == BACKFILL_PRIORITY for row in archive.waiting())
    archive.drain()
    assert dispatcher.count_left() == 0
    for node_id in (extraction, embedding, textless):
        node = archive.read(node_id)
        assert (node.extraction_status, node.embedding_status) == ("ready", "ready")


def test_a_node_without_text_and_without_anything_to_read_is_left_alone(archive: Archive) -> None:
    lost = archive.put(text=None, vector=None, extraction_status="failed", extraction_version=None)

    backfill = archive.backfill(Reason.FAILED)

    assert (backfill.status, backfill.enqueued) == (BackfillStatus.FINISHED, 0)
    assert archive.read(lost).extraction_status == "failed"


def test_missing_and_foreign_vectors_are_made(archive: Archive) -> None:
    archive.put()
    foreign = archive.put(vector=OTHER)
    missing = archive.put(vector=None)
    lost = archive.put(vector=None, embedding_status="ready", embedding_identity=archive.identity)
    archive.put(vector=None, embedding_status="skipped", text="")
    archive.put(vector=None, text=None)
    archive.put(vector=None, given=None, url="file:///attachment.txt")

    archive.start(Reason.VECTORS).dispatch()

    assert archive.placed() == dict.fromkeys((foreign, missing, lost), Stage.EMBED)
    archive.drain()
    assert archive.estimate(Reason.VECTORS).nodes == 0, "also what claimed to have one has one now"


def test_stale_nodes_are_done_again_although_nothing_changed(archive: Archive) -> None:
    long_ago, lately = archive.ago(40), archive.ago(20)
    archive.put(extracted_at=lately, embedded_at=long_ago)
    old = archive.put(extracted_at=long_ago)
    embedded = archive.put(
        extraction_status=None,
        extraction_version=None,
        extracted_at=None,
        embedded_at=long_ago,
        given={"extract": False},
    )
    archive.steps.count(Stage.EXTRACT)

    backfill = archive.backfill(Reason.STALE, stale_days=30)

    assert backfill.enqueued == 2
    assert archive.read(old).extracted_at > lately
    assert archive.read(embedded).embedded_at > lately
    assert archive.steps.count(Stage.EXTRACT) == 1
    assert archive.steps.count(Stage.EMBED) == 2
    assert archive.estimate(Reason.STALE, stale_days=30).nodes == 0


def test_a_node_with_several_reasons_begins_at_the_first_stage_it_needs(archive: Archive) -> None:
    node = archive.put(extraction_version="0.9.0", vector=OTHER)

    found = archive.estimate()
    archive.start().dispatch()

    assert found.reasons[Reason.OUTDATED] == found.reasons[Reason.VECTORS] == found.nodes == 1
    assert archive.placed() == {node: Stage.EXTRACT}


def test_expired_nodes_and_nodes_at_work_are_never_taken(archive: Archive) -> None:
    archive.put(extraction_version="0.9.0", expired_at=archive.ago(1))
    at_work = [archive.put(extraction_version="0.9.0") for _ in range(2)]
    embedding = archive.put(extraction_version="0.9.0", vector=OTHER)
    with archive.database.write() as tx:
        stages = zip((*at_work, embedding), (Stage.TEXT, Stage.EXTRACT, Stage.EMBED), strict=True)
        archive.app.queue.enqueue(tx, [NewItem(TENANT, node, stage) for node, stage in stages])

    assert archive.start(Reason.VECTORS).dispatch().enqueued == 0
    assert archive.start(Reason.OUTDATED).dispatch().enqueued == 1
    assert {row.node_id for row in archive.waiting(work_items.c.priority < 0)} == {embedding}


# ---- filters -------------------------------------------------------------------------------


def test_a_backfill_is_for_a_tenant_a_source_or_all_tenants(archive: Archive) -> None:
    with archive.database.write() as tx:
        mine, theirs = add_source(tx), add_source(tx, tenant_id="globex")
    old = {"extraction_version": "0.9.0"}
    plain = archive.put(**old)
    sourced = archive.put(**old, source_id=mine, given=None)
    foreign = archive.put(**old, source_id=theirs, given=None, tenant_id="globex")

    def found(**wanted: Any) -> set[str]:
        dispatcher = archive.start(Reason.OUTDATED, **wanted)
        dispatcher.dispatch()
        placed = set(archive.placed())
        abort_backfill(archive.database, archive.app.queue, dispatcher.backfill_id)
        assert not archive.waiting(), "what waited is cancelled"
        return placed

    assert found() == {plain, sourced}
    assert found(source="careers") == {sourced}
    assert found(tenant="globex") == {foreign}
    assert found(all_tenants=True) == {plain, sourced, foreign}
    assert found(all_tenants=True, source="careers") == {sourced, foreign}
    assert archive.read(plain).extraction_status == "ready", "as it was before"


def test_a_second_backfill_with_a_limit_does_the_next_ones(archive: Archive) -> None:
    old = [archive.put(extraction_version="0.9.0", text=f"{n} {BODY}") for n in range(5)]
    archive.steps.on(Stage.EXTRACT, "Ulm", *[BROKEN] * 2)

    first = archive.backfill(Reason.OUTDATED, limit=2)
    assert (first.enqueued, first.status) == (2, BackfillStatus.FINISHED)
    assert [archive.read(node).extraction_status for node in old[:2]] == ["failed"] * 2
    archive.backfill(Reason.OUTDATED, limit=2)
    third = archive.backfill(Reason.OUTDATED, limit=2)

    assert third.enqueued == 1
    versions = [archive.read(node).extraction_version for node in old]
    assert versions == ["0.9.0"] * 2 + [UP_TO_DATE] * 3, "failing ones do not stand in the way"
    fourth = archive.backfill(Reason.OUTDATED, limit=2)
    assert fourth.enqueued == 2, "and when all were tried, it begins again"
    assert archive.read(old[0]).extraction_version == UP_TO_DATE


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"reasons": ["rotten"]}, "not a reason: use some of outdated"),
        ({"reasons": ["stale"]}, "belong together"),
        ({"reasons": ["failed"], "stale_days": 3}, "belong together"),
        ({"limit": 0}, "limit is 0"),
        ({"stale_days": -1}, "stale_days is -1"),
        ({"stale_days": float("nan")}, "stale_days is nan"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(
    archive: Archive, wanted: Any, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        choose_nodes(archive.app, TENANT, **wanted)


def test_days_alone_mean_stale_ones_beside_the_others(archive: Archive) -> None:
    assert choose_nodes(archive.app, TENANT, stale_days=1).reasons == (*USUAL, Reason.STALE)
    assert Reason.STALE not in choose_nodes(archive.app, TENANT).reasons


def test_a_tenant_or_all_of_them_but_not_both_and_a_source_that_exists(archive: Archive) -> None:
    with pytest.raises(UsageError, match="one of the two"):
        archive.choose(tenant=None)
    for wanted in ({}, {"all_tenants": True}):
        with pytest.raises(NotFound, match="nowhere"):
            archive.choose(source="nowhere", **wanted)


# ---- estimates -----------------------------------------------------------------------------


def test_a_dry_run_counts_and_changes_nothing(archive: Archive) -> None:
    for _ in range(3):
        archive.put(extraction_version="0.9.0")
    archive.put(vector=OTHER)
    archive.put(text=None, vector=None, extraction_status="failed", raw_key="some/key")
    before = read_rows(archive.database, *metadata.sorted_tables)

    found = archive.estimate()
    limited = archive.estimate(limit=2)

    assert read_rows(archive.database, *metadata.sorted_tables) == before
    assert found.as_json() == {
        "matching": 5,
        "nodes": 5,
        "reasons": {"outdated": 3, "unextracted": 0, "failed": 1, "vectors": 1, "passages": 0},
        "stages": {"text": 1, "extract": 3, "embed": 1},
        "extractions": 4,
        "cost_usd": 0.0,
        "cost_basis": "offline rules",
    }
    assert (limited.matching, limited.nodes, limited.extractions) == (5, 2, 2)


def ask_models(archive: Archive, **extraction: Any) -> None:
    settings = ExtractionSettings(base_url="http://localhost:1", **extraction)
    archive.app.settings = archive.app.settings.model_copy(update={"extraction": settings})


def record_call(archive: Archive, tenant_id: str, model: str, tokens: tuple[int, int]) -> None:
    with archive.database.write() as tx:
        row = {
            "tenant_id": tenant_id,
            "node_id": "00000000-0000-0000-0000-000000000001",
            "model": model,
            "outcome": "accepted",
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "seconds": 1.0,
            "cost_usd": 0.0,
            "called_at": tx.now,
        }
        tx.execute(sa.insert(model_calls).values(row))


def test_costs_come_from_past_calls_else_from_lengths_else_are_unknown(archive: Archive) -> None:
    ask_models(archive)
    assert archive.estimate().cost.basis == "nothing to ask"
    archive.put(extraction_version="0.9.0", text=None, raw_key="some/key")
    assert archive.estimate().cost.usd is None, "no text, and nothing was ever asked"

    archive.put(extraction_version="0.9.0", text="x" * 4000)
    by_length = archive.estimate().cost
    assert by_length.basis == "text lengths"
    assert by_length.usd == pytest.approx(2 * (1500 * 0.075 + 300 * 0.30) / 1e6)

    record_call(archive, "globex", "openai/gpt-oss-20b", (10_000, 1000))
    assert archive.estimate().cost.usd == pytest.approx(2 * (10_000 * 0.075 + 1000 * 0.30) / 1e6)
    record_call(archive, TENANT, "openai/gpt-oss-20b", (2000, 200))
    record_call(archive, TENANT, "openai/gpt-oss-120b", (1000, 100))
    own = archive.estimate().cost
    each = (2000 * 0.075 + 200 * 0.30 + 1000 * 0.15 + 100 * 0.60) / 1e6
    assert own.usd == pytest.approx(2 * each)
    assert own.basis == "past calls"

    ask_models(archive, primary_model="llama3.2", fallback_model="llama3.2")
    unpriced = archive.estimate().cost
    assert unpriced.usd is None
    assert "EXTRACTION_PRICES" in str(unpriced)


# ---- batches, crashes, company -------------------------------------------------------------


@pytest.mark.full_suite
def test_five_thousand_nodes_never_flood_the_queue(archive: Archive) -> None:
    archive.put_many(5000)
    dispatcher = archive.start(Reason.OUTDATED, window=300)
    most = 0
    while not (done := dispatcher.dispatch()).exhausted:
        waiting = len(archive.waiting())
        most = max(most, waiting)
        if not dispatcher.has_room():
            work_off(archive, 200)
        assert done.enqueued <= 300
    while archive.waiting():
        work_off(archive, 500)

    assert most == 300
    assert finish_backfill(archive.database, dispatcher.backfill_id)
    with archive.database.read() as tx:
        assert read_backfill(tx, dispatcher.backfill_id).enqueued == 5000
        per_node = sa.select(sa.func.count()).select_from(work_items).group_by(work_items.c.node_id)
        assert set(tx.execute(per_node).scalars()) == {1}, "each of them once"


def work_off(archive: Archive, count: int) -> None:
    """As if so many items had been done."""
    with archive.database.write() as tx:
        claim = archive.app.queue.claim(tx, "worker", limit=count)
        done = {"status": "complete", "lease_token": None, "finished_at": tx.now}
        tx.execute(sa.update(work_items).where(work_items.c.id.in_(claim.ids)).values(done))


def test_a_small_queue_keeps_room_for_fresh_work(archive: Archive) -> None:
    from penstock.backfill.backfill import dispatcher

    small = EmbeddingSettings(backend="hash", tenant_max_pending=50)
    archive.app.settings = archive.app.settings.model_copy(update={"embedding": small})
    backfill = open_backfill(archive.database, archive.choose())

    assert dispatcher(archive.app, backfill).window == 25


def test_fresh_work_comes_first(archive: Archive) -> None:
    for _ in range(3):
        archive.put(extraction_version="0.9.0")
    archive.start(Reason.OUTDATED).dispatch()
    fresh = archive.put()
    with archive.database.write() as tx:
        archive.app.queue.enqueue(tx, [NewItem(TENANT, fresh, Stage.EXTRACT)])
        claim = archive.app.queue.claim(tx, "worker", limit=2)

    assert [item.priority for item in claim.items] == [0, BACKFILL_PRIORITY]


def die(point: str) -> None:
    raise ZeroDivisionError(point)


def test_a_backfill_that_was_killed_is_taken_up_where_it_stopped(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [archive.put(extraction_version="0.9.0") for _ in range(10)]
    first = archive.start(Reason.OUTDATED, window=4)
    assert first.dispatch().enqueued == 4
    archive.drain()

    monkeypatch.setattr("penstock.backfill.backfill.hit", die)
    with pytest.raises(ZeroDivisionError):
        first.dispatch()
    monkeypatch.undo()
    assert not archive.waiting(), "it died before the commit"

    second = archive.start(Reason.OUTDATED, window=4)
    assert second.backfill_id == first.backfill_id
    for _ in archive.batches(second):
        archive.drain()

    assert [archive.read(node).extraction_version for node in old] == [UP_TO_DATE] * 10
    assert archive.steps.count(Stage.EXTRACT) == 1, "all texts are equal, and asked once"
    with archive.database.read() as tx:
        assert read_backfill(tx, second.backfill_id).enqueued == 10
        extracts = sa.select(work_items.c.node_id).where(work_items.c.stage == Stage.EXTRACT)
        assert sorted(tx.execute(extracts).scalars()) == sorted(old), "none twice, none left out"


def test_a_backfill_is_finished_when_its_own_items_are_done(archive: Archive) -> None:
    archive.put(extraction_version="0.9.0")
    dispatcher = archive.start(Reason.OUTDATED)
    for _ in archive.batches(dispatcher):
        pass

    assert not finish_backfill(archive.database, dispatcher.backfill_id)
    assert archive.start(Reason.OUTDATED).backfill_id == dispatcher.backfill_id
    archive.drain()
    assert finish_backfill(archive.database, dispatcher.backfill_id)
    assert archive.start(Reason.OUTDATED).backfill_id != dispatcher.backfill_id


def test_a_node_that_always_fails_is_tried_once_in_a_backfill(archive: Archive) -> None:
    bad = archive.put(text=f"poison {BODY}", extraction_version="0.9.0")
    good = archive.put(extraction_version="0.9.0")
    archive.steps.on(Stage.EXTRACT, "poison", *[BROKEN] * 9)

    first = archive.backfill(Reason.OUTDATED, Reason.FAILED, window=1)

    assert (first.status, first.enqueued) == (BackfillStatus.FINISHED, 2)
    assert (archive.read(bad).extraction_status, archive.read(good).extraction_status) == (
        "failed",
        "ready",
    )
    assert len(archive.steps.trouble[Stage.EXTRACT, "poison"]) == 8, "it failed at once, and once"
    with archive.database.read() as tx:
        assert count_failed(tx, first.id) == 1
    archive.backfill(Reason.OUTDATED, Reason.FAILED)
    assert len(archive.steps.trouble[Stage.EXTRACT, "poison"]) == 7, "the next one tries it again"


def test_two_at_once_share_one_backfill_and_one_window(archive: Archive) -> None:
    archive.put_many(400)
    with archive.database.write() as tx:
        tx.execute(sa.update(nodes).where(nodes.c.seq <= 200).values(tenant_id="globex"))
    selections = [archive.choose(Reason.OUTDATED, tenant=name) for name in (TENANT, "globex")] * 2
    opened = run_together(4, lambda n: archive.take_up(selections[n], window=90))
    assert len({dispatcher.backfill_id for dispatcher in opened}) == 2

    run_together(4, lambda n: opened[n].dispatch())
    assert len(archive.waiting()) == 90

    def go_on(dispatcher: Dispatcher) -> None:
        while not dispatcher.dispatch().exhausted:
            work_off(archive, 30)

    run_together(4, lambda n: go_on(opened[n]))
    with archive.database.read() as tx:
        assert [one.enqueued for one in list_backfills(tx, None, 9)] == [200, 200]
        counted = sa.select(sa.func.count(), sa.func.count(sa.distinct(work_items.c.node_id)))
        assert tuple(tx.execute(counted).one()) == (400, 400)


def test_a_bump_in_the_middle_starts_anew_for_all(archive: Archive) -> None:
    for _ in range(4):
        archive.put(extraction_version="0.9.0")
    first = archive.start(Reason.OUTDATED, window=2)
    first.dispatch()
    archive.drain()

    extraction = archive.app.settings.extraction.model_copy(update={"version": "2.0.0"})
    archive.app.settings = archive.app.settings.model_copy(update={"extraction": extraction})
    second = archive.backfill(Reason.OUTDATED)

    assert second.enqueued == 4
    with archive.database.read() as tx:
        assert read_backfill(tx, first.backfill_id).status is BackfillStatus.ABORTED


def test_a_run_that_meets_the_node_takes_the_work_over(archive: Archive) -> None:
    node = archive.put(extraction_version="0.9.0")
    dispatcher = archive.start(Reason.OUTDATED)
    dispatcher.dispatch()
    with archive.database.write() as tx:
        fresh = NewItem(TENANT, node, Stage.EXTRACT, payload=ItemPayload("x"))
        archive.app.queue.enqueue(tx, [fresh], replace_active=True)

    assert dispatcher.count_left() == 0
    assert [row.priority for row in archive.waiting()] == [0]


def test_an_aborted_backfill_leaves_what_a_worker_is_at(archive: Archive) -> None:
    archive.put_many(3)
    dispatcher = archive.start(Reason.OUTDATED)
    dispatcher.dispatch()
    with archive.database.write() as tx:
        held = archive.app.queue.claim(tx, "worker", limit=1)

    with pytest.raises(NotFound):
        abort_backfill(archive.database, archive.app.queue, dispatcher.backfill_id, "globex")
    cancelled = abort_backfill(archive.database, archive.app.queue, dispatcher.backfill_id, TENANT)

    assert cancelled == 2
    assert [row.id for row in archive.waiting()] == held.ids
    assert dispatcher.dispatch().exhausted
    with pytest.raises(UsageError, match="is aborted already"):
        abort_backfill(archive.database, archive.app.queue, dispatcher.backfill_id)


def test_nodes_deleted_meanwhile_get_no_work(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = (archive.put(extraction_version="0.9.0") for _ in range(2))
    dispatcher = archive.start(Reason.OUTDATED)
    find = Dispatcher._find

    def find_and_lose(*args: Any) -> Any:
        numbers = find(*args)
        delete_node(archive.database, archive.app.queue, archive.app.raw, TENANT, gone)
        return numbers

    monkeypatch.setattr(Dispatcher, "_find", find_and_lose)

    assert dispatcher.dispatch().enqueued == 1
    assert set(archive.placed()) == {kept}


def test_backfills_are_listed_newest_first_and_of_their_tenant(archive: Archive) -> None:
    archive.put(extraction_version="0.9.0")
    archive.backfill(Reason.OUTDATED)
    archive.start(Reason.FAILED)
    archive.start(all_tenants=True)

    with archive.database.read() as tx:
        assert [one.selection.reasons[0] for one in list_backfills(tx, TENANT, 9)] == [
            Reason.FAILED,
            Reason.OUTDATED,
        ]
        assert len(list_backfills(tx, None, 9)) == 3
        shown = list_backfills(tx, TENANT, 9)[1].as_json()
    assert (shown["status"], shown["enqueued"], shown["extraction_version"]) == (
        "finished",
        1,
        UP_TO_DATE,
    )


def test_a_dead_item_of_a_backfill_is_counted_as_its_own(archive: Archive) -> None:
    node = archive.put(extraction_version="0.9.0")
    dispatcher = archive.start(Reason.OUTDATED)
    dispatcher.dispatch()
    with archive.database.write() as tx:
        claim = archive.app.queue.claim(tx, "worker")
        archive.app.queue.fail(tx, claim, [(claim.items[0], BROKEN)])
        assert count_failed(tx, dispatcher.backfill_id) == 1
    assert dispatcher.count_left() == 0
    with archive.database.read() as tx:
        dead = sa.select(work_items.c.node_id).where(work_items.c.status == ItemStatus.FAILED)
        assert tx.execute(dead).scalars().all() == [node]
        assert tx.execute(sa.select(sa.func.count()).select_from(backfills)).scalar_one() == 1


def test_a_process_that_ends_gives_back_what_its_backfill_holds(archive: Archive) -> None:
    archive.put(extraction_version="0.9.0")
    archive.start(Reason.OUTDATED).dispatch()
    app = archive.app
    with app.heartbeat() as heartbeat:
        worker = app.worker(app.processor(archive.steps), heartbeat)
        with archive.database.write() as tx:
            (held,) = app.queue.claim(tx, heartbeat.owner).items
        with interruptible(worker):
            leave_backfills()
        leave_backfills()
    with archive.database.read() as tx:
        item = tx.execute(sa.select(work_items).where(work_items.c.id == held.id)).one()
    assert (item.status, item.attempts, item.rescues) == (ItemStatus.PENDING, 0, 0)
    assert worker.stopping.is_set()
