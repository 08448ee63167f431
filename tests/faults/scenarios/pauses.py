"""A worker is halted in the middle of its work, loses its lease, and wakes up later.

On Postgres, which ends the transactions of such a process: one that is halted while it holds
SQLite's one lock holds up everybody.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.store.schema import (
    attempts,
    embeddings,
    events,
    extractions,
    nodes,
    run_documents,
    runs,
    texts,
    work_items,
    workers,
)
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.hand import Hand
from tests.faults.scenarios.scene import HEARTBEAT_SECONDS, Scene, open_postgres_scene
from tests.faults.scenarios.waiting import wait_for

POINTS = ("text.computed", "extract.answered", "embed.computed")
DOCUMENTS = 12
TIMES = 5
# Everything a worker could leave a trace in.
_TABLES = (
    attempts,
    embeddings,
    events,
    extractions,
    nodes,
    run_documents,
    runs,
    texts,
    work_items,
)


@dataclass(frozen=True, slots=True)
class Awakening:
    """What a worker that was halted past its lease did when it woke up."""

    point: str
    audit: Audit
    traces: int
    """Rows that differ from what they were before it woke up."""
    next_audit: Audit
    """Of a run in which it took part again."""

    @property
    def problems(self) -> list[str]:
        found = [*self.audit.problems, *self.next_audit.problems]
        if not self.audit.rescued:
            found.append("nothing was taken back from it")
        if self.traces:
            found.append(f"it left {self.traces} traces")
        return found

    def __str__(self) -> str:
        return (
            f"halted at {self.point}, {self.audit.rescued} items taken back, woken up: "
            f"{', '.join(self.problems) or 'refused, no trace of it'}"
        )


def wake_up_late(scene: Scene, healthy: Hand, point: str) -> Awakening:
    """Halt a worker at this point until others have done its work, then let it go on."""
    paused = scene.hire(f"{point}=stop")
    scene.wait_until_ready(healthy, paused)
    run_id = scene.open_run(DOCUMENTS)
    paused.wait_until_halted()
    scene.wait_for_run(run_id)
    before = _rows(scene)
    beats = _beats(scene, paused)
    paused.go_on()
    # It tries to write at once; two heartbeats later it has long been refused.
    wait_for(lambda: _beats(scene, paused) >= beats + 2 * HEARTBEAT_SECONDS, 30, "a heartbeat")
    changed = set(before) ^ set(_rows(scene))
    audit = scene.audit(run_id, DOCUMENTS)
    next_run = scene.open_run(DOCUMENTS)
    scene.wait_for_run(next_run)
    paused.stop()
    return Awakening(point, audit, len(changed), scene.audit(next_run, DOCUMENTS))


def _rows(scene: Scene) -> list[str]:
    with scene.app.database.read() as tx:
        return [
            repr((table.name, *row)) for table in _TABLES for row in tx.execute(sa.select(table))
        ]


def _beats(scene: Scene, hand: Hand) -> float:
    """The time of a worker's last sign of life, in seconds."""
    with scene.app.database.read() as tx:
        query = sa.select(sa.func.max(workers.c.heartbeat_at)).where(workers.c.pid == hand.pid)
        return float(tx.execute(query).scalar_one().timestamp())


def endure_all() -> Iterator[Awakening]:
    with open_postgres_scene() as scene:
        healthy = scene.hire()
        for _ in range(TIMES):
            for point in POINTS:
                yield wake_up_late(scene, healthy, point)
