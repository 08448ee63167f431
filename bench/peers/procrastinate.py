"""procrastinate on Postgres.

`batch_defer_async` is its bulk enqueue. One worker with a concurrency of 10 and as many
connections, on async jobs, so that no thread is needed for one: more of either was no quicker. It
ends when nothing is left and does not listen for more. Statistics are brought up to date first, as
autovacuum does on a server that has run for a while.
"""

import asyncio
import logging
import time
from typing import Any

import procrastinate

from bench.queue_assignment import (
    ENQUEUE,
    PROCESS,
    Assignment,
    check_done,
    new_ids,
    read_assignment,
    tell,
)

BATCH = 2_000
CONCURRENCY = 10


async def do_nothing(node_id: str) -> None:
    del node_id


async def main(given: Assignment) -> None:
    # It logs every step of every job.
    logging.disable(logging.WARNING)
    connector = procrastinate.PsycopgConnector(conninfo=given.address, max_size=CONCURRENCY)
    app = procrastinate.App(connector=connector)
    task = app.task(do_nothing, name="do_nothing")
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await enqueue(task, new_ids(given.process))
        await connector.execute_query_async("ANALYZE")
        processed = await process(app, given.process)
        enqueued = await enqueue(task, new_ids(given.enqueue))
        check_done(await count(app, "todo"), given.enqueue)
    tell({ENQUEUE: enqueued, PROCESS: processed})


async def enqueue(task: Any, ids: list[str]) -> float:
    began = time.perf_counter()
    for first in range(0, len(ids), BATCH):
        some = [{"node_id": node_id} for node_id in ids[first : first + BATCH]]
        await task.batch_defer_async(*some)
    return len(ids) / (time.perf_counter() - began)


async def process(app: procrastinate.App, jobs: int) -> float:
    began = time.perf_counter()
    await app.run_worker_async(
        wait=False, concurrency=CONCURRENCY, listen_notify=False, install_signal_handlers=False
    )
    seconds = time.perf_counter() - began
    check_done(await count(app, "succeeded"), jobs)
    return jobs / seconds


async def count(app: procrastinate.App, status: str) -> int:
    return len([*await app.job_manager.list_jobs_async(status=status)])


if __name__ == "__main__":
    asyncio.run(main(read_assignment()))
