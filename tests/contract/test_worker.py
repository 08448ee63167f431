"""The embeddable worker: results, events and status, start and stop."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Database, ExtractionWorker
from penstock.documents import ExtractedText, Extraction, Stage
from penstock.pipeline import worker as engine
from penstock.queue.configuration import Configuration, record_configuration
from penstock.store import database as store
from penstock.store import retry
from penstock.store.schema import nodes, work_items, workers
from penstock.worker import QueueManager
from penstock.worker import worker as worker_module
from tests.contract.worker_library import (
    SUFFIX,
    Heard,
    Library,
    has_ended,
    known,
    make_obedient,
    queued,
    registered,
    status_of,
    wait_for,
    wait_for_all,
)
from tests.together import wait_until
from tests.unit.text.factories import PARAGRAPH, make_docx, make_page, make_pdf

pytestmark = pytest.mark.full_suite

Hire = Callable[..., ExtractionWorker]
QUICK = {"num_workers": 1, "heartbeat_interval": 0.2, "poll_interval": 0.05}
# As operators have it in their runbooks.
DEAD_WORKERS = """
SELECT * FROM worker_heartbeat
WHERE last_heartbeat < datetime('now', '-60 seconds')
AND status != 'stopped';
"""


@pytest.fixture
def library(sqlite_template: Path, tmp_path: Path) -> Iterator[Library]:
    path = tmp_path / "library.db"
    shutil.copy(sqlite_template, path)
    with Database(path) as db:
        yield Library(db, tmp_path)


@pytest.fixture(autouse=True)
def obedience() -> Iterator[None]:
    """Every worker knows how to read orders."""
    with registered(make_obedient(), suffixes=[SUFFIX]):
        yield


@pytest.fixture
def hire(library: Library) -> Iterator[Hire]:
    """Makes workers that look for work often; all are stopped at the end."""
    with ExitStack() as hired:

        def hire_one(db: Database = library.db, **wanted: Any) -> ExtractionWorker:
            worker = ExtractionWorker(db, **(QUICK | wanted))
            hired.callback(worker.stop, timeout=0)
            return worker

        yield hire_one


def submit(worker: ExtractionWorker, attachment_id: int, priority: int = 0) -> int:
    return queued(worker.enqueue(attachment_id, priority))


def beats(library: Library) -> list[sa.Row[Any]]:
    with library.db.app.database.read() as tx:
        return list(tx.execute(sa.select(workers).order_by(workers.c.id)))


def wait_for_beats(library: Library, count: int = 2) -> None:
    """Let a living worker show so many further signs of life: time in which it could act."""
    wait_until(lambda: bool(beats(library)))
    for _ in range(count):
        before = beats(library)[0].heartbeat_at
        wait_until(lambda before=before: beats(library)[0].heartbeat_at > before)  # type: ignore[misc]


# Results


def test_documents_of_every_kind_become_text_that_is_found(
    database: store.Database, tmp_path: Path
) -> None:
    contents: dict[str, bytes | str] = {
        "mill.pdf": make_pdf(["The waterwheel of Ulm"]),
        "cv.docx": make_docx(),
        "page.html": make_page(),
        "履歴書.txt": "水車小屋の番人 and a waterwheel in Überlingen",
        "notes.md": "# Leats\n\nHow to mend them",
        "list.csv": "name,year\nOld Mill,1999\n",
    }
    with Database(database.url) as db, ExtractionWorker(db, poll_interval=0.05) as worker:
        library = Library(db, tmp_path)
        ids = {name: library.add(name, content) for name, content in contents.items()}
        worker.enqueue_batch(list(ids.values()))
        wait_for_all(worker)
        assert worker.queue.get_failed_jobs() == []
        assert "Old Mill" in (library.text(ids["cv.docx"]) or "")
        assert library.text(ids["履歴書.txt"]) == contents["履歴書.txt"]
        assert {hit.title for hit in db.search("waterwheel")} == {"mill.pdf", "履歴書.txt"}
        [hit] = db.search("Überlingen")
        assert "**Überlingen**" in hit.snippet


def test_a_document_that_cannot_be_read_fails_at_once_and_says_why(
    database: store.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_MAX_DOCUMENT_BYTES", "5000")
    contents: dict[str, bytes | str] = {
        "corruption": b"%PDF-1.7\nthis is not a PDF at all",
        "unsupported": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "empty": b"",
        "too_large": "x" * 6000,
        "forbidden": make_pdf(["secret"], password="unknown"),
    }
    with Database(database.url) as db, ExtractionWorker(db, poll_interval=0.05) as worker:
        library = Library(db, tmp_path)
        heard = Heard().listen(worker)
        ids = {library.add(name, content): name for name, content in contents.items()}
        jobs = worker.enqueue_batch(list(ids))
        wait_for_all(worker)
        wait_until(lambda: len(heard.jobs("job_failed")) == len(jobs))
        assert sorted(heard.jobs("job_failed")) == jobs
        assert heard.jobs("job_completed") == []
        for job in worker.queue.get_failed_jobs():
            assert job.error_type == ids[known(job).attachment_id or 0]
            assert job.retry_count == 1
            assert job.error_message


def test_a_file_that_is_not_there_yet_is_read_when_it_is(library: Library, hire: Hire) -> None:
    worker = hire()
    worker.start()
    attachment_id = library.add("late.txt")
    (library.folder / "late.txt").unlink()
    job_id = submit(worker, attachment_id)
    wait_for(worker, job_id, "retry_pending")
    assert "late.txt is no longer there" in (
        known(worker.queue.get_job(job_id)).error_message or ""
    )
    (library.folder / "late.txt").write_text("Better late than never.")
    wait_for(worker, job_id, "complete")
    assert library.text(attachment_id) == "Better late than never."


def test_a_file_that_stays_away_ends_as_failed(library: Library, hire: Hire) -> None:
    worker = hire(max_retries=1)
    attachment_id = library.db.add_attachment("gone.txt", library.folder / "gone.txt")
    job_id = submit(worker, attachment_id)
    worker.start()
    wait_for(worker, job_id, "failed")
    assert [error.error_type for error in worker.queue.get_errors(job_id)] == ["unavailable"] * 2


def test_a_document_queued_again_after_it_changed_has_its_new_text(
    library: Library, hire: Hire
) -> None:
    worker = hire()
    worker.start()
    attachment_id = library.add("paper.txt", "The old text.")
    wait_for(worker, submit(worker, attachment_id), "complete")
    (library.folder / "paper.txt").write_text("The new words.")
    wait_for(worker, submit(worker, attachment_id), "complete")
    assert library.text(attachment_id) == "The new words."
    assert library.db.search("old") == []
    assert len(library.db.search("new")) == 1


def test_fifty_documents_are_each_done_once_by_four_threads(library: Library, hire: Hire) -> None:
    worker = hire(num_workers=4)
    heard = Heard().listen(worker)
    ids = [library.add(f"{number}.txt", f"Mill number {number}.") for number in range(50)]
    jobs = worker.enqueue_batch(ids)
    worker.start()
    wait_for_all(worker)
    wait_until(lambda: len(heard.jobs("job_completed")) == 50)
    assert sorted(heard.jobs("job_started")) == sorted(heard.jobs("job_completed")) == jobs
    assert [library.text(number) for number in ids] == [f"Mill number {n}." for n in range(50)]
    status = worker.get_status()
    assert sum(one["jobs_completed"] for one in status["workers"]) == 50
    assert status["stats"]["jobs_completed"] == 50


def test_a_bad_document_costs_its_batch_nothing(library: Library, hire: Hire) -> None:
    worker = hire(batch_size=10)
    bad = submit(worker, library.order("bad", fails=["crash", "corruption"]))
    good = worker.enqueue_batch([library.add(f"{number}.txt") for number in range(5)])
    worker.start()
    wait_for_all(worker)
    assert status_of(worker.queue, bad) == "failed"
    assert {status_of(worker.queue, job_id) for job_id in good} == {"complete"}
    assert {known(worker.queue.get_job(job_id)).retry_count for job_id in good} == {0}


def test_jobs_are_done_in_the_order_of_their_priority(library: Library, hire: Hire) -> None:
    worker = hire()
    heard = Heard().listen(worker)
    low, normal, high = [
        submit(worker, library.add(f"{priority}.txt"), priority) for priority in (-5, 0, 10)
    ]
    worker.start()
    wait_for_all(worker)
    assert heard.jobs("job_started") == [high, normal, low]


def test_text_is_all_that_is_made_by_default(library: Library, hire: Hire) -> None:
    worker = hire()
    worker.start()
    submit(worker, library.add("paper.txt", PARAGRAPH))
    wait_for_all(worker)
    with library.db.app.database.read() as tx:
        assert tx.execute(sa.select(work_items.c.stage)).scalars().all() == [Stage.TEXT]
        assert tx.execute(sa.select(nodes.c.embedding_status)).scalar_one() is None


def test_with_all_stages_a_document_gets_fields_and_a_vector(library: Library, hire: Hire) -> None:
    worker = hire(stages=("text", "extract", "embed"))
    heard = Heard().listen(worker, "job_completed")
    attachment_id = library.add("paper.txt", PARAGRAPH)
    submit(worker, attachment_id)
    worker.start()
    wait_until(lambda: len(heard.events) == 3)
    told = [(job.stage, type(result)) for _, (job, result) in heard.events]
    assert told == [
        (Stage.TEXT, ExtractedText),
        (Stage.EXTRACT, Extraction),
        (Stage.EMBED, type(None)),
    ]
    assert {job.attachment_id for _, (job, _) in heard.events} == {attachment_id}
    with library.db.app.database.read() as tx:
        node = tx.execute(sa.select(nodes)).one()
    assert (node.extraction_status, node.embedding_status) == ("ready", "ready")


# Errors and retries


def test_two_failures_and_then_success(library: Library, hire: Hire) -> None:
    worker = hire()
    heard = Heard().listen(worker)
    attachment_id = library.order("stubborn", fails=["timeout", "raise"], text="at last")
    job_id = submit(worker, attachment_id)
    worker.start()
    wait_for(worker, job_id, "complete")
    wait_until(lambda: "job_completed" in heard.names())
    assert heard.names() == ["job_started"] * 3 + ["job_completed"]
    assert [error.error_type for error in worker.queue.get_errors(job_id)] == ["timeout", "unknown"]
    assert "ValueError: bad day" in worker.queue.get_errors(job_id)[1].error_message
    assert library.text(attachment_id) == "at last"
    assert worker.get_status()["stats"]["jobs_failed"] == 0


def test_a_hanging_document_is_stopped_and_really_tried_again(
    library: Library, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "MIN_TIMEOUT_SECONDS", 0)
    worker = hire(extraction_timeout=1.5)
    job_id = submit(worker, library.order("endless", fails=["hang"]))
    worker.start()
    wait_for(worker, job_id, "retry_pending")
    assert known(worker.queue.get_job(job_id)).error_type == "timeout"
    wait_for(worker, job_id, "complete")
    assert library.runs("endless") == 2


def test_a_document_that_kills_its_process_is_tried_again(library: Library, hire: Hire) -> None:
    worker = hire()
    job_id = submit(worker, library.order("deadly", fails=["crash", "crash"]))
    worker.start()
    wait_for(worker, job_id, "complete")
    assert library.runs("deadly") == 3
    errors = worker.queue.get_errors(job_id)
    # A child that ends before the pool has heard that it began is replaced, and blames no document.
    assert len(errors) in (1, 2)
    for error in errors:
        assert error.error_type == "unknown"
        assert "ended with exit code 7" in error.error_message


def test_a_job_out_of_retries_is_reported_as_failed_once(library: Library, hire: Hire) -> None:
    worker = hire(max_retries=1)
    heard = Heard().listen(worker, "job_failed")
    job_id = submit(worker, library.order("hopeless", fails=["timeout"] * 9))
    worker.start()
    wait_for(worker, job_id, "failed")
    wait_until(lambda: heard.jobs("job_failed") == [job_id])
    assert library.runs("hopeless") == 2
    _, (told, error) = heard.events[0]
    kept = known(worker.queue.get_job(job_id))
    assert error == f"timeout: {kept.error_message}"
    assert (told.status, told.retry_count, told.error_type, told.attachment_id) == (
        kept.status,
        kept.retry_count,
        kept.error_type,
        kept.attachment_id,
    )
    status = worker.get_status()
    assert (status["failed"], status["stats"]["jobs_failed"]) == (1, 1)


def test_a_failed_job_succeeds_when_it_is_retried_by_hand(library: Library, hire: Hire) -> None:
    worker = hire(poll_interval=60)
    worker.start()
    job_id = submit(worker, library.order("mended", fails=["corruption"]))
    other = submit(worker, library.order("other", fails=["corruption"] * 2))
    wait_for(worker, job_id, "failed")
    wait_for(worker, other, "failed")
    assert worker.retry_failed_jobs([job_id, 4711]) == 1
    wait_for(worker, job_id, "complete")
    assert worker.retry_failed_jobs() == 1
    wait_until(lambda: library.runs("other") == 2)


def test_a_missing_library_waits_and_says_what_to_install(library: Library, hire: Hire) -> None:
    worker = hire()
    job_id = submit(worker, library.order("needy", fails=["import"]))
    before = datetime.now(UTC)
    worker.start()
    wait_for(worker, job_id, "retry_pending")
    job = known(worker.queue.get_job(job_id))
    assert job.error_type == "extractor_missing"
    assert "pip install no_such_library" in (job.error_message or "")
    assert job.next_retry_at is not None
    assert job.next_retry_at - before >= timedelta(seconds=30)


def test_extractors_that_cannot_be_loaded_cost_no_job_anything(
    library: Library, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = library.folder / "own_extractors.py"
    monkeypatch.setattr(engine, "ERROR_SECONDS", 0.1)
    monkeypatch.setenv("PENSTOCK_EXTRACTORS", str(module))
    with Database(library.db.app.database.url) as db, hire(db) as worker:
        job_id = submit(worker, library.add())
        wait_until(lambda: worker.get_status()["trouble"] is not None)
        assert f"there is no Python file {module}" in worker.get_status()["trouble"]
        job = known(worker.queue.get_job(job_id))
        assert job.status in ("pending", "processing")
        assert job.retry_count == 0
        assert worker.queue.get_errors(job_id) == []
        module.write_text("from penstock import extractor\n")
        wait_for(worker, job_id, "complete")
        wait_until(lambda: worker.get_status()["trouble"] is None)


# Taking jobs away


def test_the_result_of_a_cancelled_job_is_not_written(library: Library, hire: Hire) -> None:
    worker = hire()
    heard = Heard().listen(worker)
    worker.start()
    gate = library.gate("held")
    attachment_id = library.order("held", gate=str(gate))
    job_id = submit(worker, attachment_id)
    wait_until(lambda: library.runs("held") == 1)
    assert worker.get_status()["workers"][0]["current_job_id"] == job_id
    assert worker.queue.cancel(job_id)
    gate.touch()
    wait_until(lambda: worker.get_status()["workers"][0]["status"] == "idle")
    assert status_of(worker.queue, job_id) == "cancelled"
    assert library.text(attachment_id) is None
    assert heard.names() == ["job_started"]
    assert worker.get_status()["workers"][0]["current_job_id"] is None


def test_a_job_released_while_it_runs_is_done_again_and_reported_once(
    library: Library, hire: Hire
) -> None:
    worker = hire(num_workers=2)
    heard = Heard().listen(worker)
    worker.start()
    gate = library.gate("twice")
    job_id = submit(worker, library.order("twice", gate=str(gate)))
    wait_until(lambda: library.runs("twice") == 1)
    assert worker.queue.release(job_id)
    wait_until(lambda: library.runs("twice") == 2)
    gate.touch()
    wait_for(worker, job_id, "complete")
    wait_until(lambda: {one["status"] for one in worker.get_status()["workers"]} == {"idle"})
    assert heard.jobs("job_completed") == [job_id]
    assert worker.get_status()["stats"]["jobs_completed"] == 1


def test_a_job_of_a_dead_worker_is_taken_over_at_the_start(library: Library, hire: Hire) -> None:
    dead = QueueManager(library.db)
    job_id = queued(dead.enqueue(library.add()))
    dead.claim("dead")
    library.shift(job_id, lease_expires_at=-1)
    worker = hire()
    worker.start()
    wait_for(worker, job_id, "complete")
    assert not dead.complete(job_id)


def test_a_job_may_take_as_long_as_its_own_timeout_allows(
    library: Library, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A lease that a busy machine does not let run out: it is to be lost by nothing but the timeout.
    for name, seconds in {"JOB_TIMEOUT": 0.5, "LEASE": 60, "SWEEP": 0.2}.items():
        monkeypatch.setenv(f"PENSTOCK_{name}_SECONDS", str(seconds))
    gate = library.gate("long")
    with Database(library.db.app.database.url) as db, hire(db) as worker:
        job_id = submit(worker, library.order("long", gate=str(gate)))
        wait_until(lambda: library.runs("long") == 1)
        # Renewed two seconds after it was claimed; without a time of its own, for half a second.
        wait_until(lambda: lease_length(library) > timedelta(seconds=60 + 2))
        gate.touch()
        wait_for(worker, job_id, "complete")
    assert library.runs("long") == 1


def lease_length(library: Library) -> timedelta:
    c = work_items.c
    with library.db.app.database.read() as tx:
        row = tx.execute(sa.select(c.claimed_at, c.lease_expires_at)).one()
    length: timedelta = row.lease_expires_at - row.claimed_at
    return length


# Start, stop, pause


def test_a_stop_lets_the_job_under_way_finish_and_starts_no_other(
    library: Library, hire: Hire
) -> None:
    worker = hire()
    gate = library.gate("last")
    last = submit(worker, library.order("last", gate=str(gate)), priority=1)
    waiting = submit(worker, library.add())
    worker.start()
    wait_until(lambda: library.runs("last") == 1)
    opener = threading.Thread(target=open_after, args=(worker, gate))
    opener.start()
    assert worker.stop(timeout=30)
    opener.join()
    assert status_of(worker.queue, last) == "complete"
    assert status_of(worker.queue, waiting) == "pending"


def open_after(worker: ExtractionWorker, gate: Path) -> None:
    """Let an order go on once its worker has been asked to stop."""
    wait_until(lambda: not worker.is_running())
    gate.touch()


def test_a_job_that_outlives_the_stop_is_pending_and_done_once_later(
    library: Library, hire: Hire
) -> None:
    worker = hire()
    heard = Heard().listen(worker, "job_completed", "job_failed")
    gate = library.gate("slow")
    job_id = submit(worker, library.order("slow", gate=str(gate)))
    worker.start()
    wait_until(lambda: library.runs("slow") == 1)
    assert not worker.stop(timeout=1)
    job = known(worker.queue.get_job(job_id))
    assert (job.status, job.retry_count, job.worker_id) == ("pending", 0, None)
    assert {row.status for row in beats(library)} == {"stopped"}
    gate.touch()
    worker.start()
    wait_for(worker, job_id, "complete")
    wait_until(lambda: heard.jobs("job_completed") == [job_id])
    assert heard.names() == ["job_completed"]
    assert library.runs("slow") == 2


@pytest.mark.parametrize("in_time", [True, False])
def test_a_stopped_worker_leaves_no_thread_and_no_process_behind(
    library: Library, hire: Hire, in_time: bool
) -> None:
    threads = set(threading.enumerate())
    worker = hire(num_workers=2)
    worker.start()
    wait_for(worker, submit(worker, library.add()), "complete")
    submit(worker, library.order("endless", fails=[] if in_time else ["hang"]))
    wait_until(lambda: library.runs("endless") == 1)
    [child] = [int(pid) for pid in (library.folder / "endless.log").read_text().split()]
    assert worker.stop(timeout=30 if in_time else 0.1) == in_time
    wait_until(lambda: has_ended(child))
    # A thread is still there for a moment after its last line.
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert worker.get_status()["active_workers"] == 0


def test_a_callback_may_stop_the_worker(library: Library, hire: Hire) -> None:
    threads = set(threading.enumerate())
    worker = hire(num_workers=2)
    worker.on("job_completed", lambda job, result: worker.stop())  # noqa: ARG005
    job_id = submit(worker, library.add())
    worker.start()
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert not worker.is_running()
    assert status_of(worker.queue, job_id) == "complete"
    assert {row.status for row in beats(library)} == {"stopped"}


def test_starting_and_stopping_twice_changes_nothing(library: Library, hire: Hire) -> None:
    worker = hire()
    assert worker.stop()
    assert not worker.is_running()
    worker.start()
    worker.start()
    assert worker.is_running()
    assert worker.get_status()["active_workers"] == 1
    wait_for(worker, submit(worker, library.add()), "complete")
    assert worker.stop()
    assert worker.stop()
    assert not worker.is_running()


def test_a_paused_worker_finishes_its_job_and_starts_no_other(library: Library, hire: Hire) -> None:
    worker = hire()
    worker.start()
    gate = library.gate("under-way")
    under_way = submit(worker, library.order("under-way", gate=str(gate)))
    wait_until(lambda: library.runs("under-way") == 1)
    worker.pause()
    assert worker.is_paused()
    gate.touch()
    wait_for(worker, under_way, "complete")
    waiting = submit(worker, library.add())
    wait_until(lambda: worker.get_status()["workers"][0]["status"] == "paused")
    wait_for_beats(library)
    assert status_of(worker.queue, waiting) == "pending"
    assert worker.is_running()
    worker.resume()
    assert not worker.is_paused()
    wait_for(worker, waiting, "complete")


def test_a_paused_worker_can_be_stopped_and_stays_paused(library: Library, hire: Hire) -> None:
    worker = hire()
    worker.start()
    worker.pause()
    assert worker.stop(timeout=10)
    worker.start()
    assert worker.is_paused()
    job_id = submit(worker, library.add())
    worker.resume()
    wait_for(worker, job_id, "complete")


def test_a_worker_that_is_started_paused_is_healthy(hire: Hire) -> None:
    worker = hire()
    worker.pause()
    worker.start()
    wait_until(lambda: worker.get_status()["workers"][0]["last_heartbeat"] is not None)
    assert worker.is_paused()
    assert worker.find_fault() is None


def test_a_worker_waits_for_a_database_that_is_held_by_another(
    library: Library, hire: Hire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.1)
    attachment_id = library.add()
    with Database(library.db.app.database.url, timeout=0.1) as db:
        worker = hire(db)
        with library.db.app.database.write():
            worker.start()
            wait_until(lambda: "trying again in 0.1 s" in caplog.text)
            assert worker.stop()
            worker.start()
        # By somebody who is as patient as usual: the worker now writes beside them.
        job_id = queued(QueueManager(library.db).enqueue(attachment_id))
        wait_for(worker, job_id, "complete")
        worker.stop()


@pytest.mark.parametrize(
    "wanted",
    [
        {"num_workers": 0},
        {"max_retries": -1},
        {"extraction_timeout": 0},
        {"heartbeat_interval": -1},
        {"poll_interval": 0},
        {"batch_size": 0},
        {"stages": ()},
        {"stages": "text"},
        {"stages": ("texts",)},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(library: Library, wanted: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"start at|more than 0|stages is a list|not a valid Stage"
    ):
        ExtractionWorker(library.db, **wanted)


def test_a_timeout_below_the_shortest_there_is_is_raised_with_a_warning(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    ExtractionWorker(library.db, extraction_timeout=3)
    assert "extraction_timeout=3 is raised to 10 s" in caplog.text


# Events and status


def test_unknown_attachments_are_refused_by_the_worker_too(library: Library, hire: Hire) -> None:
    worker = hire()
    with pytest.raises(ValueError, match="no attachment 4711"):
        worker.enqueue(4711)
    with pytest.raises(ValueError, match="no attachment 4711"):
        worker.enqueue_batch([library.add(), 4711])
    assert worker.get_recent_jobs() == []


def test_a_second_enqueue_gives_no_job(library: Library, hire: Hire) -> None:
    worker = hire()
    attachment_id = library.add()
    assert worker.enqueue(attachment_id) is not None
    assert worker.enqueue(attachment_id) is None
    assert worker.enqueue_batch([attachment_id]) == []


def test_callbacks_get_the_job_the_worker_and_the_result(library: Library, hire: Hire) -> None:
    worker = hire()
    heard = Heard().listen(worker)
    attachment_id = library.add("paper.txt", "Mills grind corn.")
    job_id = submit(worker, attachment_id, priority=4)
    worker.start()
    wait_until(lambda: len(heard.events) == 2)
    (_, (begun, worker_id)), (_, (ended, result)) = heard.events
    assert worker_id == worker.get_status()["workers"][0]["worker_id"]
    for job, status in ((begun, "processing"), (ended, "complete")):
        assert (job.id, job.attachment_id, job.priority) == (job_id, attachment_id, 4)
        assert job.status == status
    assert result.text == "Mills grind corn."


def test_an_error_in_a_callback_is_only_logged(
    library: Library, hire: Hire, caplog: pytest.LogCaptureFixture
) -> None:
    worker = hire()
    for event in ("worker_started", "job_started", "job_completed", "job_failed"):
        worker.on(event, lambda *_: 1 / 0)
    heard = Heard().listen(worker)
    jobs = worker.enqueue_batch([library.add("good.txt"), library.add("empty.txt", "")])
    worker.start()
    wait_until(lambda: len(heard.events) == 4)
    assert [status_of(worker.queue, job_id) for job_id in jobs] == ["complete", "failed"]
    assert caplog.text.count("ZeroDivisionError") == 5
    assert "a callback for job_failed failed; the worker goes on" in caplog.text


def test_events_of_the_worker_itself_are_reported(hire: Hire) -> None:
    worker = hire()
    heard = Heard().listen(
        worker, "worker_started", "worker_paused", "worker_resumed", "worker_stopped"
    )
    worker.start()
    wait_until(lambda: "worker_started" in heard.names())
    worker.pause()
    worker.resume()
    worker.stop()
    assert heard.names() == ["worker_started", "worker_paused", "worker_resumed", "worker_stopped"]
    name = worker.get_status()["workers"][0]["worker_id"]
    assert [values for _, values in heard.events] == [(name,), (), (), (name,)]


def test_an_event_that_does_not_exist_is_refused(hire: Hire) -> None:
    with pytest.raises(ValueError, match="no event 'job_done': use one of job_started"):
        hire().on("job_done", logging.info)


def busy_threads(worker: ExtractionWorker) -> list[dict[str, Any]]:
    return [one for one in worker.get_status()["workers"] if one["status"] == "processing"]


def jobs_under_way(worker: ExtractionWorker) -> list[int | None]:
    return [one["current_job_id"] for one in busy_threads(worker)]


def test_the_status_describes_the_worker_and_the_queue(library: Library, hire: Hire) -> None:
    worker = hire(num_workers=2)
    idle = worker.get_status()
    assert (idle["running"], idle["paused"], idle["active_workers"]) == (False, False, 0)
    gate = library.gate("held")
    held = submit(worker, library.order("held", gate=str(gate)))
    dead = submit(worker, library.order("dead", fails=["corruption"]))
    late = submit(worker, library.order("late", fails=["extractor_missing"]))
    worker.start()
    wait_for(worker, dead, "failed")
    wait_for(worker, late, "retry_pending")
    # A thread is idle a moment after its job is committed, and names one a moment after its claim.
    wait_until(lambda: jobs_under_way(worker) == [held])
    status = worker.get_status()
    assert (status["running"], status["num_workers"], status["active_workers"]) == (True, 2, 2)
    assert (status["queue_depth"], status["retry_pending"]) == (1, 1)
    assert (status["processing"], status["failed"], status["trouble"]) == (1, 1, None)
    [busy] = busy_threads(worker)
    assert busy["current_job_id"] == held
    assert busy["last_heartbeat"].utcoffset() == timedelta(0)
    gate.touch()
    wait_for(worker, held, "complete")
    wait_until(lambda: worker.get_status()["stats"]["jobs_completed"] == 1)
    stats = worker.get_status()["stats"]
    assert stats["throughput_per_second"] > 0
    assert stats["avg_extraction_time_ms"] > 0


def test_recent_jobs_are_plain_values_newest_first(library: Library, hire: Hire) -> None:
    worker = hire()
    jobs = [submit(worker, library.add(f"{number}.txt")) for number in range(3)]
    recent = worker.get_recent_jobs(limit=2)
    assert [job["id"] for job in recent] == [jobs[2], jobs[1]]
    assert recent[0]["status"] == "pending"
    assert {"attachment_id", "priority", "retry_count", "error_message"} <= set(recent[0])


def test_operators_find_dead_workers_with_plain_sql(library: Library, hire: Hire) -> None:
    worker = hire(num_workers=2)
    worker.start()
    wait_until(lambda: len(beats(library)) == 2)
    assert dead_workers(library) == []
    worker.stop()
    dead, stopped = (row.id for row in beats(library))
    with library.db.app.database.write() as tx:
        quiet = {"heartbeat_at": tx.now - timedelta(seconds=61)}
        tx.execute(sa.update(workers).values(quiet))
        tx.execute(sa.update(workers).where(workers.c.id == dead).values(status="running"))
    assert dead_workers(library) == [dead]
    assert stopped != dead


def dead_workers(library: Library) -> list[str]:
    with library.db.app.database.read() as tx:
        return [row.worker_id for row in tx.execute(sa.text(DEAD_WORKERS))]


def test_heartbeats_carry_the_counts_of_their_worker(library: Library, hire: Hire) -> None:
    worker = hire()
    worker.start()
    wait_for(worker, submit(worker, library.add()), "complete")
    wait_for(worker, submit(worker, library.add("none", "")), "failed")
    query = sa.text("SELECT jobs_completed, jobs_failed, status FROM worker_heartbeat")

    def counts() -> list[tuple[Any, ...]]:
        with library.db.app.database.read() as tx:
            return [tuple(row) for row in tx.execute(query)]

    wait_until(lambda: counts() == [(1, 1, "running")])
    worker.stop()
    assert counts() == [(1, 1, "stopped")]


def test_a_worker_neither_processes_nor_reports_jobs_of_other_tenants(
    library: Library, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = queued(QueueManager(library.db).enqueue(library.add(content="a secret")))
    monkeypatch.setenv("PENSTOCK_TENANT", "another")
    with Database(library.folder / "library.db") as theirs:
        worker = hire(theirs)
        heard = Heard().listen(worker)
        worker.start()
        wait_for_beats(library)
        worker.stop()
        assert heard.events == []
        assert known(QueueManager(library.db).get_job(job_id)).status == "pending"
        of_all_tenants = hire(theirs, all_tenants=True)
        of_all_tenants.start()
        wait_until(lambda: library.text(1) == "a secret")
        # Before its database is closed.
        of_all_tenants.stop()


def test_waiting_for_a_stop_waits_for_its_end(library: Library, hire: Hire) -> None:
    gate = library.gate("slow")
    job_id = submit(worker := hire(), library.order("slow", gate=str(gate)))
    worker.start()
    wait_until(lambda: library.runs("slow") == 1)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    wait_until(lambda: not worker.is_running())
    assert not worker.wait(0.2), "a job is under way"
    gate.touch()
    assert worker.wait(30)
    assert status_of(worker.queue, job_id) == "complete"
    stopping.join()


def test_waiting_until_idle_ends_with_the_last_job(library: Library, hire: Hire) -> None:
    worker = hire(num_workers=2)
    jobs = worker.enqueue_batch([library.add(f"{number}.txt") for number in range(5)])
    assert not worker.wait_until_idle(timeout=0.1), "the worker has not started"
    worker.start()
    assert worker.wait_until_idle(timeout=60)
    assert {status_of(worker.queue, job_id) for job_id in jobs} == {"complete"}


def test_a_callback_about_a_job_that_died_by_rescues_may_stop_the_worker(
    library: Library, hire: Hire
) -> None:
    job_id = submit(worker := hire(), library.add())
    QueueManager(library.db).claim("a dead one")
    with library.db.app.database.write() as tx:
        tx.execute(sa.update(work_items).values(rescues=5))
    library.shift(job_id, lease_expires_at=-1, started_at=-5)
    heard = Heard().listen(worker)
    worker.on("job_failed", lambda *_: worker.stop())
    worker.start()
    assert worker.wait(30)
    assert heard.jobs("job_failed") == [job_id]


def test_a_stop_takes_no_longer_than_its_timeout_and_the_exit_time(
    library: Library, hire: Hire
) -> None:
    blocked, released = threading.Semaphore(0), threading.Event()

    def block(*_: object) -> None:
        blocked.release()
        released.wait(60)

    worker = hire(num_workers=3)
    worker.on("job_started", block)
    worker.enqueue_batch([library.add(f"{number}.txt") for number in range(3)])
    worker.start()
    for _ in range(3):
        assert blocked.acquire(timeout=30)
    started = time.monotonic()
    try:
        assert not worker.stop(timeout=0.1)
        assert time.monotonic() - started < 2 * worker_module.EXIT_SECONDS
    finally:
        released.set()


def test_a_worker_leaves_what_another_configuration_is_to_do(library: Library, hire: Hire) -> None:
    others = Configuration("groq:some-model@0.65/12000", True, library.db.app.embedder.identity, ())
    worker = hire(stages=tuple(Stage))
    theirs, mine = submit(worker, library.add("theirs.txt")), submit(worker, library.add("b.txt"))
    with library.db.app.database.write() as tx:
        key = record_configuration(tx, others)
        named = sa.update(work_items).where(work_items.c.id == theirs)
        tx.execute(named.values(requires=key))
    worker.start()
    wait_for(worker, mine, "complete")
    wait_until(lambda: not worker.has_work())
    assert status_of(worker.queue, theirs) == "pending"
