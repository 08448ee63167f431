"""A worker that is stopped while a thread of it cannot be ended: the job is free for others."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Database, ExtractionWorker
from tests.contract.worker_library import Library, known, queued

pytestmark = pytest.mark.full_suite


@pytest.fixture
def library(sqlite_template: Path, tmp_path: Path) -> Iterator[Library]:
    path = tmp_path / "library.db"
    shutil.copy(sqlite_template, path)
    with Database(path) as db:
        yield Library(db, tmp_path)


def test_the_job_of_a_thread_that_cannot_be_ended_is_pending_when_the_stop_returns(
    library: Library,
) -> None:
    """Closing the child processes ends only threads that wait for one of them."""
    blocked, released = threading.Event(), threading.Event()

    def block(*_: object) -> None:
        blocked.set()
        released.wait(60)

    worker = ExtractionWorker(library.db, num_workers=1, heartbeat_interval=0.2, poll_interval=0.05)
    worker.on("job_started", block)
    job_id = queued(worker.enqueue(library.add("late.txt")))
    worker.start()
    try:
        assert blocked.wait(30)
        assert not worker.stop(timeout=0.1)
        job = known(worker.queue.get_job(job_id))
        assert (job.status, job.retry_count, job.worker_id) == ("pending", 0, None)
    finally:
        released.set()
        worker.stop(timeout=30)
    # What the thread has made meanwhile is not written: the job waits for another worker.
    assert known(worker.queue.get_job(job_id)).status == "pending"
