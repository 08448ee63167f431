"""What many viewers of one run cost the server, beside what one costs."""

import asyncio
import time
from dataclasses import dataclass

import httpx

from bench.viewing.scene import Scene

LINES_PER_SECOND = 20
# As often as an open page asks for its documents.
TABLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Crowded:
    viewers: int
    cpu_share: float
    """Of one core."""
    transactions_per_second: float
    """Of the database, without those that write the lines."""
    lines_each: int
    """That every viewer has got: all of them got the same."""
    tables: bool


def look(
    scene: Scene, viewers: int, seconds: float, first: int, *, tables: bool = False
) -> Crowded:
    """`tables`: as pages do while documents are done, each asks for its table of them, too."""
    return asyncio.run(_look(scene, viewers, seconds, first, tables))


async def _look(scene: Scene, viewers: int, seconds: float, first: int, tables: bool) -> Crowded:
    async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as http:
        after = await _newest(scene, http)
        started = [asyncio.Event() for _ in range(viewers)]
        counts = [0] * viewers
        watching = [
            asyncio.create_task(_watch(scene, http, after, started[one], counts, one))
            for one in range(viewers)
        ]
        await asyncio.gather(*(event.wait() for event in started))
        if tables:
            watching += [
                asyncio.create_task(_ask_for_tables(scene, http, one / viewers))
                for one in range(viewers)
            ]
        # Postgres counts what was asked only a moment later.
        await asyncio.sleep(2)
        cpu, transactions, begun = scene.cpu_seconds(), scene.transactions(), time.monotonic()
        written = 0
        while time.monotonic() - begun < seconds:
            await asyncio.to_thread(scene.write_lines, first + written, LINES_PER_SECOND)
            written += LINES_PER_SECOND
            await asyncio.sleep(1)
        took = time.monotonic() - begun
        cpu = scene.cpu_seconds() - cpu
        # The writer's own, and the two that asked for this figure.
        transactions = scene.transactions() - transactions - written // LINES_PER_SECOND - 1
        for _ in range(100):
            if min(counts) >= written:
                break
            await asyncio.sleep(0.1)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    if set(counts) != {written}:
        raise RuntimeError(f"{written} lines were written, and viewers got {sorted(set(counts))}")
    return Crowded(viewers, cpu / took, transactions / took, written, tables)


async def _newest(scene: Scene, http: httpx.AsyncClient) -> int:
    found = await http.get(f"{scene.address}/ui/runs/{scene.run_id}/lines?limit=1")
    return int(found.json()["upto"])


async def _ask_for_tables(scene: Scene, http: httpx.AsyncClient, turn: float) -> None:
    await asyncio.sleep(turn * TABLE_SECONDS)
    while True:
        answer = await http.get(f"{scene.address}/ui/runs/{scene.run_id}/documents")
        answer.raise_for_status()
        await asyncio.sleep(TABLE_SECONDS)


async def _watch(
    scene: Scene,
    http: httpx.AsyncClient,
    after: int,
    started: asyncio.Event,
    counts: list[int],
    one: int,
) -> None:
    address = f"{scene.address}/ui/runs/{scene.run_id}/events?after={after}"
    async with http.stream("GET", address) as events:
        async for line in events.aiter_lines():
            started.set()
            counts[one] += line == "event: log"
