"""Workers whose clocks are wrong by minutes share one run."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.testing import Reply
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.scene import LEASE_SECONDS, Scene, open_postgres_scene

SKEWS = (600.0, -600.0, 0.0)
DOCUMENTS = 24


@dataclass(frozen=True, slots=True)
class Skewed:
    """A run without deaths, whose items all took longer than a lease, and one with a death."""

    calm: Audit
    with_a_death: Audit

    @property
    def problems(self) -> list[str]:
        found = [*self.calm.problems, *self.with_a_death.problems]
        if self.calm.rescued:
            found.append(f"{self.calm.rescued} items were taken from workers that were alive")
        if not self.with_a_death.rescued:
            found.append("nothing was taken back from the one that died")
        return found

    def __str__(self) -> str:
        return (
            f"clocks wrong by {', '.join(f'{skew:+.0f} s' for skew in SKEWS)}; "
            f"{self.with_a_death.rescued} items taken back from the one that died: "
            f"{', '.join(self.problems) or 'none from those that were alive'}"
        )


def work_with_wrong_clocks(scene: Scene) -> Skewed:
    """By a worker's own clock, everybody else's leases would have run out, or never would."""
    hands = [scene.hire(skew_seconds=skew) for skew in SKEWS]
    scene.wait_until_ready(*hands)
    # Answers take longer than a lease lasts: only heartbeats keep the items where they are.
    scene.models.always(None, Reply().after(1.2 * LEASE_SECONDS))
    calm = scene.open_run(DOCUMENTS // 2)
    scene.wait_for_run(calm)
    scene.models.always(None, Reply())
    victim = scene.hire("text.computed=kill", skew_seconds=SKEWS[0])
    scene.wait_until_ready(victim)
    deadly = scene.open_run(DOCUMENTS)
    scene.wait_for_run(deadly)
    return Skewed(scene.audit(calm, DOCUMENTS // 2), scene.audit(deadly, DOCUMENTS))


def endure_all() -> Iterator[Skewed]:
    """On Postgres: the processes of one SQLite file are on one machine, which has one clock."""
    with open_postgres_scene() as scene:
        yield work_with_wrong_clocks(scene)
