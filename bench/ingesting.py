"""One `ingest` flow run in this process, as the command line runs it."""

import json
import resource
import sys
import time

from penstock.settings import load_settings


def main(source: str) -> None:
    """Run the flow on a source, with the local Prefect server already running."""
    from entrypoints.cli.local_prefect import connect_prefect, watched_by_a_person

    connect_prefect(load_settings())
    from flows.ingest import ingest

    started = time.perf_counter()
    with watched_by_a_person():
        report = ingest(source=source)
    seconds = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {
        "documents": sum(report["counts"].values()),
        "ready": report["counts"]["ready"],
        "skipped": report["counts"]["skipped"],
        "extractions": report["extractions"],
        "embeddings": report["embeddings"],
    }
    sys.stdout.write(json.dumps({"seconds": seconds, "peak_mb": peak_mb, **figures}))


if __name__ == "__main__":
    main(sys.argv[1])
