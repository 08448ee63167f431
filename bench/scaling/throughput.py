"""One, two and four workers on one run, while the model's latency is what they wait for."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from bench.figures import Figure
from bench.scaling.crews import WORKERS, Kind, completed_items, hired
from bench.scaling.installation import PROFILE, TENANT, Installation
from bench.scaling.processes import Spent, read_cpu, spent_between
from bench.scaling.texts import write_texts
from penstock.app import App
from penstock.runs.execute import admit_listed, list_source, open_source_run
from penstock.runs.lifecycle import take_run
from penstock.store.schema import runs, work_items
from tests.faults.scenarios.audit import Audit, audit_run, is_over

CREWS = (1, 2, 4)
WANTED = {2: 1.8, 4: 3.6}
STAGES = 3
# Each has loaded its embedder and its child by then.
WARMING_DOCUMENTS = 60


@dataclass(frozen=True, slots=True)
class Worked:
    """One run, done by a crew."""

    kind: Kind
    crew: int
    documents: int
    seconds: float
    """From the first start of an item to the finalized run, by the database's clock."""
    shares: tuple[float, ...]
    """Documents by worker, as each of them counted its items."""
    spent: Spent
    audit: Audit

    @property
    def rate(self) -> float:
        return self.documents / self.seconds

    @property
    def problems(self) -> list[str]:
        found = list(self.audit.problems)
        if self.audit.asked_again:
            found.append(f"models were asked again about {self.audit.asked_again} documents")
        if sum(self.shares) != self.documents:
            found.append(f"workers count {sum(self.shares):g} documents")
        return found

    def __str__(self) -> str:
        shares = " + ".join(f"{share:.0f}" for share in self.shares)
        found = "; ".join(self.problems) or "each once, finalized once"
        return (
            f"{self.crew} × {self.kind.name}: {self.documents} documents in {self.seconds:.1f} s, "
            f"{self.rate:.1f} a second, machine {self.spent.machine_share:.0%} busy "
            f"({self.spent.own_share:.0%} by this bench), by owner {shares}: {found}; "
            f"CPU a document: {self._cpu_told()}"
        )

    def _cpu_told(self) -> str:
        """Workers together, and each server that had something to do with it."""
        used: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.spent.families.items():
            used[WORKERS if name.startswith(WORKERS) else name] += seconds
        each = {name: 1_000 * seconds / self.documents for name, seconds in used.items()}
        return ", ".join(f"{name} {ms:.1f} ms" for name, ms in each.items() if ms >= 0.05)


def work(place: Installation, kind: Kind, crew: int, documents: int, concurrency: int) -> Worked:
    """A crew that is warm meets a run of so many documents."""
    settings = {
        "EXTRACTION_CONCURRENCY": str(concurrency),
        "PENSTOCK_TEXT_PROCESSES": "1",
        "PENSTOCK_HEARTBEAT_SECONDS": "1",
    }
    cold = completed_items(place)
    with hired(place, kind, crew, **settings) as workers:
        _finish(place, WARMING_DOCUMENTS * crew)
        warm = _wait_for_count(place, cold, WARMING_DOCUMENTS * crew)
        families = {**place.servers, **workers}
        before = read_cpu(families)
        run_id = _finish(place, documents)
        after = read_cpu(families)
        done = _wait_for_count(place, warm, documents)
    return Worked(
        kind,
        crew,
        documents,
        _seconds(place.app, run_id),
        _shares(warm, done),
        spent_between(before, after),
        audit_run(place.app.database, run_id, documents),
    )


def judge(worked: Sequence[Worked]) -> list[Figure]:
    """Ratios of the best rounds: other programs only ever slow them."""
    figures = []
    for kind in dict.fromkeys(one.kind for one in worked):
        own = [one for one in worked if one.kind is kind]
        rates = {crew: [one.rate for one in own if one.crew == crew] for crew in CREWS}
        figures += [
            Figure.ratio(
                f"scale.{crew}_workers_over_1",
                f"{crew} × {kind.name} over 1",
                rates[crew],
                rates[1],
                wanted=WANTED[crew],
            )
            for crew in CREWS
            if crew in WANTED
        ]
    wrong = [problem for one in worked for problem in one.problems]
    detail = "; ".join(wrong) or f"{len(worked)} runs: nothing lost, nothing twice"
    return [
        *figures,
        Figure(
            "scale.workers_problems",
            "documents not done exactly once, runs not finalized exactly once",
            len(wrong),
            "",
            wanted=0,
            lower_is_better=True,
            detail=detail,
        ),
    ]


def _finish(place: Installation, documents: int) -> int:
    """Have the workers do a run of new documents."""
    source = write_texts(place.new_folder(), documents)
    app = place.app
    run = open_source_run(app.sources, str(source), TENANT, profile=PROFILE)
    lease = take_run(app.database, run.id, lease_seconds=600)
    admission = app.admission(lease)
    discover = partial(list_source, app.sources, run)
    fetch, admit = admission.fetch_batches, admission.record
    for _ in admit_listed(app.database, lease, discover, fetch, admit):
        pass
    place.wait_for(lambda: is_over(app.database, run.id), 300, f"run {run.id} to end")
    return run.id


def _seconds(app: App, run_id: int) -> float:
    first = sa.select(sa.func.min(work_items.c.started_at)).where(work_items.c.run_id == run_id)
    ended = sa.select(runs.c.finished_at).where(runs.c.id == run_id)
    with app.database.read() as tx:
        began_at, ended_at = tx.execute(first).scalar_one(), tx.execute(ended).scalar_one()
    return float((ended_at - began_at).total_seconds())


def _wait_for_count(place: Installation, before: dict[int, int], documents: int) -> dict[int, int]:
    """Workers write down what they did with their next heartbeat."""
    wanted = sum(before.values()) + STAGES * documents
    place.wait_for(
        lambda: sum(completed_items(place).values()) >= wanted, 15, "workers to count their items"
    )
    return completed_items(place)


def _shares(before: dict[int, int], after: dict[int, int]) -> tuple[float, ...]:
    gained = (items - before.get(pid, 0) for pid, items in after.items())
    return tuple(items / STAGES for items in gained if items)
