"""The crawl of a run: list, fetch, compare, keep raw bytes, record nodes and work items."""

import json
import sys
import time
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from bench.memory import PeakMemory
from penstock.app import App, open_app
from penstock.crawl.simhash import simhash
from penstock.runs.execute import admit_listed, list_source, open_source_run
from penstock.runs.lifecycle import take_run, try_finalize
from penstock.runs.run import RunLease
from penstock.settings import load_settings
from penstock.store.schema import nodes, run_documents, work_items


def main(urls: Path, home: Path, threads: int) -> dict[str, float]:
    settings = load_settings(
        home=home,
        allow_private_addresses=True,
        crawl_delay_seconds=0.0,
        crawl_concurrency=threads,
        # Some compare and store while the others wait for the site.
        crawl_threads=2 * threads,
    )
    with open_app(settings) as app, PeakMemory() as memory:
        run = open_source_run(app.sources, str(urls), "bench")
        lease = take_run(app.database, run.id, lease_seconds=600)
        admission = app.admission(lease)
        simhash("as the other, without the time that imports take")
        started = time.perf_counter()
        discover = partial(list_source, app.sources, lease.run)
        fetch, admit = admission.fetch_batches, admission.record
        pages = sum(admit_listed(app.database, lease, discover, fetch, admit))
        seconds = time.perf_counter() - started
        settle(app, lease)
    return {"seconds": seconds, "peak_mb": memory.peak_mb, "pages": pages}


def settle(app: App, lease: RunLease) -> None:
    """As if all stages had succeeded: the marks of the pages are committed, the run ends."""
    with app.database.write() as tx:
        # Of this run alone: what earlier ones have left, once read, looks like memory of its pages.
        own = work_items.c.run_id == lease.run.id
        for item in app.queue.cancel(tx, own):
            marks = {
                name: getattr(item.payload, name) for name in ("content_hash", "simhash", "etag")
            }
            done = {"extraction_status": "skipped", "embedding_status": "skipped"}
            version = {"extraction_version": app.settings.extraction.version}
            tx.execute(
                sa.update(nodes).where(nodes.c.id == item.node_id).values(marks | done | version)
            )
        documents = sa.update(run_documents).where(run_documents.c.run_id == lease.run.id)
        tx.execute(documents.where(run_documents.c.status == "pending").values(status="ready"))
    try_finalize(app.database, lease.run.id)


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps(found))  # noqa: T201 - read by its caller
