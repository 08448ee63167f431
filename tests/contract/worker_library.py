"""A library of small files for the embeddable worker; some control their own extraction."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from penstock import Database, ExtractedText, ExtractionWorker, RawDocument, extractor
from penstock.queue.items import ACTIVE_STATUSES
from penstock.store.schema import nodes, work_items
from penstock.text.custom import Extract, remove_extractor
from penstock.worker import Job, QueueManager
from tests.together import wait_until

SUFFIX = ".order"


@dataclass
class Library:
    """A database and the folder of its files."""

    db: Database
    folder: Path

    def add(self, name: str = "paper.txt", content: str | bytes = "Mills grind corn.") -> int:
        """Write a file and record it; the attachment's id."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.db.add_attachment(name, path)

    def order(self, name: str, **wanted: Any) -> int:
        """A file whose extraction goes as it says; see `make_obedient`."""
        log = {"log": str(self.folder / f"{name}.log")}
        return self.add(f"{name}{SUFFIX}", json.dumps(log | wanted))

    def gate(self, name: str) -> Path:
        """What an order may wait for; touch it to let the order go on."""
        return self.folder / f"{name}.gate"

    def runs(self, name: str) -> int:
        """How often the extraction of an order has begun."""
        log = self.folder / f"{name}.log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def text(self, attachment_id: int) -> str | None:
        attachment = self.db.get_attachment(attachment_id)
        assert attachment is not None
        return attachment.text

    def node_status(self) -> str | None:
        """The extraction status of the first document."""
        with self.db.app.database.read() as tx:
            status: str | None = tx.execute(
                sa.select(nodes.c.extraction_status).order_by(nodes.c.seq).limit(1)
            ).scalar_one()
            return status

    def shift(self, job_id: int, **seconds: float) -> None:
        """Move times of a job, as in `run_at=-5`: five seconds ago."""
        with self.db.app.database.write() as tx:
            moved = {name: tx.now + timedelta(seconds=by) for name, by in seconds.items()}
            tx.execute(sa.update(work_items).where(work_items.c.id == job_id).values(moved))


@dataclass
class Heard:
    """Every event of a worker, in order."""

    events: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def listen(self, worker: ExtractionWorker, *names: str) -> "Heard":
        for name in names or ("job_started", "job_completed", "job_failed"):
            worker.on(name, self._hear(name))
        return self

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def jobs(self, event: str) -> list[int]:
        return [values[0].id for name, values in self.events if name == event]

    def _hear(self, name: str) -> Callable[..., None]:
        return lambda *values: self.events.append((name, values))


@contextmanager
def registered(function: Extract, **wanted: Any) -> Iterator[None]:
    """An extractor that programs started inside the block know."""
    extractor(name="of this test", **wanted)(function)
    try:
        yield
    finally:
        remove_extractor("of this test")


def make_obedient() -> Extract:
    """An extractor that does what the document says, good or bad.

    `fails` lists what happens the first times: an error class, or `raise`, `crash`, `hang`,
    `import`. Then it waits for the file named by `gate`, and finds `text`. It is made in here so
    that it travels by value, as one of a script does: children need not import the tests.
    """

    def obey(raw: RawDocument) -> ExtractedText:
        import os
        import time
        from pathlib import Path

        from penstock.errors import DocumentFault, ErrorClass

        wanted = json.loads(raw.content)
        with Path(wanted["log"]).open("a+") as log:
            log.seek(0)
            run = len(log.readlines())
            log.write(f"{os.getpid()}\n")
        failure = next(iter(wanted.get("fails", [])[run:]), None)
        if failure == "raise":
            raise ValueError("bad day")
        if failure == "crash":
            # As in tests/unit/isolation/misbehaving.py: not before the pool knows what it does.
            time.sleep(0.5)
            os._exit(7)
        if failure == "import":
            import no_such_library  # type: ignore[import-not-found]  # noqa: F401
        while failure == "hang":
            time.sleep(0.1)
        if failure is not None:
            raise DocumentFault(ErrorClass(failure), f"{raw.name}: {failure} as ordered")
        while "gate" in wanted and not Path(wanted["gate"]).exists():
            time.sleep(0.005)
        return ExtractedText(wanted.get("text", "done as ordered"))

    return obey


def status_of(queue: QueueManager, job_id: int) -> str:
    return known(queue.get_job(job_id)).status


def known(job: Job | None) -> Job:
    assert job is not None
    return job


def queued(job_id: int | None) -> int:
    """The id of a job that was really made."""
    assert job_id is not None
    return job_id


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or is a zombie."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_for(worker: ExtractionWorker, job_id: int, status: str, seconds: float = 60.0) -> None:
    wait_until(lambda: status_of(worker.queue, job_id) == status, seconds)


def wait_for_all(worker: ExtractionWorker, seconds: float = 60.0) -> None:
    """Until no job is active any more."""
    stats = worker.queue.get_queue_stats
    wait_until(lambda: not any(stats()[status] for status in ACTIVE_STATUSES), seconds)
