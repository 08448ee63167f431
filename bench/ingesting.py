"""One `ingest` flow run in this process, as the command line runs it.

`python -m bench.ingesting SOURCE [--memory]`; the memory, where asked for, is of this process and
its children, without the Prefect server. Told besides: the seconds from the last document's commit
to the flow's return, and how long the last tenth of the documents took over the second tenth.
"""

import json
import sys
import time
from contextlib import nullcontext

import sqlalchemy as sa

from bench.memory import PeakMemory
from entrypoints.cli.local_servers import connect_prefect
from penstock.app import open_app
from penstock.settings import load_settings
from penstock.store.database import Database
from penstock.store.schema import run_documents


def main(source: str, *, with_memory: bool) -> None:
    """Run the flow on a source. The time is the flow run's, from call to return."""
    settings = load_settings()
    memory = PeakMemory(proportional=True)
    with memory if with_memory else nullcontext(), open_app(settings) as app:
        app.warm_up()
        connect_prefect(settings)
        from entrypoints.cli.local_servers import without_heartbeats
        from flows.ingest import ingest

        with without_heartbeats():
            started = time.perf_counter()
            report = ingest(source=source)
            seconds = time.perf_counter() - started
            returned_at = time.time()
    with open_app(settings) as app:
        moments = read_moments(app.database, report["run_id"])
    figures = {
        "seconds": seconds,
        "peak_mb": memory.peak_mb,
        "documents": sum(report["counts"].values()),
        "end_seconds": returned_at - moments[-1],
        "last_over_second_tenth": compare_tenths(moments),
        "counts": report["counts"],
        "extractions": report["extractions"],
        "embeddings": report["embeddings"],
    }
    sys.stdout.write(json.dumps(figures))


def read_moments(database: Database, run_id: int) -> list[float]:
    """When each document of a run was settled, in order: the beginning of its last transaction."""
    settled_at = run_documents.c.updated_at
    chosen = sa.select(settled_at).where(run_documents.c.run_id == run_id).order_by(settled_at)
    with database.read() as tx:
        return [moment.timestamp() for moment in tx.execute(chosen).scalars()]


def compare_tenths(moments: list[float]) -> float | None:
    """How many times as long the last tenth of the documents took as the second one; the first one
    also waits for imports. None for a run that is too short to tell."""
    tenth = len(moments) // 10
    second = moments[2 * tenth] - moments[tenth]
    return (moments[-1] - moments[-1 - tenth]) / second if second > 0 else None


if __name__ == "__main__":
    main(sys.argv[1], with_memory="--memory" in sys.argv)
