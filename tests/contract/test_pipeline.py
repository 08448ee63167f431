"""The one path, from a folder to searchable records."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.documents import Stage
from penstock.errors import ConfigurationError, ErrorClass, StagePaused
from penstock.recovery import recover
from penstock.runs.lifecycle import abort_run, close_listing, try_finalize
from penstock.runs.vocabulary import Change, DocumentStatus, RunStatus
from penstock.search.hybrid import search
from penstock.search.nodes import show_node
from penstock.search.query import Filters, Mode
from penstock.store.database import Database
from penstock.store.schema import (
    attempts,
    embeddings,
    extractions,
    nodes,
    run_documents,
    texts,
    work_items,
)
from penstock.work.items import ItemStatus, Outcome
from tests.contract.ingestion import Workplace, counts, make_text
from tests.factories import TENANT, make_fault, read_rows
from tests.together import run_together, wait_until

MakeWorkplace = Callable[..., Workplace]
BROKEN = make_fault(ErrorClass.CORRUPTION, "cannot be read")


@pytest.fixture
def make_workplace(database: Database, tmp_path: Path) -> Iterator[MakeWorkplace]:
    made: list[Workplace] = []

    def make(**extraction: Any) -> Workplace:
        made.append(Workplace(database, tmp_path / "home", **extraction))
        return made[-1]

    yield make
    for workplace in made:
        workplace.close()


@pytest.fixture
def place(make_workplace: MakeWorkplace) -> Workplace:
    return make_workplace()


def find(place: Workplace, query: str, mode: Mode = "hybrid") -> list[str]:
    def embed(text: str) -> tuple[bytes, str]:
        return place.app.embedder.embed([text])[0], place.app.embedder.identity

    with place.database.read() as tx:
        hits = search(tx, query, Filters(TENANT), mode=mode, limit=10, embed=embed)
        return [show_node(tx, TENANT, hit.id)["external_id"] for hit in hits]


def drift_of(place: Workplace, name: str) -> float | None:
    with place.database.read() as tx:
        found: float | None = show_node(tx, TENANT, place.node(name).id)["embedding_drift"]
        return found


# New, unchanged, changed, removed


@pytest.mark.both_databases
def test_a_new_document_becomes_a_searchable_record(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    report = place.ingest()
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"ready": 1})
    node = place.node("a.txt")
    assert (node.extraction_status, node.embedding_status) == ("ready", "ready")
    assert (node.title, node.profile) == ("Watermills", "document")
    assert node.fields["title"] == "Watermills"
    assert node.extraction_version == "1.0.0"
    assert node.content_hash is not None
    assert find(place, "watermills", "text") == find(place, "watermills", "vector") == ["a.txt"]
    assert place.document(report.run.id, "a.txt").change == Change.NEW


@pytest.mark.both_databases
def test_unchanged_documents_are_skipped_and_cost_nothing(place: Workplace) -> None:
    for name in "abc":
        place.write(f"{name}.txt", make_text(name))
    place.ingest()
    before = read_rows(place.database, nodes, texts, embeddings, work_items)
    place.steps.calls.clear()
    report = place.ingest()
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"skipped": 3})
    assert place.steps.calls == {}
    assert read_rows(place.database, nodes, texts, embeddings, work_items) == before


@pytest.mark.both_databases
def test_a_changed_document_goes_through_every_stage_again(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.write("b.txt", make_text("Windmills"))
    place.ingest()
    old = place.node("a.txt").content_hash
    place.write("a.txt", make_text("Sawmills", "boards"))
    place.steps.calls.clear()
    report = place.ingest()
    assert counts(report) == {"ready": 1, "skipped": 1}
    assert place.document(report.run.id, "a.txt").change == Change.CHANGED
    assert [place.steps.count(stage) for stage in Stage] == [1, 1, 1]
    assert place.node("a.txt").content_hash != old
    assert find(place, "sawmills", "text") == ["a.txt"]
    assert find(place, "watermills", "text") == []


def test_a_forced_run_does_unchanged_documents_again(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    place.steps.calls.clear()
    assert counts(place.ingest(force=True)) == {"ready": 1}
    assert place.steps.count(Stage.TEXT) == 1


def test_a_document_that_was_removed_can_come_back(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.write("b.txt", make_text("Windmills"))
    place.ingest()
    place.remove("a.txt")
    report = place.ingest()
    assert counts(report) == {"skipped": 1, "expired": 1}
    assert place.document(report.run.id, "a.txt").change == Change.REMOVED
    assert find(place, "watermills", "text") == []
    node_id = place.node("a.txt").id
    place.write("a.txt", make_text("Watermills"))
    assert counts(place.ingest()) == {"skipped": 2}
    assert place.node("a.txt").id == node_id
    assert place.node("a.txt").expired_at is None
    assert find(place, "watermills", "text") == ["a.txt"]


def test_a_document_that_cannot_be_fetched_is_an_error_and_does_not_expire(
    place: Workplace,
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    place.remove("a.txt")
    (place.folder / "a.txt").symlink_to("nowhere")
    report = place.ingest()
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"error": 1})
    assert place.node("a.txt").expired_at is None
    assert find(place, "watermills", "text") == ["a.txt"]


def test_a_document_listed_twice_is_one_document(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    lease = place.open()
    [listed] = place.listed()
    place.admit_some(lease, [listed, listed])
    place.admit(lease)
    place.drain()
    assert counts(place.report(lease.run.id)) == {"ready": 1}
    assert place.steps.count(Stage.TEXT) == 1


@pytest.mark.both_databases
def test_a_run_taken_up_again_finishes_what_was_begun_and_repeats_nothing(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.write("b.txt", make_text("Windmills"))
    lease = place.open()
    place.admit_some(lease, place.listed()[:1])
    place.drain()
    place.expire_leases()
    report = place.ingest()
    assert report.run.id == lease.run.id
    assert counts(report) == {"ready": 2}
    assert set(place.steps.calls[Stage.TEXT].values()) == {1}


# Marks come with success, and only then


@pytest.mark.both_databases
def test_a_document_whose_extraction_failed_is_tried_again_by_the_next_run(
    place: Workplace,
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.steps.on(Stage.EXTRACT, "Watermills", BROKEN)
    assert counts(place.ingest()) == {"error": 1}
    assert place.node("a.txt").content_hash is None
    assert counts(place.ingest()) == {"ready": 1}
    assert place.node("a.txt").content_hash is not None


def test_a_change_that_failed_leaves_the_old_fields_and_no_marks(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    old = place.node("a.txt")
    place.write("a.txt", make_text("Sawmills"))
    place.steps.on(Stage.EXTRACT, "Sawmills", BROKEN)
    assert counts(place.ingest()) == {"error": 1}
    failed = place.node("a.txt")
    assert (failed.content_hash, failed.fields) == (None, old.fields)
    assert (failed.extraction_status, failed.extraction_error) == ("failed", "cannot be read")
    assert counts(place.ingest()) == {"ready": 1}
    done = place.node("a.txt")
    assert done.content_hash != old.content_hash
    assert (done.extraction_status, done.extraction_error) == ("ready", None)


def test_a_change_that_failed_and_was_undone_is_processed_again(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    place.write("a.txt", make_text("Sawmills"))
    place.steps.on(Stage.EXTRACT, "Sawmills", BROKEN)
    assert counts(place.ingest()) == {"error": 1}
    place.write("a.txt", make_text("Watermills"))
    assert counts(place.ingest()) == {"ready": 1}


def test_a_forced_run_that_failed_is_made_good_by_the_next_run(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    place.steps.on(Stage.TEXT, "Watermills", BROKEN)
    assert counts(place.ingest(force=True)) == {"error": 1}
    assert counts(place.ingest()) == {"ready": 1}
    assert place.node("a.txt").extraction_status == "ready"


def test_an_embedding_that_failed_after_a_new_version_is_made_good_by_the_next_run(
    place: Workplace, make_workplace: MakeWorkplace
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    newer = make_workplace(version="2.0.0")
    newer.steps.fields = {"topics": ["weather"]}
    newer.steps.on(Stage.EMBED, "Watermills", *[OSError("no embedder")] * 10)
    assert counts(newer.ingest()) == {"error": 1}
    newer.steps.trouble.clear()
    assert counts(newer.ingest()) == {"ready": 1}
    assert newer.node("a.txt").embedding_status == "ready"


# Versions, profiles, reuse


def test_a_new_version_extracts_again_from_the_stored_text(
    place: Workplace, make_workplace: MakeWorkplace
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    newer = make_workplace(version="2.0.0")
    report = newer.ingest()
    assert counts(report) == {"ready": 1}
    assert newer.document(report.run.id, "a.txt").change == Change.SAME
    assert [newer.steps.count(stage) for stage in (Stage.TEXT, Stage.EXTRACT)] == [0, 1]
    assert newer.node("a.txt").extraction_version == "2.0.0"
    assert counts(newer.ingest()) == {"skipped": 1}


@pytest.mark.parametrize("text", [make_text("Watermills"), "Too short to extract from"])
def test_another_profile_extracts_again_with_that_profile(place: Workplace, text: str) -> None:
    place.write("a.txt", text)
    place.ingest()
    report = place.ingest(profile="job_posting")
    assert counts(report) == {"ready": 1}
    assert place.node("a.txt").profile == "job_posting"
    assert counts(place.ingest(profile="job_posting")) == {"skipped": 1}


def test_a_duplicate_reuses_the_extraction(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.write("b.txt", make_text("Watermills"))
    report = place.ingest()
    assert counts(report) == {"ready": 2}
    assert place.steps.count(Stage.EXTRACT) == 1
    assert place.node("a.txt").fields == place.node("b.txt").fields
    outcomes = {place.items(Stage.EXTRACT, name)[0].outcome for name in ("a.txt", "b.txt")}
    assert outcomes == {Outcome.DONE, Outcome.REUSED}
    assert place.document(report.run.id, "b.txt").reason == "duplicate of a.txt"
    assert len(read_rows(place.database, extractions)) == 1


def test_a_later_duplicate_reuses_what_the_store_holds(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    place.write("b.txt", make_text("Watermills"))
    place.steps.calls.clear()
    report = place.ingest()
    assert counts(report) == {"ready": 1, "skipped": 1}
    assert place.steps.count(Stage.EXTRACT) == 0
    assert place.items(Stage.EXTRACT, "b.txt")[0].outcome == Outcome.REUSED
    assert report.stages[Stage.EXTRACT].reused == 1


# Too short, dead, failed


def test_a_short_document_is_ready_and_searchable_without_extraction(place: Workplace) -> None:
    place.write("a.txt", "Just a short note")
    report = place.ingest()
    assert counts(report) == {"ready": 1}
    node = place.node("a.txt")
    assert (node.extraction_status, node.extraction_reason) == ("skipped", "insufficient_text")
    assert node.embedding_status == "ready"
    assert find(place, "note", "text") == find(place, "note", "vector") == ["a.txt"]
    assert counts(place.ingest()) == {"skipped": 1}


def test_a_document_that_cannot_be_read_is_an_error_of_the_run(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.write("b.txt", make_text("Windmills"))
    place.steps.on(Stage.TEXT, "Watermills", BROKEN)
    report = place.ingest()
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"ready": 1, "error": 1})
    line = place.document(report.run.id, "a.txt")
    assert (line.status, line.error_class) == (DocumentStatus.ERROR, ErrorClass.CORRUPTION)
    assert line.reason == "cannot be read"
    assert place.items(Stage.TEXT, "a.txt")[0].status == ItemStatus.FAILED
    assert place.items(Stage.EXTRACT, "a.txt") == []


def test_a_failed_extraction_is_embedded_all_the_same(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.steps.on(Stage.EXTRACT, "Watermills", BROKEN)
    report = place.ingest()
    line = place.document(report.run.id, "a.txt")
    assert (line.status, line.error_class) == (DocumentStatus.ERROR, ErrorClass.CORRUPTION)
    node = place.node("a.txt")
    assert (node.extraction_status, node.embedding_status) == ("failed", "ready")
    assert find(place, "watermills", "vector") == ["a.txt"]


def test_a_failure_that_passes_costs_an_attempt_and_no_more(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.steps.on(Stage.EXTRACT, "Watermills", make_fault(ErrorClass.TIMEOUT))
    assert counts(place.ingest()) == {"ready": 1}
    [item] = place.items(Stage.EXTRACT, "a.txt")
    assert (item.status, item.attempts) == (ItemStatus.COMPLETE, 1)


def test_a_rate_limited_extraction_costs_no_attempt(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    limit = make_fault(ErrorClass.RATE_LIMITED, "slow down", retry_after_seconds=0.01)
    place.steps.on(Stage.EXTRACT, "Watermills", *[limit] * 5)
    assert counts(place.ingest()) == {"ready": 1}
    [item] = place.items(Stage.EXTRACT, "a.txt")
    assert (item.status, item.attempts) == (ItemStatus.COMPLETE, 0)
    assert len(read_rows(place.database, attempts)) == 5


@pytest.mark.parametrize("stage", list(Stage))
def test_a_step_that_breaks_over_one_document_spares_its_neighbours(
    place: Workplace, stage: Stage
) -> None:
    names = ("a", "b", "bad", "c")
    for name in names:
        place.write(f"{name}.txt", make_text(f"Paper {name}"))
    place.steps.on(stage, "Paper bad", *[ZeroDivisionError("oops")] * 2)
    assert counts(place.ingest()) == {"ready": 4}
    spent = {name: place.items(stage, f"{name}.txt")[0].attempts for name in names}
    assert spent == {"a": 0, "b": 0, "bad": 1, "c": 0}


def test_an_error_with_unstorable_characters_costs_its_document_alone(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.write("b.txt", make_text("Windmills"))
    place.steps.on(Stage.TEXT, "Watermills", *[ValueError("bad byte \x00 \ud800")] * 20)
    assert counts(place.ingest()) == {"ready": 1, "error": 1}


@pytest.mark.parametrize("value", ["nul \x00 byte", "half \ud83d a pair"])
def test_fields_with_unstorable_characters_are_stored_without_them(
    place: Workplace, value: str
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.steps.fields = {"topics": [value]}
    assert counts(place.ingest()) == {"ready": 1}
    [topic] = place.node("a.txt").fields["topics"]
    assert topic.startswith(value[:4])


# Embedding again


def test_what_is_embedded_already_is_not_embedded_again(
    place: Workplace, make_workplace: MakeWorkplace
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    newer = make_workplace(version="2.0.0")
    newer.ingest()
    assert newer.steps.count(Stage.EMBED) == 0
    assert newer.items(Stage.EMBED, "a.txt")[-1].outcome == Outcome.UNCHANGED
    assert drift_of(newer, "a.txt") is None


def test_an_extraction_that_changes_the_embedded_text_embeds_again_and_records_the_drift(
    place: Workplace, make_workplace: MakeWorkplace
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    newer = make_workplace(version="2.0.0")
    newer.steps.fields = {"topics": ["weather"]}
    newer.ingest()
    assert newer.steps.count(Stage.EMBED) == 1
    assert 0 < (drift_of(newer, "a.txt") or 0) < 1


def test_a_changed_document_is_embedded_again_and_its_drift_recorded(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    place.write("a.txt", make_text("Sawmills", "boards"))
    place.ingest()
    assert 0 < (drift_of(place, "a.txt") or 0) < 1
    assert len(read_rows(place.database, embeddings)) == 1


# Configuration faults


@pytest.mark.parametrize("stage", list(Stage))
def test_a_configuration_fault_pauses_and_blames_no_document(
    place: Workplace, stage: Stage
) -> None:
    for name in "abc":
        place.write(f"{name}.txt", make_text(f"Paper {name}"))
    place.steps.on(stage, "Paper", *[ConfigurationError("the key is refused")] * 20)
    with pytest.raises(StagePaused, match=f"stage {stage} is paused: the key is refused"):
        place.ingest()
    [run_id] = {row.run_id for row in place.items(Stage.TEXT, "a.txt")}
    report = place.report(run_id)
    assert (report.run.status, report.run.paused_reason) == (
        RunStatus.INGESTING,
        "the key is refused",
    )
    assert counts(report) == {"pending": 3}
    for name in "abc":
        item = place.items(stage, f"{name}.txt")[-1]
        assert (item.status, item.attempts, item.rescues) == (ItemStatus.PENDING, 0, 0)
    place.steps.trouble.clear()
    assert counts(place.ingest()) == {"ready": 3}


# Several workers


def test_drains_side_by_side_do_nothing_twice(make_workplace: MakeWorkplace) -> None:
    place, other = make_workplace(batch_size=3), make_workplace(batch_size=3)
    for n in range(40):
        place.write(f"{n}.txt", make_text(f"Paper {n}"))
    lease = place.open()
    place.admit(lease)
    run_together(2, lambda n: (place, other)[n].drain())
    for stage in Stage:
        done = place.steps.calls[stage] + other.steps.calls[stage]
        assert len(done) == 40
        assert set(done.values()) == {1}
    report = place.report(lease.run.id)
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"ready": 40})


def test_work_comes_in_while_a_drain_runs_beside_it(place: Workplace) -> None:
    for n in range(10):
        place.write(f"{n}.txt", make_text(f"Paper {n}"))
    lease = place.open()
    with place.app.heart() as heart:
        drain = place.app.drain(place.app.processor(place.steps), heart, run_id=lease.run.id)
        with drain.beside(lambda: None):
            for listed in place.listed():
                place.admit_some(lease, [listed])
                drain.wake()
            close_listing(place.database, lease)
    try_finalize(place.database, lease.run.id)
    assert counts(place.report(lease.run.id)) == {"ready": 10}


def test_an_error_of_whoever_brings_work_in_ends_the_drain(place: Workplace) -> None:
    lease = place.open()
    with place.app.heart() as heart:
        drain = place.app.drain(place.app.processor(place.steps), heart, run_id=lease.run.id)
        with pytest.raises(RuntimeError, match="listing broke"), drain.beside(lambda: None):
            raise RuntimeError("listing broke")


def test_a_worker_of_some_stages_leaves_the_rest_to_others(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    lease = place.open()
    place.admit(lease)
    with place.app.heart() as heart:
        some = place.app.processor(place.steps, [Stage.TEXT])
        place.app.drain(some, heart).run(lambda: True)
    assert place.items(Stage.EXTRACT, "a.txt")[0].status == ItemStatus.PENDING
    place.drain()
    assert counts(place.report(lease.run.id)) == {"ready": 1}


@pytest.mark.parametrize("stage", list(Stage))
def test_a_worker_that_lost_its_lease_while_working_writes_nothing(
    place: Workplace, make_workplace: MakeWorkplace, stage: Stage
) -> None:
    place.write("a.txt", make_text("Watermills"))
    other = make_workplace()
    lease = place.open()
    place.admit(lease)
    seen: list[Any] = []

    def another_takes_over() -> None:
        place.expire_leases()
        recover(other.database, other.app.queue, max_rescues=5)
        other.drain()
        seen.append(everything(place))

    place.steps.on(stage, "Watermills", another_takes_over)
    place.work_once()
    assert seen == [everything(place)]
    assert counts(place.report(lease.run.id)) == {"ready": 1}


def everything(place: Workplace) -> list[tuple[Any, ...]]:
    tables = (work_items, nodes, texts, embeddings, extractions, run_documents)
    return read_rows(place.database, *tables)


def test_a_run_ends_though_its_embedding_was_in_other_hands(
    place: Workplace, make_workplace: MakeWorkplace
) -> None:
    """An embedding that failed before is replayed, and busy when the changed document comes by."""
    place.write("a.txt", make_text("Watermills"))
    place.steps.on(Stage.EMBED, "Watermills", *[OSError("no embedder")] * 5)
    place.ingest()
    with place.database.write() as tx:
        assert place.app.queue.requeue(tx, note="Requeued.")
    place.write("a.txt", make_text("Sawmills", "boards"))
    other = make_workplace()

    def new_run_comes_by() -> None:
        other.admit(other.open())
        other.work_once()

    place.steps.on(Stage.EMBED, "Watermills", new_run_comes_by)
    place.drain()
    other.drain()
    run_id = max(row.run_id for row in place.items(Stage.TEXT, "a.txt"))
    report = place.report(run_id)
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"ready": 1})
    assert find(place, "boards", "vector") == ["a.txt"]


def test_an_aborted_document_is_done_by_the_next_run(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    lease = place.open()
    place.admit(lease)
    abort_run(place.database, place.app.queue, lease.run.id, reason="not needed")
    assert counts(place.report(lease.run.id)) == {"pending": 1}
    assert counts(place.ingest()) == {"ready": 1}


def test_an_interrupted_drain_ends_its_threads(place: Workplace) -> None:
    """Prefect cancels a flow run by an exception in the thread that waits for the work."""

    class Cancelled(BaseException):
        pass

    def cancel(*_: object) -> None:
        raise Cancelled

    before = signal.signal(signal.SIGUSR1, cancel)
    try:
        with place.app.heart() as heart:
            drain = place.app.drain(place.app.processor(place.steps), heart)
            # It never ends by itself; the signal comes when it works, and from one lane only.
            first = threading.Lock()
            drain.on_idle = lambda: (
                os.kill(os.getpid(), signal.SIGUSR1) if first.acquire(blocking=False) else None
            )
            with pytest.raises(Cancelled):
                drain.run(lambda: False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    lanes = [one for one in threading.enumerate() if "penstock-lane" in one.name]
    wait_until(lambda: not set(lanes) & set(threading.enumerate()), seconds=5)
