"""Many small documents, three workers, and one of them killed every few seconds."""

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import sqlalchemy as sa

from penstock.store.schema import LEASED_ITEM, work_items
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.hand import Hand
from tests.faults.scenarios.scene import Scene
from tests.faults.scenarios.waiting import TooLong, wait_for

WORKERS = 3
LOOK_SECONDS = 0.05
# After its first seconds a worker has loaded what it needs.
GROWN_UP_SECONDS = 5.0
SETTINGS = {"EXTRACTION_BACKEND": "rules", "PENSTOCK_BATCH_SIZE": "25"}


@dataclass(frozen=True, slots=True)
class Soaked:
    """What many deaths did to one run."""

    audit: Audit
    over: bool
    seconds: float
    kills: int
    detection_seconds: tuple[float, ...]
    """For every item that a killed worker held: until it was taken back."""
    recovery_seconds: tuple[float, ...]
    """The same until another worker was at it, or had done it."""
    memory_growth_mb: float
    """Of the worker that lived longest, since it was grown up."""
    lived_seconds: float
    connections: tuple[int, int]
    """Of the database, after the start and at the end."""

    @property
    def recovered(self) -> int:
        return len(self.recovery_seconds)

    def detection(self, quantile: float) -> float:
        return _quantile(self.detection_seconds, quantile)

    def recovery(self, quantile: float) -> float:
        return _quantile(self.recovery_seconds, quantile)


@dataclass
class Recoveries:
    """Watches what killed workers held until somebody else has it."""

    scene: Scene
    detected: dict[int, float] = field(default_factory=dict)
    recovered: list[float] = field(default_factory=list)
    _waiting: dict[int, tuple[str, float]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def note_death(self, pid: int) -> None:
        died_at = time.monotonic()
        c = work_items.c
        held = sa.select(c.id, c.lease_owner).where(LEASED_ITEM, c.lease_owner.like(f"%:{pid}:%"))
        with self.scene.app.database.read() as tx:
            rows = tx.execute(held).all()
        with self._lock:
            self._waiting |= {row.id: (row.lease_owner, died_at) for row in rows}

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        with self._lock:
            waiting = dict(self._waiting)
        if not waiting:
            return
        c = work_items.c
        with self.scene.app.database.read() as tx:
            rows = tx.execute(
                sa.select(c.id, c.status, c.lease_owner).where(tx.among(c.id, waiting))
            ).all()
        seen_at = time.monotonic()
        for row in rows:
            dead, died_at = waiting[row.id]
            if row.lease_owner == dead:
                continue
            self.detected.setdefault(row.id, seen_at - died_at)
            if row.status not in ("pending", "retry_pending"):
                self.recovered.append(seen_at - died_at)
                with self._lock:
                    del self._waiting[row.id]


@dataclass
class Fleet:
    """Three workers; whoever is killed is replaced at once."""

    scene: Scene
    hands: list[Hand] = field(default_factory=list)
    kills: int = 0
    longest: tuple[float, float] = (0.0, 0.0)
    """Of all killed workers: the longest life, and how much memory it gained in it."""
    _born: dict[int, float] = field(default_factory=dict)
    _young_mb: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hands = [self._hire() for _ in range(WORKERS)]
        self.scene.wait_until_ready(*self.hands)

    def kill_one(self, recoveries: Recoveries) -> None:
        place = random.randrange(WORKERS)
        victim = self.hands[place]
        self._note_life(victim)
        victim.kill()
        recoveries.note_death(victim.pid)
        self.kills += 1
        self.hands[place] = self._hire()

    def look(self) -> None:
        """Weigh those that have just grown up."""
        for hand in self.hands:
            if hand.pid not in self._young_mb and self._age(hand) > GROWN_UP_SECONDS:
                self._young_mb[hand.pid] = _memory(hand)

    def end(self) -> None:
        for hand in self.hands:
            self._note_life(hand)

    def _hire(self) -> Hand:
        hand = self.scene.hire(settings=SETTINGS)
        self._born[hand.pid] = time.monotonic()
        return hand

    def _age(self, hand: Hand) -> float:
        return time.monotonic() - self._born[hand.pid]

    def _note_life(self, hand: Hand) -> None:
        age = self._age(hand)
        if hand.pid in self._young_mb and age > self.longest[0]:
            self.longest = (age, _memory(hand) - self._young_mb[hand.pid])


def soak(scene: Scene, *, documents: int, seconds: float, kill_every: float) -> Soaked:
    """Work through so many documents, killing all the while, for at most so many seconds."""
    run_id = scene.admit(scene.write_documents(documents))
    fleet, recoveries = Fleet(scene), Recoveries(scene)
    before = _connections(scene)
    began = time.monotonic()
    with recoveries.watching():
        while time.monotonic() - began < seconds:
            if _waited(kill_every * random.uniform(0.5, 1.5), lambda: scene.is_over(run_id)):
                break
            fleet.look()
            fleet.kill_one(recoveries)
        took = time.monotonic() - began
    fleet.end()
    return Soaked(
        audit=scene.audit(run_id, documents),
        over=scene.is_over(run_id),
        seconds=took,
        kills=fleet.kills,
        detection_seconds=tuple(recoveries.detected.values()),
        recovery_seconds=tuple(recoveries.recovered),
        memory_growth_mb=fleet.longest[1],
        lived_seconds=fleet.longest[0],
        connections=(before, _connections(scene)),
    )


def _quantile(values: Sequence[float], quantile: float) -> float:
    ordered = sorted(values) or [math.nan]
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def _waited(seconds: float, happened: Callable[[], bool]) -> bool:
    """Wait so long, or until it has happened; True if it has."""
    try:
        wait_for(happened, seconds, "")
    except TooLong:
        return False
    return True


def _memory(hand: Hand) -> float:
    """Of the process and its children, in MB; nothing when it has ended."""
    try:
        process = psutil.Process(hand.pid)
        family = [process, *process.children(recursive=True)]
        return sum(one.memory_info().rss for one in family) / 1e6
    except psutil.NoSuchProcess:
        return 0.0


def _connections(scene: Scene) -> int:
    """To this database; SQLite has no server to ask."""
    if scene.app.database.is_sqlite:
        return 0
    own = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    with scene.app.database.read() as tx:
        return int(tx.execute(own).scalar_one())
