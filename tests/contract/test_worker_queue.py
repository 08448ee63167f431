"""The queue of a library, job by job, the same on both databases; no worker runs here."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock import Database, ExtractionWorker
from penstock.documents import Stage
from penstock.errors import ErrorClass, StoreUnavailable
from penstock.queue.items import ItemPayload, StageOrder, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.store import database as store
from penstock.store.schema import nodes, texts, work_items
from penstock.worker import QueueManager
from tests.contract.worker_library import Library, known, queued, status_of
from tests.factories import add_node, make_item
from tests.together import run_together

pytestmark = pytest.mark.both_databases

PERMANENT = ["corruption", "unsupported", "empty", "too_large", "forbidden"]
DELAYS = [0.5, 2, 10, 30, 60, 60]


@pytest.fixture
def library(database: store.Database, tmp_path: Path) -> Iterator[Library]:
    with Database(database.url) as db:
        yield Library(db, tmp_path)


@pytest.fixture
def queue(library: Library) -> QueueManager:
    return QueueManager(library.db)


def enqueue(
    library: Library, queue: QueueManager, name: str = "paper.txt", priority: int = 0
) -> int:
    """A job for a new attachment."""
    return queued(queue.enqueue(library.add(name), priority))


def fail_times(
    library: Library, queue: QueueManager, job_id: int, times: int, error_type: str = "timeout"
) -> None:
    """Claim a job and let it fail, again and again."""
    for number in range(1, times + 1):
        library.shift(job_id, run_at=-1)
        assert known(queue.claim("worker")).id == job_id
        assert queue.failed(job_id, f"failure {number}", error_type)


# Enqueue


def test_a_new_job_is_pending_and_names_its_attachment(
    library: Library, queue: QueueManager
) -> None:
    attachment_id = library.add()
    job = known(queue.get_job(queued(queue.enqueue(attachment_id, priority=3))))
    assert (job.attachment_id, job.status, job.priority) == (attachment_id, "pending", 3)
    assert (job.retry_count, job.error_message, job.worker_id) == (0, None, None)
    assert job.created_at is not None
    assert abs(job.created_at - datetime.now(UTC)) < timedelta(seconds=30)


def test_an_attachment_with_an_active_job_is_not_queued_twice(
    library: Library, queue: QueueManager
) -> None:
    attachment_id = library.add()
    job_id = queued(queue.enqueue(attachment_id))
    assert queue.enqueue(attachment_id) is None
    queue.claim("worker")
    assert queue.enqueue(attachment_id) is None
    queue.failed(job_id, "slow", "timeout")
    assert queue.enqueue(attachment_id) is None


def test_without_deduplication_the_active_job_is_named(
    library: Library, queue: QueueManager
) -> None:
    attachment_id = library.add()
    job_id = queue.enqueue(attachment_id)
    assert queue.enqueue(attachment_id, deduplicate=False) == job_id
    assert queue.get_pending_count() == 1


@pytest.mark.parametrize("end", ["complete", "failed", "cancelled"])
def test_an_attachment_whose_job_has_ended_is_queued_again(
    library: Library, queue: QueueManager, end: str
) -> None:
    attachment_id = library.add()
    first = queued(queue.enqueue(attachment_id))
    queue.claim("worker")
    if end == "complete":
        queue.complete(first)
    elif end == "failed":
        queue.failed(first, "broken", "corruption")
    else:
        queue.cancel(first)
    assert status_of(queue, first) == end
    assert queued(queue.enqueue(attachment_id)) != first


def test_a_batch_gives_the_new_jobs_in_order(library: Library, queue: QueueManager) -> None:
    ids = [library.add(f"{number}.txt") for number in range(5)]
    queue.enqueue(ids[2])
    jobs = [known(queue.get_job(job_id)) for job_id in queue.enqueue_batch(ids[::-1], 5)]
    assert [job.attachment_id for job in jobs] == [ids[4], ids[3], ids[1], ids[0]]
    assert {job.priority for job in jobs} == {5}


def test_an_attachment_named_twice_in_a_batch_is_queued_once(
    library: Library, queue: QueueManager
) -> None:
    attachment_id = library.add()
    assert len(queue.enqueue_batch([attachment_id, attachment_id])) == 1


def test_an_empty_batch_queues_nothing(queue: QueueManager) -> None:
    assert queue.enqueue_batch([]) == []


def test_an_unknown_attachment_is_refused(queue: QueueManager) -> None:
    with pytest.raises(ValueError, match="no attachment 4711"):
        queue.enqueue(4711)


def test_a_batch_with_an_unknown_attachment_queues_none_of_it(
    library: Library, queue: QueueManager
) -> None:
    with pytest.raises(ValueError, match="no attachment 4711; nothing was queued"):
        queue.enqueue_batch([library.add("a.txt"), 4711, library.add("b.txt")])
    assert queue.get_pending_count() == 0


def test_a_document_that_is_no_attachment_is_refused(library: Library, queue: QueueManager) -> None:
    with library.db.app.database.write() as tx:
        crawled = add_node(tx, tenant_id=library.db.tenant_id, url="https://mills.example/1")
        query = sa.select(nodes.c.seq).where(nodes.c.id == crawled)
        number: int = tx.execute(query).scalar_one()
    with pytest.raises(ValueError, match="no attachment"):
        queue.enqueue(number)


def test_attachments_of_another_tenant_are_unknown(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachment_id = library.add()
    monkeypatch.setenv("PENSTOCK_TENANT", "somebody else")
    with Database(library.db.app.database.url) as other:
        assert other.get_attachment(attachment_id) is None
        with pytest.raises(ValueError, match="no attachment"):
            QueueManager(other).enqueue(attachment_id)


# Claim


def test_jobs_are_claimed_by_priority_and_then_by_age(
    library: Library, queue: QueueManager
) -> None:
    low = enqueue(library, queue, "low", priority=-5)
    first = enqueue(library, queue, "first", priority=0)
    second = enqueue(library, queue, "second", priority=0)
    high = enqueue(library, queue, "high", priority=10)
    claimed = [known(queue.claim("worker")).id for _ in range(4)]
    assert claimed == [high, first, second, low]


def test_a_due_retry_does_not_jump_over_more_important_work(
    library: Library, queue: QueueManager
) -> None:
    retried = enqueue(library, queue, "retried", priority=0)
    fail_times(library, queue, retried, 1)
    library.shift(retried, run_at=-60)
    urgent = enqueue(library, queue, "urgent", priority=1)
    assert [known(queue.claim("worker")).id for _ in range(2)] == [urgent, retried]


def test_a_claimed_job_is_processing_and_says_by_whom(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    claimed = known(queue.claim("worker 7"))
    job = known(queue.get_job(job_id))
    assert (claimed.id, claimed.status, claimed.worker_id) == (job_id, "processing", "worker 7")
    assert (job.status, job.worker_id) == ("processing", "worker 7")
    assert job.started_at is not None


def test_nothing_due_means_no_claim(library: Library, queue: QueueManager) -> None:
    assert queue.claim("worker") is None
    job_id = enqueue(library, queue)
    fail_times(library, queue, job_id, 1, "extractor_missing")
    assert queue.claim("worker") is None


def test_of_five_claims_at_once_one_wins(library: Library, queue: QueueManager) -> None:
    job_id = enqueue(library, queue)
    queue.get_job(job_id)
    claims = run_together(5, lambda number: queue.claim(f"worker {number}"))
    assert [job.id for job in claims if job is not None] == [job_id]


# Complete


def test_a_completed_job_says_when_and_how_long(library: Library, queue: QueueManager) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    assert queue.complete(job_id, extraction_time_ms=1500, confidence=0.9)
    job = known(queue.get_job(job_id))
    assert job.status == "complete"
    assert job.started_at is not None
    assert job.completed_at is not None
    assert job.completed_at - job.started_at == timedelta(seconds=1.5)
    assert queue.get_queue_stats()["avg_extraction_time_ms"] == 1500


def test_a_job_is_completed_once_and_only_by_its_holder(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    assert not queue.complete(job_id)
    queue.claim("worker")
    assert not QueueManager(library.db).complete(job_id)
    assert queue.complete(job_id)
    assert not queue.complete(job_id)
    assert not queue.failed(job_id, "too late")
    assert status_of(queue, job_id) == "complete"


# Fail


@pytest.mark.parametrize("error_type", ["timeout", "unknown"])
def test_a_passing_error_is_tried_again_after_the_delays_of_the_table(
    library: Library, error_type: str
) -> None:
    queue = QueueManager(library.db, max_retries=len(DELAYS))
    job_id = enqueue(library, queue)
    for number, delay in enumerate(DELAYS, start=1):
        before = datetime.now(UTC)
        fail_times(library, queue, job_id, 1, error_type)
        job = known(queue.get_job(job_id))
        assert (job.status, job.retry_count) == ("retry_pending", number)
        assert (job.error_type, job.error_message) == (error_type, "failure 1")
        assert job.next_retry_at is not None
        assert (job.next_retry_at - before).total_seconds() >= delay
        # Jitter adds at most a tenth.
        assert (job.next_retry_at - datetime.now(UTC)).total_seconds() <= delay * 1.1


def test_a_missing_extractor_is_given_at_least_half_a_minute(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    before = datetime.now(UTC)
    fail_times(library, queue, job_id, 1, "extractor_missing")
    due = known(queue.get_job(job_id)).next_retry_at
    assert due is not None
    assert timedelta(seconds=30) <= due - before < timedelta(seconds=40)


@pytest.mark.parametrize("zone", ["Pacific/Honolulu", "Asia/Tokyo"])
def test_a_retry_is_due_at_the_same_moment_in_every_time_zone(
    library: Library, queue: QueueManager, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    job_id = enqueue(library, queue)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        fail_times(library, queue, job_id, 1, "extractor_missing")
        assert queue.claim("too early") is None
        library.shift(job_id, run_at=-0.01)
        assert known(queue.claim("worker")).id == job_id
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("error_type", PERMANENT)
def test_an_error_of_the_document_itself_fails_at_once(
    library: Library, queue: QueueManager, error_type: str
) -> None:
    job_id = enqueue(library, queue)
    fail_times(library, queue, job_id, 1, error_type)
    job = known(queue.get_job(job_id))
    assert (job.status, job.error_type, job.error_message) == ("failed", error_type, "failure 1")
    assert job.completed_at is not None
    assert job.next_retry_at is None


def test_the_fourth_timeout_is_the_last_with_three_retries(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    fail_times(library, queue, job_id, 3)
    assert status_of(queue, job_id) == "retry_pending"
    fail_times(library, queue, job_id, 1)
    assert status_of(queue, job_id) == "failed"
    assert [job.id for job in queue.get_failed_jobs()] == [job_id]


def test_without_retries_the_first_timeout_is_the_last(library: Library) -> None:
    queue = QueueManager(library.db, max_retries=0)
    job_id = enqueue(library, queue)
    fail_times(library, queue, job_id, 1)
    assert status_of(queue, job_id) == "failed"


def test_one_failure_may_be_given_a_budget_of_its_own(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    queue.failed(job_id, "no time left", max_retries=0)
    assert status_of(queue, job_id) == "failed"


def test_a_dead_job_keeps_its_whole_history(library: Library, queue: QueueManager) -> None:
    job_id = enqueue(library, queue)
    fail_times(library, queue, job_id, 1, "timeout")
    fail_times(library, queue, job_id, 1, "unknown")
    fail_times(library, queue, job_id, 1, "corruption")
    history = [(error.attempt, error.error_type) for error in queue.get_errors(job_id)]
    assert history == [(1, "timeout"), (2, "unknown"), (3, "corruption")]
    assert {error.worker_id for error in queue.get_errors(job_id)} == {"worker"}


def test_an_unknown_error_type_is_refused_and_the_job_stays_ours(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    with pytest.raises(ValueError, match="'bad luck' is not an error type: use one of timeout"):
        queue.failed(job_id, "who knows", "bad luck")
    assert queue.failed(job_id, "who knows", ErrorClass.UNKNOWN)


# Release, cancel, retry


def test_a_released_job_is_pending_again_and_has_lost_nothing(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    assert not queue.release(job_id)
    queue.claim("worker")
    assert queue.release(job_id)
    job = known(queue.get_job(job_id))
    assert (job.status, job.retry_count, job.worker_id) == ("pending", 0, None)


def test_the_worker_of_a_released_job_can_no_longer_write(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    queue.claim("slow")
    queue.release(job_id)
    other = QueueManager(library.db)
    other.claim("quick")
    assert not queue.complete(job_id)
    assert not queue.failed(job_id, "late", "corruption")
    assert known(other.get_job(job_id)).worker_id == "quick"
    assert other.complete(job_id)


@pytest.mark.parametrize("held", [False, True])
def test_a_cancelled_job_is_never_done(library: Library, queue: QueueManager, held: bool) -> None:
    job_id = enqueue(library, queue)
    if held:
        queue.claim("worker")
    assert queue.cancel(job_id)
    assert queue.claim("another") is None
    assert not queue.complete(job_id)
    assert status_of(queue, job_id) == "cancelled"
    assert not queue.cancel(job_id)


def test_a_retried_job_has_all_its_retries_again(library: Library, queue: QueueManager) -> None:
    job_id = enqueue(library, queue)
    fail_times(library, queue, job_id, 4)
    assert queue.retry_failed(job_id) == 1
    job = known(queue.get_job(job_id))
    assert (job.status, job.retry_count) == ("pending", 0)
    assert job.error_message == "failure 4\n\nJob was manually retried."
    fail_times(library, queue, job_id, 3)
    assert status_of(queue, job_id) == "retry_pending"


def test_all_failed_jobs_are_retried_when_none_is_named(
    library: Library, queue: QueueManager
) -> None:
    failed = [enqueue(library, queue, f"{number}.txt") for number in range(3)]
    for job_id in failed:
        fail_times(library, queue, job_id, 1, "corruption")
    waiting = enqueue(library, queue, "waiting.txt")
    assert queue.retry_failed(waiting) == 0
    assert queue.retry_failed() == 3
    assert queue.retry_failed() == 0
    assert queue.get_failed_jobs() == []


def test_unknown_ids_change_nothing(queue: QueueManager) -> None:
    assert queue.get_job(4711) is None
    assert queue.get_errors(4711) == []
    assert not queue.complete(4711)
    assert not queue.release(4711)
    assert not queue.cancel(4711)
    assert queue.retry_failed(4711) == 0


# Stale jobs, counts


def test_a_job_whose_worker_went_quiet_is_cleaned_up(library: Library, queue: QueueManager) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    assert queue.cleanup_stale_jobs(stale_threshold_minutes=30) == 0
    library.shift(job_id, claimed_at=-31 * 60)
    assert queue.cleanup_stale_jobs(stale_threshold_minutes=30) == 1
    assert status_of(queue, job_id) == "pending"
    assert not queue.complete(job_id)


def test_a_job_that_keeps_losing_its_workers_ends_as_failed(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    rescues = library.db.app.settings.max_rescues
    for _ in range(rescues + 1):
        assert status_of(queue, job_id) == "pending"
        queue.claim("worker")
        library.shift(job_id, claimed_at=-31 * 60)
        assert queue.cleanup_stale_jobs() == 1
    assert status_of(queue, job_id) == "failed"


def test_the_statistics_count_every_state(library: Library, queue: QueueManager) -> None:
    done, failed, retried, held, waiting, cancelled = [
        enqueue(library, queue, f"{number}.txt", priority=-number) for number in range(6)
    ]
    for job_id in (done, failed, retried, held):
        assert known(queue.claim("worker")).id == job_id
    queue.complete(done)
    queue.failed(failed, "broken", "corruption")
    queue.failed(retried, "slow", "timeout")
    queue.cancel(cancelled)
    stats = queue.get_queue_stats()
    assert status_of(queue, waiting) == "pending"
    assert {stats[name] for name in ("pending", "processing", "retry_pending")} == {1}
    assert (stats["completed_24h"], stats["failed_24h"]) == (1, 1)
    assert queue.get_pending_count() == 2


def test_what_ended_the_day_before_yesterday_is_not_of_the_last_24_hours(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    queue.complete(job_id)
    library.shift(job_id, finished_at=-25 * 3600, started_at=-25 * 3600)
    stats = queue.get_queue_stats()
    assert (stats["complete"], stats["completed_24h"]) == (1, 0)


def test_an_empty_queue_has_statistics_too(queue: QueueManager) -> None:
    stats = queue.get_queue_stats()
    assert set(stats.values()) == {0}
    assert {"pending", "processing", "retry_pending", "completed_24h"} <= set(stats)


def test_failed_and_recent_jobs_come_newest_first_and_as_many_as_asked(
    library: Library, queue: QueueManager
) -> None:
    ids = [enqueue(library, queue, f"{number}.txt") for number in range(4)]
    for job_id in ids:
        fail_times(library, queue, job_id, 1, "empty")
    assert [job.id for job in queue.get_failed_jobs(limit=2)] == [ids[3], ids[2]]
    assert [job.id for job in queue.get_recent_jobs(limit=3)] == [ids[3], ids[2], ids[1]]


def test_another_stage_of_a_document_is_no_job_of_a_text_queue(
    library: Library, queue: QueueManager
) -> None:
    with library.db.app.database.write() as tx:
        node_id = add_node(tx, tenant_id=library.db.tenant_id)
        item = make_item(node_id, Stage.EMBED, tenant_id=library.db.tenant_id)
        library.db.app.queue.enqueue(tx, [item])
    assert queue.get_pending_count() == 0
    assert queue.claim("worker") is None
    assert queue.get_recent_jobs() == []


# The tables that operators know, as views


def test_operators_see_jobs_and_texts_with_plain_sql(library: Library, queue: QueueManager) -> None:
    attachment_id = library.add("Übersicht.txt")
    job_id = queued(queue.enqueue(attachment_id, priority=2))
    fail_times(library, queue, job_id, 1)
    with library.db.app.database.read() as tx:
        job = tx.execute(sa.text("SELECT * FROM extraction_queue")).mappings().one()
        attachment = tx.execute(sa.text("SELECT * FROM attachments")).mappings().one()
    assert (job["id"], job["attachment_id"], job["priority"]) == (job_id, attachment_id, 2)
    assert (job["status"], job["retry_count"], job["error_type"]) == ("retry_pending", 1, "timeout")
    assert job["next_retry_at"] is not None
    assert (attachment["id"], attachment["filename"]) == (attachment_id, "Übersicht.txt")
    assert attachment["extracted_text"] is None


def test_operators_see_what_search_looks_through(library: Library) -> None:
    attachment_id = library.add("weirs.txt")
    with library.db.app.database.write() as tx:
        text = {"seq": attachment_id, "title": "Weirs", "body": "how water is held back"}
        tx.execute(sa.insert(texts).values(text))
        found = tx.execute(sa.text("SELECT * FROM attachments_fts")).mappings().one()
    assert dict(found) == {
        "attachment_id": attachment_id,
        "filename": "weirs.txt",
        "title": "Weirs",
        "extracted_text": "how water is held back",
    }


def test_only_completed_jobs_have_metrics(library: Library, queue: QueueManager) -> None:
    done, waiting = enqueue(library, queue, "a.txt"), enqueue(library, queue, "b.txt")
    queue.claim("worker")
    queue.complete(done)
    with library.db.app.database.read() as tx:
        rows = tx.execute(sa.text("SELECT job_id FROM extraction_metrics")).scalars().all()
    assert rows == [done]
    assert status_of(queue, waiting) == "pending"


# Attachments


@pytest.mark.parametrize("name", ["réßumé 履歴書.txt", "100% of #1?.txt", "a b+c&d.txt"])
def test_an_attachment_keeps_its_name_and_its_path(library: Library, name: str) -> None:
    attachment = library.db.get_attachment(library.add(name))
    assert attachment is not None
    assert (attachment.filename, attachment.path) == (name, library.folder / name)
    assert attachment.text is None


def test_a_relative_path_means_the_folder_of_the_moment(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(library.folder)
    attachment = library.db.get_attachment(library.db.add_attachment("a", "a.txt", "text/plain"))
    assert attachment is not None
    assert attachment.path == library.folder / "a.txt"
    assert attachment.mime_type == "text/plain"


def test_two_attachments_may_have_the_same_name(library: Library) -> None:
    assert library.add("a.txt") != library.add("a.txt")


def test_an_attachment_that_is_not_there_is_none(library: Library) -> None:
    assert library.db.get_attachment(4711) is None


def test_a_library_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="a library needs a file"):
        Database(":memory:")


def test_times_are_stored_in_utc(library: Library, queue: QueueManager) -> None:
    job_id = enqueue(library, queue)
    query = sa.select(work_items.c.run_at).where(work_items.c.id == job_id)
    with library.db.app.database.read() as tx:
        run_at = tx.execute(query).scalar_one()
    assert run_at.utcoffset() == timedelta(0)


# What belongs to others


def test_jobs_of_another_tenant_are_not_claimed_by_hand(
    library: Library, queue: QueueManager
) -> None:
    with library.db.app.database.write() as tx:
        node_id = add_node(tx, tenant_id="somebody else")
        library.db.app.queue.enqueue(tx, [make_item(node_id, tenant_id="somebody else")])
    assert queue.claim("worker") is None


def test_items_of_a_run_are_not_claimed_by_hand(library: Library, queue: QueueManager) -> None:
    tenant_id = library.db.tenant_id
    with library.db.app.database.write() as tx:
        node_id = add_node(tx, tenant_id=tenant_id)
        library.db.app.queue.enqueue(tx, [make_item(node_id, tenant_id=tenant_id, run_id=7)])
    assert queue.claim("worker") is None


def test_a_job_completed_by_hand_is_followed_by_the_next_stage(library: Library) -> None:
    queue = QueueManager(library.db, stages=tuple(Stage))
    job_id = queued(queue.enqueue(library.add()))
    assert known(queue.claim("worker")).id == job_id
    assert queue.complete(job_id)
    following = known(queue.claim("worker"))
    assert (following.stage, following.attachment_id) == (Stage.EXTRACT, 1)


def test_a_document_whose_extraction_is_dead_by_hand_is_embedded_all_the_same(
    library: Library,
) -> None:
    queue = QueueManager(library.db, stages=tuple(Stage))
    queued(queue.enqueue(library.add()))
    assert queue.complete(known(queue.claim("worker")).id)
    extract = known(queue.claim("worker"))
    assert queue.failed(extract.id, "broken", "corruption")
    following = known(queue.claim("worker"))
    assert (following.stage, following.node_id) == (Stage.EMBED, extract.node_id)


def test_a_node_that_is_only_to_be_embedded_is_not_extracted_by_hand(library: Library) -> None:
    queue = QueueManager(library.db, stages=tuple(Stage))
    tenant_id = library.db.tenant_id
    with library.db.app.database.write() as tx:
        node_id = add_node(tx, tenant_id=tenant_id)
        payload = ItemPayload(order=StageOrder.EMBED_ONLY)
        item = make_item(node_id, tenant_id=tenant_id, payload=payload)
        library.db.app.queue.enqueue(tx, [item])
    assert queue.complete(known(queue.claim("worker")).id)
    assert known(queue.claim("worker")).stage is Stage.EMBED


def test_a_job_that_could_not_be_completed_can_be_completed_later(
    library: Library, queue: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    with monkeypatch.context() as away:
        away.setattr(WorkQueue, "complete", _unavailable)
        with pytest.raises(StoreUnavailable):
            queue.complete(job_id)
    assert queue.complete(job_id)
    assert status_of(queue, job_id) == "complete"


def _unavailable(*_: object) -> list[WorkItem]:
    raise StoreUnavailable("the database is away")


@pytest.mark.full_suite
def test_a_text_that_is_had_after_all_leaves_no_failure_on_its_node(
    library: Library, queue: QueueManager
) -> None:
    job_id = enqueue(library, queue)
    queue.claim("worker")
    queue.failed(job_id, "broken", "corruption")
    assert library.node_status() == "failed"
    queue.retry_failed(job_id)
    with ExtractionWorker(library.db, num_workers=1, poll_interval=0.05) as worker:
        assert worker.wait_until_idle(timeout=60)
    assert library.node_status() is None


@pytest.mark.parametrize("name", ["what?.db", ":memory:"])
def test_names_that_cannot_be_a_library_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="library"):
        Database(name)
