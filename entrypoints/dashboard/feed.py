"""The live log and summary of a run, read once for all its viewers."""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from entrypoints.api.events import (
    LOOK_SECONDS,
    PAGE,
    PING_SECONDS,
    end_event,
    is_over,
    log_event,
)
from penstock.app import App
from penstock.events import newest_seq, read_log
from penstock.runs.lifecycle import read_run

log = logging.getLogger(__name__)
# Lines kept for viewers; one that is further behind reads them from the store.
KEPT = 2000
# A large run's summary takes longer to make: at most this share of the time goes into it.
SUMMARY_SHARE = 0.1

Summarize = Callable[[int], str]


class Feeds:
    """A feed for each run with viewers."""

    def __init__(self, app: App, summarize: Summarize) -> None:
        self._app = app
        self._summarize = summarize
        self._feeds: dict[int, Feed] = {}

    @contextmanager
    def joined(self, run_id: int) -> Iterator["Feed"]:
        """The run's feed, for as long as the block lasts. It goes with its last viewer."""
        feed = self._feeds.get(run_id)
        # One that has failed has viewers as long as they are slow to notice.
        if feed is None or feed.failed:
            feed = self._feeds[run_id] = Feed(self._app, run_id, self._summarize)
        feed.viewers += 1
        try:
            yield feed
        finally:
            feed.viewers -= 1
            if not feed.viewers:
                if self._feeds.get(run_id) is feed:
                    del self._feeds[run_id]
                feed.close()


class Feed:
    """Looks at one run, for any number of viewers."""

    def __init__(self, app: App, run_id: int, summarize: Summarize) -> None:
        self.viewers = 0
        self._app = app
        self._run_id = run_id
        self._summarize = summarize
        self._lines: deque[_Line] = deque(maxlen=KEPT)
        # What came after this line is among the kept ones; unknown until the first look.
        self._complete_after: int | None = None
        self._newest = 0
        self._summary = ""
        self._summary_due_at = 0.0
        self._version = 0
        self._ended = False
        self._changed = asyncio.Condition()
        self.failed = False
        self._looking = asyncio.create_task(self._look())

    def close(self) -> None:
        self._looking.cancel()

    async def follow(self, after: int, until: float | None = None) -> AsyncIterator[str]:
        """Server-sent events: every line after `after`, the summary whenever it changes, and the
        end. Without an end when the viewer's token ends, or the run cannot be read: the browser
        connects again, and goes on where it was."""
        seen = 0
        while not self.failed and not is_over(until):
            version, ended = self._version, self._ended
            if version != seen:
                seen = version
                yield f"event: summary\ndata: {json.dumps({'html': self._summary})}\n\n"
            lines = await self._after(after)
            if lines:
                after = lines[-1].seq
                yield "".join(line.event for line in lines)
                continue
            if ended:
                yield end_event(self._run_id)
                return
            if not await self._wait(seen, after, until):
                yield ": still here\n\n"

    async def _after(self, after: int) -> "list[_Line]":
        if self._complete_after is None:
            return []  # the first look is under way
        if after < self._complete_after:
            return await run_in_threadpool(_read_lines, self._app, self._run_id, after)
        return [line for line in self._lines if line.seq > after]

    async def _wait(self, version: int, after: int, until: float | None) -> bool:
        """Until there is something new; False when nothing was for a while."""

        def is_new() -> bool:
            return self._version != version or self._newest > after or self._ended or self.failed

        left = PING_SECONDS if until is None else min(PING_SECONDS, until - time.time())
        try:
            # Not `asyncio.wait_for`: in Python 3.11 it can lose the cancellation of a viewer that
            # leaves in the moment of a change.
            async with self._changed, asyncio.timeout(max(0.0, left)):
                await self._changed.wait_for(is_new)
        except TimeoutError:
            return False
        return True

    async def _look(self) -> None:
        try:
            while not self._ended:
                await self._look_once()
                if not self._ended:
                    await asyncio.sleep(LOOK_SECONDS)
        except Exception as error:
            # Said once, and not by each of its viewers.
            log.warning("run %d cannot be looked at: %s", self._run_id, error)
            self.failed = True
            await self._notify()

    async def _look_once(self) -> None:
        found = await run_in_threadpool(
            _look_at, self._app, self._run_id, self._newest, first=self._complete_after is None
        )
        if self._complete_after is None:
            self._complete_after = self._newest = found.newest
        for line in found.lines:
            if len(self._lines) == KEPT:
                self._complete_after = self._lines[0].seq
            self._lines.append(line)
            self._newest = line.seq
        await self._renew_summary(ended=not found.active)
        # Only with nothing left to read: lines that were written last belong to the run, too.
        self._ended = not found.active and not found.lines
        await self._notify()

    async def _renew_summary(self, *, ended: bool) -> None:
        now = time.monotonic()
        if not ended and now < self._summary_due_at:
            return
        made = await run_in_threadpool(self._summarize, self._run_id)
        took = time.monotonic() - now
        self._summary_due_at = now + max(1.0, took / SUMMARY_SHARE)
        if made != self._summary:
            self._summary = made
            self._version += 1

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line as it is sent: written out once, however many look."""

    seq: int
    event: str


@dataclass(frozen=True, slots=True)
class _Look:
    active: bool
    newest: int
    lines: list[_Line]


def _look_at(app: App, run_id: int, after: int, *, first: bool) -> _Look:
    with app.database.read() as tx:
        # Asked first: what is written before the run's end is found by the read after it.
        active = read_run(tx, run_id).status.active
    if first:
        with app.database.read() as tx:
            return _Look(active, newest_seq(tx, run_id), [])
    lines = _read_lines(app, run_id, after)
    return _Look(active, lines[-1].seq if lines else after, lines)


def _read_lines(app: App, run_id: int, after: int) -> list[_Line]:
    with app.database.read() as tx:
        found = read_log(tx, run_id, after=after, limit=PAGE)
    return [_Line(line.seq, log_event(app, line)) for line in found]
