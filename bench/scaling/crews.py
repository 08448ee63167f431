"""Crews: so many workers of one kind, all of them ready before there is work."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling

from bench.scaling.installation import POOL, Installation
from bench.scaling.processes import Family
from penstock.store.schema import workers

READY_SECONDS = 90.0
WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to work on whatever is due."""

    name: str
    command: tuple[str, ...]
    deployment: str | None
    """Whose flow runs the command starts; None: it does the work itself."""


WORKER = Kind(
    "penstock worker", ("entrypoints.cli.main", "worker", "--workers", "2"), deployment=None
)
FLOW = Kind(
    "process flow run",
    ("prefect", "worker", "start", "--pool", POOL, "--work-queue", "extract", "--limit", "1"),
    deployment="process/process",
)


@contextmanager
def hired(
    place: Installation, kind: Kind, count: int, **settings: str
) -> Iterator[dict[str, Family]]:
    """So many of them, imported and looking for work; their processes."""
    before = living_pids(place)
    with place.started(*[kind.command] * count, **settings) as processes:
        flow_runs = _start_flow_runs(place, kind, count)
        try:
            place.wait_for(
                lambda: len(living_pids(place) - before) == count,
                READY_SECONDS,
                f"{count} × {kind.name} to begin",
            )
            yield {f"{WORKERS} {one.pid}": Family(one.pid) for one in processes}
        finally:
            _end_flow_runs(place, flow_runs)


def living_pids(place: Installation) -> set[int]:
    running = sa.select(workers.c.pid).where(workers.c.status == "running")
    with place.app.database.read() as tx:
        return set(tx.execute(running).scalars())


def completed_items(place: Installation) -> dict[int, int]:
    """By process: a worker's threads count apart."""
    c = workers.c
    counts = sa.select(c.pid, sa.func.sum(c.completed)).group_by(c.pid)
    with place.app.database.read() as tx:
        return {pid: int(items) for pid, items in tx.execute(counts)}


def _start_flow_runs(place: Installation, kind: Kind, count: int) -> list[FlowRun]:
    if kind.deployment is None:
        return []
    deployment = place.client.read_deployment_by_name(kind.deployment)
    return [
        place.client.create_flow_run_from_deployment(deployment.id, parameters={"forever": True})
        for _ in range(count)
    ]


def _end_flow_runs(place: Installation, flow_runs: list[FlowRun]) -> None:
    """As in the UI: a flow run that is only killed keeps its concurrency slot."""
    for one in flow_runs:
        place.client.set_flow_run_state(one.id, Cancelling(), force=True)

    def all_over() -> bool:
        states = [place.client.read_flow_run(one.id).state for one in flow_runs]
        return all(state is not None and state.is_final() for state in states)

    place.wait_for(all_over, 60, "flow runs to be cancelled")
