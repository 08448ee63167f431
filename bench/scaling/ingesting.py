"""One source, ingested by a flow run of the deployment `ingest`, watched from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import psutil
import sqlalchemy as sa

from bench.scaling.installation import POOL, PROFILE, Installation, Process
from bench.scaling.texts import write_texts
from penstock.runs.lifecycle import run_of_flow
from penstock.store.schema import run_documents, runs, work_items
from tests.faults.scenarios.audit import audit_run

_WORKER = ("prefect", "worker", "start", "--pool", POOL, "--work-queue", "crawl")


@dataclass(frozen=True, slots=True)
class Moments:
    """When things happened to a run, by the database's clock, which is the machine's."""

    opened_at: datetime
    listed_at: datetime
    started_at: datetime
    """When the first item of work was begun."""
    first_ready_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class Ingested:
    """A flow run that ended well."""

    asked_at: datetime
    flow_run_id: UUID
    run_id: int


@contextmanager
def serving(place: Installation, **settings: str) -> Iterator[Process]:
    """A process worker that starts whatever is asked of the queue `crawl`."""
    with place.started(_WORKER, **settings) as [worker]:
        place.wait_for(lambda: _is_online(place), 60, "the pool to have a worker")
        yield worker


def ingest(place: Installation, worker: Process, documents: int) -> Ingested:
    """`prefect deployment run ingest/ingest` to the end of its process and of its events."""
    source = write_texts(place.new_folder(), documents)
    asked_at = datetime.now(UTC)
    flow_run_id = place.deployment_run("ingest/ingest", source=str(source), profile=PROFILE)
    _wait_for_end(place, flow_run_id)
    place.wait_for(lambda: not psutil.Process(worker.pid).children(), 30, "the process to end")
    run = run_of_flow(place.app.database, str(flow_run_id))
    assert run is not None
    problems = audit_run(place.app.database, run.id, documents).problems
    if problems:
        raise SystemExit(f"run {run.id}: {'; '.join(problems)}")
    return Ingested(asked_at, flow_run_id, run.id)


def _wait_for_end(place: Installation, flow_run_id: UUID) -> None:
    """The event of its end is the last of its events, and is written down some seconds later."""
    state = f"SELECT state_type FROM flow_run WHERE id = '{flow_run_id}'"
    ended = (
        "SELECT 1 FROM event_resources WHERE resource_id = "
        f"'prefect.flow-run.{flow_run_id}' AND resource ->> 'prefect.state-type' = 'COMPLETED'"
    )

    def is_over() -> bool:
        [(found,)] = place.ask_prefect_store(state)
        if found in ("FAILED", "CRASHED", "CANCELLED"):
            raise SystemExit(f"the flow run ended as {found}\n{place.logs()}")
        return bool(place.ask_prefect_store(ended))

    place.wait_for(is_over, 300, "the flow run to end", look_seconds=0.5)


def read_moments(place: Installation, run_id: int) -> Moments:
    own = sa.select(runs).where(runs.c.id == run_id)
    begun = sa.select(sa.func.min(work_items.c.started_at)).where(work_items.c.run_id == run_id)
    ready = sa.select(sa.func.min(run_documents.c.updated_at)).where(
        run_documents.c.run_id == run_id, run_documents.c.status == "ready"
    )
    with place.app.database.read() as tx:
        run = tx.execute(own).one()
        return Moments(
            run.created_at,
            run.listed_at,
            tx.execute(begun).scalar_one(),
            tx.execute(ready).scalar_one(),
            run.finished_at,
        )


def _is_online(place: Installation) -> bool:
    return str(place.client.read_work_pool(POOL).status) == "WorkPoolStatus.READY"
