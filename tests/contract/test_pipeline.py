"""The one path, from a folder to searchable records."""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.crawl import fetch, files
from penstock.crawl.files import FolderListing
from penstock.documents import Stage
from penstock.errors import ConfigurationError, ErrorClass, StagePaused
from penstock.operations import nodes as node_operations
from penstock.operations.nodes import Placement, delete_node, enqueue_from_stage
from penstock.pipeline import extract
from penstock.queue.items import ItemPayload, ItemStatus, NewItem, Outcome
from penstock.queue.sweep import Recovered
from penstock.recovery import recover
from penstock.runs.admission import Admission
from penstock.runs.lifecycle import abort_run, close_listing, read_run, try_finalize
from penstock.runs.run import Change, DocumentStatus, RunStatus
from penstock.search.hybrid import search
from penstock.search.nodes import show_node
from penstock.search.query import Filters, Mode
from penstock.store.database import Database, new_node_id
from penstock.store.schema import (
    attempts,
    embeddings,
    extractions,
    nodes,
    run_documents,
    texts,
    work_items,
)
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
def test_unchanged_documents_are_skipped_and_cost_nothing(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED_SECONDS", math.inf)
    for name in "abc":
        place.write(f"{name}.txt", make_text(name))
    place.ingest()
    before = read_rows(place.database, nodes, texts, embeddings, work_items)
    place.steps.calls.clear()
    report = place.ingest()
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"skipped": 3})
    assert place.steps.calls == {}
    assert read_rows(place.database, nodes, texts, embeddings, work_items) == before


@pytest.mark.full_suite
def test_files_are_the_same_whether_children_read_them_or_this_process(place: Workplace) -> None:
    for number in range(10):
        place.write(f"{number}.html", f"<p>{make_text(f'Watermill {number}')}</p>")
    (place.folder / "pipe").symlink_to("/dev/null")
    admission = place.app.admission(place.open())
    alone = replace(admission, children=None, _seen=set())
    listed = list(FolderListing(place.folder).list())

    def read(reader: Admission) -> list[tuple[Any, ...]]:
        found = [one.assessed for batch in reader.fetch_batches(listed) for one in batch]
        return [(one.listed, one.stage, one.fault, one.stored) for one in found]

    assert admission.children is not None
    by_children = read(replace(admission, batch_size=64, _seen=set()))
    assert by_children == read(alone)
    assert sum(stored is not None for *_, stored in by_children) == 10


def refuse_to_read(path: Path, max_bytes: int) -> None:
    raise AssertionError(f"{path} was read, up to {max_bytes} bytes")


@pytest.mark.both_databases
def test_a_file_that_was_not_touched_is_not_read_again(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED_SECONDS", -1.0)
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    path = place.folder / "a.txt"
    path.touch()
    report = place.ingest()
    assert place.document(report.run.id, "a.txt").reason == "unchanged (same bytes)"
    monkeypatch.setattr(fetch, "read_file", refuse_to_read)
    report = place.ingest()
    assert place.document(report.run.id, "a.txt").reason == "unchanged (not modified)"


def test_a_file_of_the_same_size_and_time_of_writing_is_read_if_it_was_written(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED_SECONDS", -1.0)
    place.write("a.txt", make_text("Watermills"))
    path = place.folder / "a.txt"
    before = path.stat()
    place.ingest()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        place.write("a.txt", make_text("Sandmills!"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert counts(place.ingest()) == {"ready": 1}


def test_a_file_that_was_just_written_is_read_again(place: Workplace) -> None:
    """Its file system's clock may not tell two writes apart that follow each other at once."""
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    assert place.node("a.txt").etag is None


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
    assert (report.run.status, counts(report)) == (RunStatus.ERROR, {"error": 1})
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


def test_an_extraction_that_cannot_be_committed_is_embedded_and_ends_as_an_error(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(extract, "cap_fields", refuse)
    place.write("a.txt", make_text("Watermills"))
    report = place.ingest()
    line = place.document(report.run.id, "a.txt")
    assert (line.status, line.reason) == (DocumentStatus.ERROR, "ZeroDivisionError: oops")
    [item] = place.items(Stage.EXTRACT, "a.txt")
    assert (item.status, item.attempts) == (ItemStatus.FAILED, 2)
    node = place.node("a.txt")
    assert (node.extraction_status, node.embedding_status) == ("failed", "ready")


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
def test_a_step_that_fails_on_one_document_costs_the_others_nothing(
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
def test_a_configuration_fault_pauses_and_costs_no_document_an_attempt(
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


def test_work_comes_in_while_a_worker_runs_beside_it(place: Workplace) -> None:
    for n in range(10):
        place.write(f"{n}.txt", make_text(f"Paper {n}"))
    lease = place.open()
    with place.app.heartbeat() as heartbeat:
        drain = place.app.worker(place.app.processor(place.steps), heartbeat, run_id=lease.run.id)
        with drain.in_background(lambda: None):
            for listed in place.listed():
                place.admit_some(lease, [listed])
                drain.wake()
            close_listing(place.database, lease)
    try_finalize(place.database, lease.run.id)
    assert counts(place.report(lease.run.id)) == {"ready": 10}


def test_an_error_of_the_sweep_is_raised_where_work_is_brought_in(place: Workplace) -> None:
    lease = place.open()

    def fail() -> Recovered:
        raise ZeroDivisionError

    with place.app.heartbeat() as heartbeat:
        worker = place.app.worker(place.app.processor(place.steps), heartbeat, run_id=lease.run.id)
        worker.recover, worker.sweep_seconds = fail, 0.0

        def bring_work_in() -> None:
            with worker.in_background(lambda: None):
                wait_until(lambda: worker.stopping.is_set())
                worker.check()
                raise AssertionError("the error was not noticed")

        with pytest.raises(ZeroDivisionError):
            bring_work_in()


def test_an_error_while_work_is_brought_in_stops_the_worker(place: Workplace) -> None:
    lease = place.open()
    with place.app.heartbeat() as heartbeat:
        drain = place.app.worker(place.app.processor(place.steps), heartbeat, run_id=lease.run.id)
        with pytest.raises(RuntimeError, match="listing broke"), drain.in_background(lambda: None):
            raise RuntimeError("listing broke")


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_delete_that_waits_for_a_commit_ends_the_document_in_its_run(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    lease = place.open()
    place.admit(lease)
    queue, node_id = place.app.queue, place.node("a.txt").id
    with place.database.write() as tx:
        claim = queue.claim(tx, "worker", stages=[Stage.TEXT])
    deleting = threading.Thread(
        target=delete_node, args=(place.database, queue, place.app.raw, TENANT, node_id)
    )
    with place.database.write() as tx:
        done = queue.complete(tx, claim, claim.items, Outcome.DONE)
        deleting.start()
        waits = sa.text("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        wait_until(lambda: is_there(place, waits))
        # The next stage is opened by the commit that the deletion waits for.
        queue.open_next(tx, claim, done, Stage.EXTRACT, leased=True)
    deleting.join()
    report = place.report(lease.run.id)
    assert (report.run.status, counts(report)) == (RunStatus.ERROR, {"error": 1})


def is_there(place: Workplace, query: sa.TextClause) -> bool:
    with place.database.read() as tx:
        return tx.execute(query).first() is not None


@pytest.mark.both_databases
def test_bytes_that_a_run_stores_while_they_are_deleted_stay(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run sees the document as new, finds its bytes stored, and records it only later."""
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    lease = place.open()
    admission = place.app.admission(lease)
    fetched: list[Any] = []
    monkeypatch.setattr(
        node_operations,
        "finalize_runs_of",
        lambda *_: fetched.extend(admission.fetch_batches(place.listed())),
    )
    node_id = place.node("a.txt").id
    delete_node(place.database, place.app.queue, place.app.raw, TENANT, node_id)
    for batch in fetched:
        admission.record(batch)
    close_listing(place.database, lease)
    place.drain()
    try_finalize(place.database, lease.run.id)
    assert counts(place.report(lease.run.id)) == {"ready": 1}


def test_no_job_is_left_for_a_node_that_was_deleted_since_it_was_chosen(place: Workplace) -> None:
    gone = Placement(TENANT, new_node_id(), Stage.EXTRACT, ItemPayload("a.txt"))
    with place.database.write() as tx:
        queue = place.app.queue
        assert enqueue_from_stage(tx, queue, [gone], priority=None, note="again") == set()
    assert read_rows(place.database, work_items) == []


@pytest.mark.both_databases
def test_other_work_on_a_document_of_a_run_leaves_its_priority(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.steps.on(Stage.EMBED, "Watermills", OSError("no embedder"))
    lease = place.open()
    place.admit(lease)
    place.work_once()
    low = NewItem(
        TENANT,
        place.node("a.txt").id,
        Stage.EXTRACT,
        priority=-100,
        payload=ItemPayload("a.txt", backfill=1),
    )
    with place.database.write() as tx:
        place.app.queue.enqueue(tx, [low])
        claim = place.app.queue.claim(tx, "worker", stages=[Stage.EXTRACT])
    place.app.processor(place.steps, stages=(Stage.EXTRACT,)).process(claim)
    [embed] = place.items(Stage.EMBED, "a.txt")
    assert (embed.run_id, embed.priority) == (lease.run.id, 0)


@pytest.mark.both_databases
def test_a_pause_met_by_another_worker_is_the_reason_of_a_run_without_a_flow(
    place: Workplace,
) -> None:
    place.write("a.txt", make_text("Watermills"))
    # Every time: the other threads of a worker try what the first has given back.
    place.steps.on(Stage.EXTRACT, "Watermills", *[StagePaused("extract", "bad key")] * 50)
    lease = place.open()
    place.admit(lease)
    with pytest.raises(StagePaused):
        place.drain()
    assert reason_of(place, lease.run.id) is None, "its own flow may be able to go on"
    place.expire_leases()
    with pytest.raises(StagePaused):
        place.drain()
    assert reason_of(place, lease.run.id) == "bad key"


def reason_of(place: Workplace, run_id: int) -> str | None:
    with place.database.read() as tx:
        return read_run(tx, run_id).paused_reason


def test_a_worker_of_some_stages_leaves_the_rest_to_others(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    lease = place.open()
    place.admit(lease)
    with place.app.heartbeat() as heartbeat:
        some = place.app.processor(place.steps, [Stage.TEXT])
        place.app.worker(some, heartbeat).run(lambda: True)
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
        recover(other.database, other.app.queue)
        other.drain()
        seen.append(everything(place))

    place.steps.on(stage, "Watermills", another_takes_over)
    place.work_once()
    assert seen == [everything(place)]
    assert counts(place.report(lease.run.id)) == {"ready": 1}


def everything(place: Workplace) -> list[tuple[Any, ...]]:
    tables = (work_items, nodes, texts, embeddings, extractions, run_documents)
    return read_rows(place.database, *tables)


def test_a_run_ends_though_another_worker_held_its_embedding(
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


def test_an_old_dead_letter_does_not_bring_old_marks_back(place: Workplace) -> None:
    """The first version dies in its extraction; its letter is replayed beside the second one."""
    first, second = make_text("Watermills"), make_text("Sawmills", "boards")
    place.write("a.txt", first)
    place.steps.on(Stage.EXTRACT, "Watermills", BROKEN)
    place.ingest()
    place.write("a.txt", second)
    lease = place.open()
    place.admit(lease)
    place.steps.on(Stage.EXTRACT, "Sawmills", BROKEN)
    place.drain()
    # The newer letter is cancelled by hand, so that the older one may be replayed.
    with place.database.write() as tx:
        newer = max(row.id for row in place.items(Stage.EXTRACT, "a.txt"))
        tx.execute(sa.delete(work_items).where(work_items.c.id == newer))
        assert place.app.queue.requeue(tx, note="Requeued.")
    place.drain()
    assert place.node("a.txt").content_hash is None
    place.write("a.txt", first)
    assert counts(place.ingest()) == {"ready": 1}
    assert find(place, "Watermills", "text") == ["a.txt"]


def test_a_run_keeps_a_document_that_is_refreshed_meanwhile(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.steps.on(Stage.EMBED, "Watermills", OSError("no embedder"))
    lease = place.open()
    place.admit(lease)
    place.work_once()
    node_id = place.node("a.txt").id
    assert [row.status for row in place.items(Stage.EMBED, "a.txt")] == ["retry_pending"]
    again = NewItem(TENANT, node_id, Stage.EXTRACT, payload=ItemPayload("a.txt"))
    with place.database.write() as tx:
        place.app.queue.enqueue(tx, [again])
        claim = place.app.queue.claim(tx, "worker", stages=[Stage.EXTRACT])
    place.app.processor(place.steps).process(claim)
    place.drain()
    try_finalize(place.database, lease.run.id)
    report = place.report(lease.run.id)
    assert (report.run.status, counts(report)) == (RunStatus.FINISHED, {"ready": 1})


@pytest.mark.parametrize("changed", [False, True])
def test_a_node_deleted_while_its_document_is_brought_in_comes_back_whole(
    place: Workplace, changed: bool
) -> None:
    place.write("a.txt", make_text("Watermills"))
    place.ingest()
    before = place.node("a.txt").id
    if changed:
        place.write("a.txt", make_text("Sawmills"))
    lease = place.open(force=not changed)
    admission = place.app.admission(lease)
    [brought] = [[*batch] for batch in admission.fetch_batches(place.listed())]
    delete_node(place.database, place.app.queue, place.app.raw, TENANT, before)
    admission.record(brought)
    close_listing(place.database, lease)
    place.drain()
    try_finalize(place.database, lease.run.id)
    assert counts(place.report(lease.run.id)) == {"ready": 1}
    assert place.node("a.txt").id != before
    assert find(place, "Sawmills" if changed else "Watermills", "text") == ["a.txt"]


def test_an_aborted_document_is_done_by_the_next_run(place: Workplace) -> None:
    place.write("a.txt", make_text("Watermills"))
    lease = place.open()
    place.admit(lease)
    abort_run(place.database, place.app.queue, lease.run.id, reason="not needed")
    assert counts(place.report(lease.run.id)) == {"pending": 1}
    assert counts(place.ingest()) == {"ready": 1}


def test_an_interrupted_worker_ends_its_threads(place: Workplace) -> None:
    """Prefect cancels a flow run by an exception in the thread that waits for the work."""

    class Cancelled(BaseException):
        pass

    def cancel(*_: object) -> None:
        raise Cancelled

    before = signal.signal(signal.SIGUSR1, cancel)
    try:
        with place.app.heartbeat() as heartbeat:
            drain = place.app.worker(place.app.processor(place.steps), heartbeat)
            first = threading.Lock()

            def signal_once() -> bool:
                """It never ends by itself; the signal comes when it works, from one thread only."""
                if first.acquire(blocking=False):
                    os.kill(os.getpid(), signal.SIGUSR1)
                return False

            with pytest.raises(Cancelled):
                drain.run(signal_once)
    finally:
        signal.signal(signal.SIGUSR1, before)
    threads = [one for one in threading.enumerate() if "penstock-worker" in one.name]
    wait_until(lambda: not set(threads) & set(threading.enumerate()))
