"""Our queue, in this process: bulk enqueue, and one worker that drains no-op jobs."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self, cast

import sqlalchemy as sa

from bench.queue_assignment import (
    ENQUEUE,
    Assignment,
    check_done,
    name_way,
    new_ids,
    rate,
    read_assignment,
    tell,
)
from bench.queue_contenders import MIRRORED, WORKER_LANES
from penstock.documents import Stage
from penstock.pipeline.processor import Processor
from penstock.pipeline.stage import Observer
from penstock.pipeline.worker import Worker
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.items import Claim, ItemStatus, NewItem, Outcome, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.redis.client import build_redis_client
from penstock.redis.mirror import RedisMirror
from penstock.store.database import Database
from penstock.store.schema import work_items

BATCH = 2_000
HEARTBEAT_SECONDS = 10.0
POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class NoWork:
    """Stands in for the path: each claim is started and completed as a stage of one batch does it,
    in two transactions guarded by the lease, with nothing between them."""

    database: Database
    queue: WorkQueue
    stages: tuple[Stage, ...] = tuple(Stage)

    def first_begun(self, items: Sequence[WorkItem]) -> Sequence[WorkItem]:
        return items

    def process(self, claim: Claim) -> None:
        with self.database.write() as tx:
            self.queue.complete(tx, claim, claim.items, Outcome.DONE)

    def observed_by(self, observer: Observer) -> Self:
        del observer
        return self

    def give_back(self, claim: Claim) -> None:
        with self.database.write() as tx:
            self.queue.release(tx, claim.token)


@dataclass(frozen=True, slots=True)
class Bench:
    """One queue on one database."""

    database: Database
    queue: WorkQueue

    def run(self, given: Assignment, ways: tuple[tuple[int, int], ...]) -> dict[str, float]:
        """Every way of draining, given as the size of a claim and the number of threads."""
        rates: dict[str, float] = {}
        # A worker compiles its statements once in its life.
        for claims, threads in ways:
            self.drain(2 * claims, claims, threads)
        for claims, threads in ways:
            rates[name_way(claims, threads)] = self.drain(given.process, claims, threads)
        # Other than a text, a vector in the making is marked on its node too.
        for figure, stage in ((ENQUEUE, Stage.TEXT), (f"{ENQUEUE}, stage embed", Stage.EMBED)):
            rates[figure] = self.enqueue(given.enqueue, stage)
        check_done(self.count(ItemStatus.PENDING), 2 * given.enqueue)
        return rates

    def enqueue(self, jobs: int, stage: Stage) -> float:
        items = [NewItem("default", node_id, stage) for node_id in new_ids(jobs)]

        def record() -> None:
            for first in range(0, jobs, BATCH):
                with self.database.write() as tx:
                    self.queue.enqueue(tx, items[first : first + BATCH])

        return rate(jobs, record)

    def drain(self, jobs: int, claims: int, threads: int) -> float:
        """One worker, from before its first claim until nothing is left."""
        done = self.count(ItemStatus.COMPLETE)
        self.enqueue(jobs, Stage.TEXT)
        refresh_statistics(self.database)
        seconds = self.work(claims, threads)
        check_done(self.count(ItemStatus.COMPLETE) - done, jobs)
        return jobs / seconds

    def work(self, claims: int, threads: int) -> float:
        """Seconds of one worker until nothing is left."""
        with Heartbeat(self.database, self.queue, every_seconds=HEARTBEAT_SECONDS) as heartbeat:
            processor = cast(Processor, NoWork(self.database, self.queue))
            worker = Worker(
                self.database, self.queue, processor, heartbeat, claims, threads, POLL_SECONDS
            )
            began = time.perf_counter()
            worker.run(lambda: True)
            return time.perf_counter() - began

    def count(self, status: ItemStatus) -> int:
        count = sa.select(sa.func.count()).where(work_items.c.status == status)
        with self.database.read() as tx:
            return int(tx.execute(count).scalar_one())


def refresh_statistics(database: Database) -> None:
    """As autovacuum does on a server that has run for a while; the same is done for peers."""
    if not database.is_sqlite:
        with database.engine.begin() as connection:
            connection.execute(sa.text("ANALYZE work_items"))


def main(given: Assignment) -> None:
    mirrored = given.way == MIRRORED
    dispatch = RedisMirror(build_redis_client(given.redis_url)) if mirrored else None
    threads = (1,) if mirrored else (1, WORKER_LANES)
    ways = tuple((claims, number) for number in threads for claims in (50, 200))
    with closing(Database(given.address)) as database:
        queue = WorkQueue(default_rules(), mirror=dispatch)
        tell(Bench(database, queue).run(given, ways))


if __name__ == "__main__":
    main(read_assignment())
