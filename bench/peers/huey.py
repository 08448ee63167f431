"""huey on Redis, Postgres or a SQLite file.

It has no bulk enqueue; `map` is what it offers for many jobs. Its consumer runs in this process
with as many threads, or greenlets, as were quickest. The file has the settings that ours has: a
write-ahead log, synced when it is folded back and not for each job as huey would by default. What
is taken from the queue is gone, so the job itself counts.
"""

import logging
import sqlite3
import threading
from typing import Any

import huey

from bench.queue_assignment import (
    ENQUEUE,
    PROCESS,
    Assignment,
    check_done,
    do_nothing,
    new_ids,
    rate,
    read_assignment,
    tell,
)

WORKERS = {"redis": 2, "postgres": 1, "sqlite": 1, "greenlet": 10}
PATIENCE_SECONDS = 120


class NormalSync(sqlite3.Connection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous=NORMAL")


class Countdown:
    """The job: it does nothing but tell when it was done for the last time."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs
        self._lock = threading.Lock()
        self._over = threading.Event()

    def do_nothing(self, node_id: str) -> None:
        del node_id
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._over.set()

    def wait(self) -> None:
        self._over.wait(PATIENCE_SECONDS)
        check_done(-self._left, 0)


def main(given: Assignment) -> None:
    logging.disable(logging.WARNING)
    processed = process(given)
    # Another queue: a thread of the consumer may still wait for one more job of the first.
    queue, ids = open_queue(given, "bulk"), new_ids(given.enqueue)
    task = queue.task()(do_nothing)
    enqueued = rate(given.enqueue, lambda: task.map(ids))
    check_done(queue.pending_count(), given.enqueue)
    tell({ENQUEUE: enqueued, PROCESS: processed})


def process(given: Assignment) -> float:
    queue, countdown = open_queue(given, "process"), Countdown(given.process)
    queue.task()(countdown.do_nothing).map(new_ids(given.process))
    if given.way == "postgres":
        # As autovacuum does on a server that has run for a while.
        queue.storage.sql("ANALYZE")
    kind = "greenlet" if given.way == "greenlet" else "thread"
    consumer = queue.create_consumer(workers=WORKERS[given.way], worker_type=kind, periodic=False)

    def consume() -> None:
        consumer.start()
        countdown.wait()

    processed = rate(given.process, consume)
    consumer.stop()
    return processed


def open_queue(given: Assignment, name: str) -> Any:
    if given.way == "postgres":
        return huey.PostgresHuey(name, dsn=given.address)
    if given.way == "sqlite":
        return huey.SqliteHuey(name, filename=given.address, factory=NormalSync)
    return huey.RedisHuey(name, url=given.address)


if __name__ == "__main__":
    main(read_assignment())
