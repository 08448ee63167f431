"""Programs that embed the worker, from their first line to their exit code."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

import penstock
from penstock import Database, ExtractionWorker
from penstock.documents import Stage
from penstock.testing import GroqServer
from penstock.worker import Job, QueueManager
from tests.contract.worker_library import Library, has_ended, known, wait_for
from tests.together import wait_until
from tests.unit.text.factories import make_pdf

pytestmark = pytest.mark.full_suite

DEADLINE_SECONDS = 60.0

# The main module has no `if __name__ == "__main__"`: children must not need one.
PROGRAM = """
import logging, os, time
from pathlib import Path
from penstock import Database, ExtractionWorker, extractor, register_signal_handlers

logging.basicConfig(level=logging.WARNING)
GREETING = "done by the program"

@extractor(suffixes=["slow"])
def read_slowly(raw):
    Path({folder!r}, "begun").write_text(str(os.getpid()))
    while not Path({folder!r}, "gate").exists():
        time.sleep(0.01)
    return GREETING + ": " + raw.content.decode()

db = Database("library.db")
worker = ExtractionWorker(db, num_workers=1, poll_interval=0.05)
Path("paper.slow").write_text("a paper")
worker.enqueue(db.add_attachment("paper.slow", "paper.slow", "text/plain"))
"""

WITH_HANDLERS = """
register_signal_handlers(worker)
worker.start()
"""

QUICK_START = """
from penstock import Database, ExtractionWorker
from penstock.documents import Stage
from penstock.testing import GroqServer

# Initialize database
db = Database("library.db")

# Create worker pool
worker = ExtractionWorker(db, num_workers=2)

# Start processing
worker.start()

# Add jobs
attachment_id = db.add_attachment(
    filename="paper.pdf",
    path="paper.pdf",
    mime_type="application/pdf"
)
job_id = worker.enqueue(attachment_id)

# Check status
status = worker.get_status()
print(f"Queue depth: {status['queue_depth']}")
print(f"Processing: {status['processing']}")

# Graceful shutdown
worker.stop()
"""


@dataclass
class Desk:
    """A folder in which programs run; what they start is ended with them."""

    folder: Path
    started: ExitStack = field(default_factory=ExitStack)

    def run(self, source: str) -> "subprocess.Popen[str]":
        script = self.folder / "program.py"
        script.write_text(source.replace("{folder!r}", repr(str(self.folder))))
        root = Path(penstock.__file__).parent.parent
        process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.enter_context(process)
        self.started.callback(process.kill)
        return process

    def wait_for_the_job(self) -> int:
        """Until its extraction has begun; the process it runs in."""
        begun = self.folder / "begun"
        wait_until(lambda: begun.exists() and bool(begun.read_text()), DEADLINE_SECONDS)
        return int(begun.read_text())

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def job(self) -> Job:
        """The only job of the library, as the program left it."""
        with Database(self.folder / "library.db") as db:
            [job] = QueueManager(db).get_recent_jobs()
        return job

    def statuses(self) -> dict[str, str]:
        """Of the jobs by their stages."""
        with Database(self.folder / "library.db") as db:
            jobs = QueueManager(db, stages=tuple(Stage)).get_recent_jobs()
        return {job.stage: job.status for job in jobs}

    def text(self) -> str | None:
        with Database(self.folder / "library.db") as db:
            return Library(db, self.folder).text(self.job().attachment_id or 0)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    with desk.started:
        yield desk


def wait_for_line(stream: IO[str] | None, words: str) -> None:
    assert stream is not None
    assert any(words in line for line in stream), f"the program ended without saying {words!r}"


def insist(program: "subprocess.Popen[str]") -> bool:
    """Ask the program again to end; whether it has. One signal in quick succession is an echo."""
    program.terminate()
    return program.poll() is not None


def exit_code(process: "subprocess.Popen[str]") -> int:
    return process.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_the_job_is_finished_and_the_program_ends(
    desk: Desk, number: signal.Signals
) -> None:
    program = desk.run(PROGRAM + WITH_HANDLERS)
    child = desk.wait_for_the_job()
    program.send_signal(number)
    wait_for_line(program.stderr, f"{number.name}: finishing the jobs under way")
    assert desk.job().status == "processing"
    desk.open_gate()
    assert exit_code(program) == 0
    assert desk.job().status == "complete"
    assert desk.text() == "done by the program: a paper"
    wait_until(lambda: has_ended(child))


def test_a_second_signal_ends_the_program_at_once(desk: Desk) -> None:
    program = desk.run(PROGRAM + WITH_HANDLERS)
    child = desk.wait_for_the_job()
    program.terminate()
    wait_for_line(program.stderr, "finishing the jobs under way")
    wait_until(lambda: insist(program))
    assert program.returncode == -signal.SIGTERM
    wait_until(lambda: has_ended(child))
    assert desk.job().status == "processing"


def test_a_job_that_outlasts_the_timeout_of_the_handlers_is_pending(desk: Desk) -> None:
    program = desk.run(
        PROGRAM + "register_signal_handlers(worker, timeout=0.5)\nworker.start()\nworker.wait()\n"
    )
    desk.wait_for_the_job()
    program.terminate()
    assert exit_code(program) == 0
    assert (desk.job().status, desk.job().retry_count) == ("pending", 0)


def test_models_are_asked_also_after_the_last_line_of_the_program(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GroqServer() as server:
        monkeypatch.setenv("GROQ_API_KEY", "gsk_stand-in")
        monkeypatch.setenv("EXTRACTION_BASE_URL", server.base_url)
        long = PROGRAM.replace('"a paper"', '"a paper about mills. " * 40')
        stages = 'num_workers=1, stages=("text", "extract")'
        program = desk.run(long.replace("num_workers=1", stages) + WITH_HANDLERS)
        desk.wait_for_the_job()
        desk.open_gate()
        wait_until(lambda: server.count() == 1, DEADLINE_SECONDS)
        program.terminate()
        assert exit_code(program) == 0
    assert desk.statuses() == {"text": "complete", "extract": "complete"}


def test_a_program_that_forgets_to_stop_ends_and_loses_nothing(desk: Desk) -> None:
    program = desk.run(PROGRAM + "worker.start()\nwhile not Path('begun').exists(): pass\n")
    desk.wait_for_the_job()
    desk.open_gate()
    assert exit_code(program) == 0
    assert desk.job().status == "complete"


def test_a_killed_program_takes_its_children_along_and_its_job_is_done_by_another(
    desk: Desk,
) -> None:
    program = desk.run(PROGRAM + WITH_HANDLERS)
    child = desk.wait_for_the_job()
    program.kill()
    program.wait(DEADLINE_SECONDS)
    wait_until(lambda: has_ended(child))
    job_id = desk.job().id
    with Database(desk.folder / "library.db") as db:
        library = Library(db, desk.folder)
        library.shift(job_id, lease_expires_at=-1)
        with ExtractionWorker(db, num_workers=1, poll_interval=0.05) as worker:
            wait_for(worker, job_id, "complete")
            [error] = worker.queue.get_errors(job_id)
            assert "its worker died while at it (rescue 1 of 5)" in str(error)
            assert known(worker.queue.get_job(job_id)).retry_count == 0


def test_the_quick_start_runs_as_it_is_printed(desk: Desk) -> None:
    (desk.folder / "paper.pdf").write_bytes(make_pdf(["Mills of Ulm"]))
    program = desk.run(QUICK_START)
    out, err = program.communicate(timeout=DEADLINE_SECONDS)
    assert (program.returncode, err) == (0, "")
    assert out.splitlines()[0] in ("Queue depth: 0", "Queue depth: 1")
    assert out.splitlines()[1] in ("Processing: 0", "Processing: 1")
    job = desk.job()
    # The stop may come before the job is begun; then it waits for the next start.
    assert job.status in ("pending", "complete")
    with Database(desk.folder / "library.db") as db, ExtractionWorker(db) as worker:
        wait_for(worker, job.id, "complete")
        assert known(worker.queue.get_job(job.id)).retry_count == 0
    assert desk.text() == "Mills of Ulm"
