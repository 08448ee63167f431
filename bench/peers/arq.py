"""arq on Redis.

It has no bulk enqueue: its users gather many `enqueue_job`. A worker looks for jobs every
`poll_delay` and starts at most `max_jobs` of them; with the defaults, 10 jobs each half second, it
would mostly sleep. Of several pairs these two were as quick as any. Results are
not kept: this bench does not read them.
"""

import asyncio
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

from bench.queue_assignment import (
    ENQUEUE,
    PROCESS,
    Assignment,
    check_done,
    new_ids,
    read_assignment,
    tell,
)

TOGETHER = 50
MAX_JOBS = 100
POLL_SECONDS = 0.01


async def do_nothing(context: dict[str, Any], node_id: str) -> None:
    del context, node_id


async def main(given: Assignment) -> None:
    pool = await create_pool(RedisSettings.from_dsn(given.address))
    await enqueue(pool, new_ids(given.process))
    processed = await process(pool, given.process)
    enqueued = await enqueue(pool, new_ids(given.enqueue))
    check_done(await pool.zcard("arq:queue"), given.enqueue)
    await pool.aclose()
    tell({ENQUEUE: enqueued, PROCESS: processed})


async def enqueue(pool: ArqRedis, ids: list[str]) -> float:
    room = asyncio.Semaphore(TOGETHER)

    async def enqueue_one(node_id: str) -> None:
        async with room:
            await pool.enqueue_job("do_nothing", node_id)

    began = asyncio.get_running_loop().time()
    await asyncio.gather(*map(enqueue_one, ids))
    return len(ids) / (asyncio.get_running_loop().time() - began)


async def process(pool: ArqRedis, jobs: int) -> float:
    worker = Worker(
        [do_nothing],
        redis_pool=pool,
        burst=True,
        max_jobs=MAX_JOBS,
        poll_delay=POLL_SECONDS,
        keep_result=0,
        handle_signals=False,
    )
    began = asyncio.get_running_loop().time()
    await worker.async_run()
    seconds = asyncio.get_running_loop().time() - began
    check_done(worker.jobs_complete, jobs)
    return jobs / seconds


if __name__ == "__main__":
    asyncio.run(main(read_assignment()))
