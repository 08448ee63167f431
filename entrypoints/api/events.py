"""A run's log as server-sent events."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from entrypoints.api.hidden_paths import without_paths
from penstock.app import App
from penstock.events import LogLine, read_log
from penstock.runs.lifecycle import read_run

LOOK_SECONDS = 0.5
# A comment now and then keeps proxies from closing a stream in which nothing happens.
PING_SECONDS = 15.0
PAGE = 500
LARGEST = 2**63 - 1


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


def sequence_number(last_event_id: str | None, otherwise: int) -> int:
    """Browsers send back what they were sent; anything else is no number of ours."""
    given = last_event_id or ""
    is_ours = given.isascii() and given.isdecimal() and len(given) < len(str(LARGEST))
    return int(given) if is_ours else otherwise


def is_over(until: float | None) -> bool:
    """Whether the token that a stream was asked for with has ended since."""
    return until is not None and time.time() >= until


async def stream_log(
    app: App,
    is_disconnected: Callable[[], Awaitable[bool]],
    run_id: int,
    *,
    after: int,
    stages: Collection[str],
    level: str | None,
    until: float | None,
) -> AsyncIterator[str]:
    """Every line after `after`, and `event: end` once the run has ended and all was sent."""
    quiet_seconds = 0.0
    while not await is_disconnected() and not is_over(until):
        lines, active = await run_in_threadpool(_read, app, run_id, after, stages, level)
        for line in lines:
            after = line.seq
            yield log_event(app, line)
        if lines:
            quiet_seconds = 0.0
            continue
        if not active:
            yield end_event(run_id)
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


def log_event(app: App, line: LogLine) -> str:
    data: dict[str, Any] = without_paths(app.settings, line.as_json())
    return f"id: {line.seq}\nevent: log\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def end_event(run_id: int) -> str:
    return f"event: end\ndata: {json.dumps({'run_id': run_id})}\n\n"
