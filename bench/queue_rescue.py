"""How long an interrupted document waits: a worker dies with a batch in its hands, behind a long
backlog of the same priority, while another worker goes on."""

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Self, cast

from bench.figures import Figure
from bench.queue_assignment import new_ids
from bench.queue_contenders import OURS, WORKER_LANES, Kind, Store
from bench.queue_penstock import BATCH, POLL_SECONDS, refresh_statistics
from bench.queue_servers import Servers
from penstock.documents import Stage
from penstock.pipeline.processor import Processor
from penstock.pipeline.stage import Observer
from penstock.pipeline.worker import Worker
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.items import Claim, NewItem, Outcome, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.queue.sweep import Recovered, sweep_expired
from penstock.store.database import Database

CLAIMS = 50
LEASE_SECONDS = 3.0
SWEEP_SECONDS = 1.0
# What a document takes a worker.
DOCUMENT_SECONDS = 0.01
WANTED_SECONDS = LEASE_SECONDS + SWEEP_SECONDS + CLAIMS * DOCUMENT_SECONDS


@dataclass(slots=True)
class SlowWork:
    """Takes a while for each document, and notes when each item is at work."""

    database: Database
    queue: WorkQueue
    awaited: set[int]
    worker: Worker | None = None
    stages: tuple[Stage, ...] = tuple(Stage)
    begun: dict[int, float] = field(default_factory=dict)

    def first_begun(self, items: Sequence[WorkItem]) -> Sequence[WorkItem]:
        return items

    def process(self, claim: Claim) -> None:
        now = time.monotonic()
        self.begun |= {item_id: now for item_id in claim.ids if item_id in self.awaited}
        time.sleep(DOCUMENT_SECONDS * len(claim.items))
        with self.database.write() as tx:
            self.queue.complete(tx, claim, claim.items, Outcome.DONE)
        if self.worker is not None and self.is_done():
            self.worker.stop()

    def is_done(self) -> bool:
        return self.begun.keys() == self.awaited

    def observed_by(self, observer: Observer) -> Self:
        del observer
        return self

    def give_back(self, claim: Claim) -> None:
        with self.database.write() as tx:
            self.queue.release(tx, claim.token)


def measure_rescue(servers: Servers, *, rounds: int, backlog: int) -> list[Figure]:
    """On both databases, seconds from the death of a worker until its documents are at work."""
    figures: list[Figure] = []
    for store in (Store.POSTGRES, Store.SQLITE):
        contender = next(one for one in OURS if one.kind is Kind.OURS and one.store is store)
        waits: list[list[float]] = []
        for _ in range(rounds):
            with servers.open_store(contender) as address, closing(Database(address)) as database:
                waits.append(wait_for_rescue(database, backlog))
        figures.append(_figure(store, waits, backlog))
    return figures


def wait_for_rescue(database: Database, backlog: int) -> list[float]:
    """The seconds of each document, ascending."""
    queue = WorkQueue(default_rules(), lease_seconds=LEASE_SECONDS)
    interrupted = _interrupt(database, queue, backlog)
    died = time.monotonic()
    work = SlowWork(database, queue, set(interrupted.ids))
    with Heartbeat(database, queue, every_seconds=LEASE_SECONDS / 3) as heartbeat:
        worker = Worker(
            database,
            queue,
            cast(Processor, work),
            heartbeat,
            CLAIMS,
            WORKER_LANES,
            POLL_SECONDS,
            recover=partial(_sweep, database, queue),
            sweep_seconds=SWEEP_SECONDS,
        )
        work.worker = worker
        worker.run(work.is_done)
    return sorted(at - died for at in work.begun.values())


def _interrupt(database: Database, queue: WorkQueue, backlog: int) -> Claim:
    """A worker holds the second stage of a batch, whose items are the youngest, and is gone."""
    items = [NewItem("default", node_id, Stage.TEXT) for node_id in new_ids(CLAIMS + backlog)]
    for first in range(0, len(items), BATCH):
        with database.write() as tx:
            queue.enqueue(tx, items[first : first + BATCH])
    refresh_statistics(database)
    with database.write() as tx:
        claim = queue.claim(tx, "gone", limit=CLAIMS)
        queue.complete(tx, claim, claim.items, Outcome.DONE)
        following = queue.open_next(tx, claim, claim.items, Stage.EXTRACT, leased=True)
        queue.start(tx, following, following.items)
    return following


def _sweep(database: Database, queue: WorkQueue) -> Recovered:
    with database.write() as tx:
        return Recovered(sweep_expired(tx, queue))


def _figure(store: Store, waits: Sequence[Sequence[float]], backlog: int) -> Figure:
    last = [found[int(0.99 * len(found))] for found in waits]
    medians = [statistics.median(found) for found in waits]
    return Figure(
        f"queue.{store.lower()}_rescue_p99",
        f"interrupted documents at work again behind {backlog:,} others on {store}, p99",
        statistics.median(last),
        unit="s",
        wanted=WANTED_SECONDS,
        lower_is_better=True,
        detail=(
            f"lease {LEASE_SECONDS:g} s, sweep {SWEEP_SECONDS:g} s, a batch "
            f"{CLAIMS * DOCUMENT_SECONDS:g} s; median document {statistics.median(medians):.2f} s, "
            f"worst round {max(last):.2f} s; {len(waits)} rounds"
        ),
    )
