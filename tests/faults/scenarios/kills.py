"""A worker dies by SIGKILL at a chosen point, among others that work on the same run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.hand import Hand
from tests.faults.scenarios.scene import Scene, open_scenes
from tests.faults.scenarios.waiting import wait_for

# Between any two of these, a worker has told the store something that the other had not.
POINTS = (
    "claim.uncommitted",
    "claim.committed",
    "text.computed",
    "extract.answered",
    "embed.computed",
    "run.unfinalized",
)
DOCUMENTS = 24
HEALTHY = 2
TIMES = 20


@dataclass(frozen=True, slots=True)
class Killed:
    """Deaths at one point, and the runs they happened in."""

    point: str
    store: str
    deaths: int
    audits: tuple[Audit, ...]
    healthy_dead: int

    @property
    def problems(self) -> list[str]:
        found = [problem for audit in self.audits for problem in audit.problems]
        if self.healthy_dead:
            found.append(f"{self.healthy_dead} workers died that nobody had killed")
        # An answer that was there is not asked for again: each has cost money.
        asked_again = sum(audit.asked_again for audit in self.audits)
        return found + [f"{asked_again} answers were asked for again"] * (asked_again > 0)

    def __str__(self) -> str:
        documents = sum(audit.documents for audit in self.audits)
        rescued = sum(audit.rescued for audit in self.audits)
        return (
            f"{self.deaths} deaths at {self.point} on {self.store}, in {len(self.audits)} runs of "
            f"{documents} documents, {rescued} items taken back: "
            f"{', '.join(self.problems) or 'nothing lost, nothing twice'}"
        )


@dataclass
class Deaths:
    """Rounds of one scene: each a run, three workers, and one of them dies."""

    scene: Scene
    healthy: list[Hand] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.healthy = [self.scene.hire() for _ in range(HEALTHY)]
        self.scene.wait_until_ready(*self.healthy)

    def at(self, point: str, times: int) -> Killed:
        """As many runs as it takes for a worker to die at this point so often."""
        audits = tuple(self._audits(point, times))
        dead = sum(not hand.is_alive() for hand in self.healthy)
        store = "SQLite" if self.scene.app.database.is_sqlite else "Postgres"
        return Killed(point, store, times, audits, dead)

    def _audits(self, point: str, times: int) -> Iterator[Audit]:
        armed = f"{point}=kill"
        following = self.scene.hire(armed, begin=False)
        for left in reversed(range(times)):
            victim = following
            if left:
                following = self.scene.hire(armed, begin=False)
            victim.begin()
            self.scene.wait_until_ready(victim)
            while not victim.was_killed:
                # Who does the last batch is not ours to say: some runs end without a death.
                yield self._one_run(victim)

    def _one_run(self, victim: Hand) -> Audit:
        run_id = self.scene.open_run(DOCUMENTS)
        self.scene.wait_for_run(run_id)
        # The one that dies in the very end may take a moment longer than its run.
        if not victim.is_alive():
            wait_for(lambda: victim.was_killed, 5, f"worker {victim.pid} to be dead by SIGKILL")
        return self.scene.audit(run_id, DOCUMENTS)


def endure_all() -> Iterator[Killed]:
    """Every point, on both stores."""
    for scene in open_scenes():
        deaths = Deaths(scene)
        for point in POINTS:
            yield deaths.at(point, TIMES)
