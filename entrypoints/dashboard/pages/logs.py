"""A run's log: pages of it, the live stream, and all of it as a file."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from entrypoints.api.deps import AppDep
from entrypoints.api.events import EventStream, sequence_number
from entrypoints.dashboard.feed import Feeds
from entrypoints.dashboard.pages.run import RunId, summarize
from entrypoints.dashboard.viewer import Reader
from penstock.app import App
from penstock.events import LogFilter, LogLine, count_log, newest_seq, page_log, read_log
from penstock.runs.lifecycle import read_run

router = APIRouter(prefix="/runs")


async def read_filter(
    stage: Annotated[list[str], Query(max_length=5)] = [],  # noqa: B006 - FastAPI copies defaults
    level: Annotated[str | None, Query(max_length=10)] = None,
    text: Annotated[str | None, Query(max_length=200)] = None,
) -> LogFilter:
    """Which of a run's lines are asked for."""
    return LogFilter(tuple(stage), level, text)


Wanted = Annotated[LogFilter, Depends(read_filter)]


@router.get("/{run_id}/lines")
def show_lines(
    app: AppDep,
    viewer: Reader,
    run_id: RunId,
    wanted: Wanted,
    offset: Annotated[int | None, Query(ge=0, le=2**40)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """Lines from `offset` on, or the last ones; how many there are up to `upto`, the newest line
    of the run: whatever comes later is in the stream."""
    with app.database.read() as tx:
        read_run(tx, run_id, viewer.tenant_id)
        upto = newest_seq(tx, run_id)
        total = count_log(tx, run_id, wanted, upto=upto)
        begin = max(0, total - limit) if offset is None else offset
        lines = page_log(tx, run_id, wanted, offset=begin, limit=limit, upto=upto)
    shown = [line.as_json() for line in lines]
    return {"total": total, "upto": upto, "offset": begin, "lines": shown}


@router.get("/{run_id}/events")
def follow(
    request: Request,
    app: AppDep,
    viewer: Reader,
    run_id: RunId,
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> EventStream:
    with app.database.read() as tx:
        read_run(tx, run_id, viewer.tenant_id)
    begin, until = sequence_number(last_event_id, after), viewer.principal.until
    events = _follow(_feeds(request, app), run_id, begin, until)
    return EventStream(events, headers={"X-Accel-Buffering": "no"})


@router.get("/{run_id}/log.txt")
def download(
    app: AppDep,
    viewer: Reader,
    run_id: RunId,
    wanted: Wanted,
) -> StreamingResponse:
    with app.database.read() as tx:
        read_run(tx, run_id, viewer.tenant_id)
    headers = {"Content-Disposition": f'attachment; filename="penstock-run-{run_id}.log"'}
    lines = _all_lines(app, run_id, wanted)
    return StreamingResponse(lines, media_type="text/plain; charset=utf-8", headers=headers)


async def _follow(feeds: Feeds, run_id: int, after: int, until: float | None) -> AsyncIterator[str]:
    with feeds.joined(run_id) as feed:
        async for event in feed.follow(after, until):
            yield event


def _feeds(request: Request, app: App) -> Feeds:
    """Those of this server; made with the first viewer, when the parts are there."""
    state = request.app.state
    if not hasattr(state, "feeds"):
        state.feeds = Feeds(app, lambda run_id: summarize(app, run_id))
    feeds: Feeds = state.feeds
    return feeds


def _all_lines(app: App, run_id: int, wanted: LogFilter) -> Iterator[str]:
    after = 0
    while True:
        with app.database.read() as tx:
            lines = read_log(
                tx,
                run_id,
                after=after,
                stages=wanted.stages,
                level=wanted.level,
                text=wanted.text,
            )
        if not lines:
            return
        after = lines[-1].seq
        yield "".join(map(_written, lines))


def _written(line: LogLine) -> str:
    about = f" {line.document}:" if line.document else ""
    message = line.message.replace("\n", "\n    ")
    return f"{line.at.isoformat()} {line.stage} {line.level:7}{about} {message}\n"
