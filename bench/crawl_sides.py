"""The two sides of the crawl bench, each a process of its own.

`python -m bench.crawl_sides bare URLS THREADS`: a bare httpx loop, one client.
`python -m bench.crawl_sides ours URLS THREADS HOME`: the crawl of a run: list, fetch, compare, keep
raw bytes, record nodes and work items.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import sqlalchemy as sa

from bench.memory import PeakMemory
from penstock.app import App, open_app
from penstock.crawl.simhash import simhash
from penstock.runs.execute import admit_listed, list_source, open_source_run
from penstock.runs.lifecycle import take_run, try_finalize
from penstock.runs.run import RunLease
from penstock.settings import load_settings
from penstock.store.schema import nodes, run_documents, work_items


def crawl_bare(urls: Path, threads: int) -> dict[str, float]:
    """What a bare httpx loop reaches."""
    limits = httpx.Limits(max_connections=threads, max_keepalive_connections=threads)
    addresses = urls.read_text().split()
    with PeakMemory() as memory, httpx.Client(limits=limits, trust_env=False) as client:

        def get(url: str) -> int:
            return len(client.get(url).raise_for_status().content)

        with ThreadPoolExecutor(threads) as pool:
            started = time.perf_counter()
            total = sum(pool.map(get, addresses))
            seconds = time.perf_counter() - started
    documents = len(addresses)
    return {
        "seconds": seconds,
        "peak_mb": memory.peak_mb,
        "documents": documents,
        "bytes": total,
    }


def crawl_ours(urls: Path, threads: int, home: Path) -> dict[str, float]:
    """What the crawl of a run reaches."""
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
    return {"seconds": seconds, "peak_mb": memory.peak_mb, "documents": pages}


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


def main(side: str, urls: str, threads: str, home: str = "") -> None:
    if side == "bare":
        found = crawl_bare(Path(urls), int(threads))
    else:
        found = crawl_ours(Path(urls), int(threads), Path(home))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
