"""One `ingest` flow run in this process, as the command line runs it.

`python -m bench.ingesting SOURCE [--memory]`; the memory, where asked for, is of this process and
its children, without the Prefect server.
"""

import json
import sys
import time
from contextlib import nullcontext

from bench.memory import PeakMemory
from entrypoints.cli.local_servers import connect_prefect
from penstock.app import open_app
from penstock.settings import load_settings


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
    figures = {
        "seconds": seconds,
        "peak_mb": memory.peak_mb,
        "documents": sum(report["counts"].values()),
        "counts": report["counts"],
        "extractions": report["extractions"],
        "embeddings": report["embeddings"],
    }
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], with_memory="--memory" in sys.argv)
