"""Two that want the same item in the same moment: sweepers, a worker that completes it, a person
who retries it. Whoever wins, its effect happens once."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import UsageError
from penstock.events import Event, record
from penstock.operations.jobs import retry_job
from penstock.queue.items import Claim, ItemStatus, NewItem, Outcome
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.queue.sweep import sweep_expired
from penstock.store.database import Database, Tx, new_node_id
from penstock.store.schema import events, nodes, work_items
from tests.faults.scenarios.scene import open_scenes

TENANT = "races"
EFFECT = "the effect"
# Long enough for either to be first, short enough for both to be in it together.
SPREAD_SECONDS = 0.003
TIMES = 1000
RESCUES = 5


@dataclass
class Tally:
    """How races ended, and what should not have happened."""

    race: str
    won: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ends = ", ".join(f"{who} won {times}" for who, times in sorted(self.won.items()))
        return (
            f"{self.race}: {self.won.total()} interleavings, {ends}: "
            f"{', '.join(self.problems[:3]) or 'every effect once'}"
        )


@dataclass
class Race:
    """One item at a time, held under a lease that has run out, and several that reach for it."""

    database: Database
    tally: Tally
    _queue: WorkQueue = field(
        default_factory=lambda: WorkQueue(default_rules(), lease_seconds=0.0, max_rescues=RESCUES)
    )

    def two_sweepers(self) -> None:
        """And the worker they take it from, which is alive after all."""
        claim = self._claim()
        swept = Counter[str]()
        self._together(
            lambda: swept.update(a=self._sweep(claim)),
            lambda: swept.update(b=self._sweep(claim)),
            lambda: self._complete(claim),
        )
        self._settle(claim, most_rescues=1)
        if swept.total() > 1:
            self.tally.problems.append(f"item {claim.ids[0]} was taken back {swept.total()} times")

    def rescue_and_completion(self) -> None:
        claim = self._claim()
        self._together(lambda: self._sweep(claim), lambda: self._complete(claim))
        self._settle(claim, most_rescues=1)

    def retry_and_completion(self) -> None:
        claim = self._claim()
        self._together(lambda: self._retry(claim), lambda: self._complete(claim))
        self._settle(claim, most_rescues=0)

    def _claim(self) -> Claim:
        with self.database.write() as tx:
            node_id = new_node_id()
            tx.execute(sa.insert(nodes).values(_node(tx, node_id)))
            [item_id] = self._queue.enqueue(tx, [NewItem(TENANT, node_id, Stage.TEXT)]).values()
            claim = self._queue.claim(tx, "first", only=[item_id])
            self._queue.start(tx, claim, claim.items)
        time.sleep(0.0005)
        return claim

    def _complete(self, claim: Claim) -> None:
        with self.database.write() as tx:
            for item in self._queue.complete(tx, claim, claim.items, Outcome.DONE):
                record(tx, Event(TENANT, "TXT", EFFECT, node_id=item.node_id))

    def _sweep(self, claim: Claim) -> int:
        with self.database.write() as tx:
            own = sa.and_(work_items.c.id == claim.ids[0], work_items.c.lease_expires_at < tx.now)
            found = sweep_expired(tx, self._queue, which=own)
        return len(found.freed) + len(found.rescued) + len(found.dead)

    def _retry(self, claim: Claim) -> None:
        try:
            with self.database.write() as tx:
                retry_job(tx, self._queue, TENANT, claim.ids[0])
        except UsageError as refused:
            if "complete" not in str(refused):
                raise

    def _settle(self, claim: Claim, *, most_rescues: int) -> None:
        """Have it done by a second worker if the first one lost it; then look at it."""
        [item_id] = claim.ids
        first_won = self._row(item_id).status == ItemStatus.COMPLETE
        self.tally.won["the worker" if first_won else "the other"] += 1
        if not first_won:
            with self.database.write() as tx:
                again = self._queue.claim(tx, "second", only=[item_id])
            self._complete(claim)
            self._complete(again)
        row = self._row(item_id)
        effects = self._effects(claim)
        if (row.status, effects) != (ItemStatus.COMPLETE, 1) or row.rescues > most_rescues:
            self.tally.problems.append(
                f"item {item_id} is {row.status} with {row.rescues} rescues and {effects} effects"
            )

    def _row(self, item_id: int) -> sa.Row[tuple[object, ...]]:
        with self.database.read() as tx:
            return tx.execute(sa.select(work_items).where(work_items.c.id == item_id)).one()

    def _effects(self, claim: Claim) -> int:
        own = sa.and_(events.c.node_id == claim.items[0].node_id, events.c.message == EFFECT)
        with self.database.read() as tx:
            query = sa.select(sa.func.count()).select_from(events).where(own)
            return int(tx.execute(query).scalar_one())

    def _together(self, *actors: Callable[[], object]) -> None:
        barrier = threading.Barrier(len(actors))
        failures: list[BaseException] = []

        def act(actor: Callable[[], object]) -> None:
            barrier.wait()
            time.sleep(random.uniform(0, SPREAD_SECONDS))
            try:
                actor()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=act, args=(actor,)) for actor in actors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.tally.problems += [f"{type(error).__name__}: {error}" for error in failures]


RACES: dict[str, Callable[[Race], None]] = {
    "two sweepers": Race.two_sweepers,
    "rescue and completion": Race.rescue_and_completion,
    "retry and completion": Race.retry_and_completion,
}


def run_races(database: Database, name: str, times: int) -> Tally:
    """So many interleavings of one race."""
    race = Race(database, Tally(name))
    for _ in range(times):
        RACES[name](race)
    return race.tally


def _node(tx: Tx, node_id: str) -> dict[str, object]:
    return {
        "id": node_id,
        "tenant_id": TENANT,
        "external_id": node_id,
        "metadata": {},
        "fields": {},
        "created_at": tx.now,
        "updated_at": tx.now,
    }


def endure_all() -> Iterator[Tally]:
    for scene in open_scenes():
        for name in RACES:
            yield run_races(scene.app.database, name, TIMES)
