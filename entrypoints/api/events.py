"""A run's log as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

from starlette.concurrency import run_in_threadpool

from penstock.bootstrap import App
from penstock.events.log import LogLine, read_log
from penstock.runs.lifecycle import read_run

LOOK_SECONDS = 0.5
# A comment now and then keeps proxies from closing a stream in which nothing happens.
PING_SECONDS = 15.0
PAGE = 500


async def stream_log(
    app: App,
    is_disconnected: Callable[[], Awaitable[bool]],
    run_id: int,
    *,
    after: int,
    stages: Collection[str],
    level: str | None,
) -> AsyncIterator[str]:
    """Every line after `after`, and `event: end` once the run has ended and all was sent."""
    quiet_seconds = 0.0
    while not await is_disconnected():
        lines, active = await run_in_threadpool(_read, app, run_id, after, stages, level)
        for line in lines:
            after = line.seq
            yield _event(line)
        if lines:
            quiet_seconds = 0.0
            continue
        if not active:
            yield f"event: end\ndata: {json.dumps({'run_id': run_id})}\n\n"
            return
        await asyncio.sleep(LOOK_SECONDS)
        quiet_seconds += LOOK_SECONDS
        if quiet_seconds >= PING_SECONDS:
            quiet_seconds = 0.0
            yield ": still here\n\n"


def _read(
    app: App, run_id: int, after: int, stages: Collection[str], level: str | None
) -> tuple[list[LogLine], bool]:
    with app.database.read() as tx:
        # Asked first: what is written before the run's end is found by the read after it.
        active = read_run(tx, run_id).status.active
    with app.database.read() as tx:
        return read_log(tx, run_id, after=after, stages=stages, level=level, limit=PAGE), active


def _event(line: LogLine) -> str:
    data: dict[str, Any] = line.as_json()
    return f"id: {line.seq}\nevent: log\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
