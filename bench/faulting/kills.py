"""A worker dies by SIGKILL at a chosen point, among others that work on the same run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.faulting.audit import Audit
from bench.faulting.hand import Hand
from bench.faulting.scene import Scene
from bench.faulting.waiting import wait_for

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


@dataclass
class Deaths:
    """Rounds of one scene: each a run, three workers, and one of them dies."""

    scene: Scene
    healthy: list[Hand] = field(default_factory=list)
    runs_without_a_death: int = 0

    def __post_init__(self) -> None:
        self.healthy = [self.scene.hire() for _ in range(HEALTHY)]
        self.scene.wait_until_ready(*self.healthy)

    def at(self, point: str, times: int) -> Iterator[Audit]:
        """The audits of as many runs as it takes for a worker to die at this point so often."""
        armed = f"{point}=kill"
        victim = self.scene.hire(armed, begin=False)
        for _ in range(times):
            following = self.scene.hire(armed, begin=False)
            victim.begin()
            self.scene.wait_until_ready(victim)
            while not victim.was_killed:
                # Who does the last batch is not ours to say: some runs end without a death.
                self.runs_without_a_death += victim.is_alive()
                yield self._one_run(victim)
            victim = following
        victim.stop()

    def _one_run(self, victim: Hand) -> Audit:
        run_id = self.scene.open_run(DOCUMENTS)
        self.scene.wait_for_run(run_id)
        # The one that dies in the very end may take a moment longer than its run.
        if not victim.is_alive():
            wait_for(lambda: victim.was_killed, 5, f"worker {victim.pid} to be dead by SIGKILL")
        return self.scene.audit(run_id, DOCUMENTS)
