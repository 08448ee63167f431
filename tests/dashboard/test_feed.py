"""What viewers of a run share: every line once for each of them, read once for all of them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from entrypoints.dashboard import feed as feed_module
from entrypoints.dashboard.feed import Feeds
from penstock.app import App
from penstock.errors import StoreUnavailable
from penstock.runs.lifecycle import abort_run
from penstock.store.database import Database
from tests.contract.api.streams import Reader
from tests.dashboard.furnishing import Workshop
from tests.dashboard.pages import Pages
from tests.together import wait_until

LIMIT_SECONDS = 60


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "LOOK_SECONDS", 0.02)


@dataclass
class Studio:
    """A run under way and whoever looks at it."""

    shop: Workshop
    run_id: int
    summaries: int = 0
    feeds: Feeds = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = Feeds(self.app, self._summarize)

    @property
    def app(self) -> App:
        return self.shop.app

    def say(self, *messages: str) -> None:
        self.shop.say(self.run_id, *messages)

    def end(self) -> None:
        abort_run(self.app.database, self.app.queue, self.run_id, reason="enough")

    def log(self) -> list[int]:
        return [seq for seq, _ in self.shop.log_of(self.run_id)]

    def _summarize(self, run_id: int) -> str:
        self.summaries += 1
        return f"run {run_id}"


@pytest.fixture
def studio(database: Database, tmp_path: Path) -> Iterator[Studio]:
    with closing(Workshop(database, tmp_path / "home")) as shop:
        yield Studio(shop, shop.open().run.id)
        pool: Any = shop.app.database.engine.pool
        # A look that nobody waits for any more goes on in its thread.
        wait_until(lambda: pool.checkedout() == 0)


@dataclass
class Watcher:
    """One viewer: what it was sent."""

    studio: Studio
    after: int = 0
    numbers: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    async def watch(self) -> None:
        with self.studio.feeds.joined(self.studio.run_id) as feed:
            await self.take(feed.follow(self.after))

    async def take(self, stream: AsyncIterator[str], until: int | None = None) -> None:
        """Everything, or until so many lines have come."""
        async for piece in stream:
            for block in filter(None, piece.split("\n\n")):
                self._read(block)
            if until is not None and len(self.numbers) >= until:
                return

    def _read(self, block: str) -> None:
        if block.startswith(":"):
            return
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        self.events.append(fields["event"])
        data = json.loads(fields["data"])
        if fields["event"] == "log":
            assert data["seq"] == int(fields["id"])
            self.numbers.append(data["seq"])
            self.after = data["seq"]


def play(scene: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(scene(), LIMIT_SECONDS))


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not happened():
            await asyncio.sleep(0.005)


@contextmanager
def counted_reads(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often the store was asked."""
    reads: list[int] = []
    ask = app.database.read

    def counting() -> Any:
        reads.append(1)
        return ask()

    with monkeypatch.context() as patch:
        patch.setattr(app.database, "read", counting)
        yield reads


def test_viewers_of_a_run_share_one_look_at_the_store(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look_at = feed_module._look_at

    def counting(*arguments: Any, **options: Any) -> Any:
        looks.append(1)
        return look_at(*arguments, **options)

    monkeypatch.setattr(feed_module, "_look_at", counting)

    async def scene() -> None:
        newest = studio.log()[-1]
        watchers = [Watcher(studio, newest) for _ in range(8)]
        watching = [asyncio.create_task(one.watch()) for one in watchers]
        await until(lambda: all(one.events for one in watchers))
        with counted_reads(studio.app, monkeypatch) as reads:
            before = len(looks)
            await until(lambda: len(looks) >= before + 20)
            told = len(looks) - before
            # A look that was under way at either end is counted with a part of its reads.
            assert abs(len(reads) - 2 * told) <= 2, "as many as for one viewer"
        await asyncio.to_thread(studio.say, "one", "two")
        await until(lambda: all(len(one.numbers) == 2 for one in watchers))
        await asyncio.to_thread(studio.end)
        await asyncio.gather(*watching)
        assert {tuple(one.numbers) for one in watchers} == {tuple(studio.log()[1:])}
        assert all(one.events.count("end") == 1 and one.events[-1] == "end" for one in watchers)

    play(scene)


def test_a_late_viewer_gets_what_was_before_and_what_comes(studio: Studio) -> None:
    async def scene() -> None:
        first = Watcher(studio)
        watching = [asyncio.create_task(first.watch())]
        await asyncio.to_thread(studio.say, *[f"line {number}" for number in range(700)])
        await until(lambda: len(first.numbers) == 701)
        late, later = Watcher(studio), Watcher(studio, first.numbers[300])
        watching += [asyncio.create_task(one.watch()) for one in (late, later)]
        await asyncio.to_thread(studio.say, "the last one")
        await asyncio.to_thread(studio.end)
        await asyncio.gather(*watching)
        assert first.numbers == late.numbers == studio.log()
        assert later.numbers == studio.log()[301:]

    play(scene)


def test_a_viewer_that_is_behind_what_is_kept_misses_nothing(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KEPT", 10)
    monkeypatch.setattr(feed_module, "PAGE", 7)

    async def scene() -> None:
        quick, slow = Watcher(studio), Watcher(studio)
        watching = asyncio.create_task(quick.watch())
        with studio.feeds.joined(studio.run_id) as feed:
            stream = feed.follow(0)
            await slow.take(stream, until=1)
            for start in range(0, 100, 5):
                lines = [f"line {number}" for number in range(start, start + 5)]
                await asyncio.to_thread(studio.say, *lines)
            await until(lambda: len(quick.numbers) == 101)
            await slow.take(stream, until=50)
            await asyncio.to_thread(studio.say, "while it is behind")
            await asyncio.to_thread(studio.end)
            await slow.take(stream)
        await watching
        assert quick.numbers == slow.numbers == studio.log()
        assert slow.events[-1] == "end"

    play(scene)


def test_connections_that_break_anywhere_leave_no_gap_and_no_repeat(studio: Studio) -> None:
    async def scene() -> None:
        patient, restless = Watcher(studio), Watcher(studio)
        watching = asyncio.create_task(patient.watch())
        writing = asyncio.create_task(asyncio.to_thread(write_and_end, studio))
        while "end" not in restless.events:
            with studio.feeds.joined(studio.run_id) as feed:
                await restless.take(feed.follow(restless.after), until=len(restless.numbers) + 3)
        await asyncio.gather(watching, writing)
        assert patient.numbers == restless.numbers == studio.log()

    play(scene)


def write_and_end(studio: Studio) -> None:
    for number in range(60):
        studio.say(f"line {number}")
    studio.end()


def test_the_end_comes_after_the_last_line_and_the_last_summary(studio: Studio) -> None:
    async def scene() -> None:
        watcher = Watcher(studio)
        watching = asyncio.create_task(watcher.watch())
        await until(lambda: bool(watcher.numbers))
        await asyncio.to_thread(write_and_end, studio)
        await watching
        assert watcher.numbers == studio.log()
        assert watcher.events[-1] == "end"
        assert watcher.events.count("end") == 1

    play(scene)


def test_a_run_that_has_ended_is_told_to_its_end_at_once(studio: Studio) -> None:
    write_and_end(studio)

    async def scene() -> None:
        watcher = Watcher(studio)
        await watcher.watch()
        assert watcher.numbers == studio.log()
        assert watcher.events[-1] == "end"
        assert "summary" in watcher.events

    play(scene)


def test_the_last_viewer_takes_the_feed_along(studio: Studio) -> None:
    async def scene() -> None:
        tasks = [asyncio.create_task(Watcher(studio).watch()) for _ in range(2)]
        await until(lambda: bool(studio.feeds._feeds))
        feed = studio.feeds._feeds[studio.run_id]
        await until(lambda: feed.viewers == 2)
        tasks.pop().cancel()
        await until(lambda: feed.viewers == 1)
        assert studio.feeds._feeds == {studio.run_id: feed}
        assert not feed._looking.done()
        tasks.pop().cancel()
        await until(lambda: studio.feeds._feeds == {})
        await until(feed._looking.done)

    play(scene)


@pytest.mark.parametrize("steps", range(8))
def test_a_viewer_that_leaves_in_the_moment_of_a_change_is_gone(studio: Studio, steps: int) -> None:
    async def scene() -> None:
        viewer = asyncio.create_task(Watcher(studio).watch())
        await until(lambda: bool(studio.feeds._feeds))
        feed = studio.feeds._feeds[studio.run_id]
        await until(lambda: bool(feed._changed._waiters))
        feed._version += 1
        await feed._notify()
        for _ in range(steps):
            await asyncio.sleep(0)
        viewer.cancel()
        await until(lambda: studio.feeds._feeds == {})

    play(scene)


def test_a_database_that_fails_breaks_the_stream_and_the_next_viewer_goes_on(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise StoreUnavailable(f"not now: {arguments} {options}")

    async def scene() -> None:
        watcher, idler = Watcher(studio), Watcher(studio)
        with studio.feeds.joined(studio.run_id) as left_alone:
            await idler.take(left_alone.follow(0), until=1)
            watching = asyncio.create_task(watcher.watch())
            await until(lambda: bool(watcher.numbers))
            with monkeypatch.context() as patch:
                patch.setattr(feed_module, "_look_at", fail)
                await watching
            assert "end" not in watcher.events
            studio.say("while nobody looked")
            # Somebody is still there who has not noticed, and a new one comes nevertheless.
            again = asyncio.create_task(watcher.watch())
            await until(lambda: len(watcher.numbers) == 2)
        studio.end()
        await again
        assert watcher.numbers == studio.log()
        assert studio.feeds._feeds == {}

    play(scene)


def test_a_stream_ends_with_the_token_it_was_asked_for_with(studio: Studio) -> None:
    async def scene() -> None:
        watcher = Watcher(studio)
        with studio.feeds.joined(studio.run_id) as feed:
            await watcher.take(feed.follow(0, until=time.time() + 3))
        assert watcher.numbers == studio.log()
        assert "end" not in watcher.events

    play(scene)


def test_a_quiet_stream_says_that_it_is_still_there(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "PING_SECONDS", 0.05)

    async def scene() -> None:
        with studio.feeds.joined(studio.run_id) as feed:
            async for piece in feed.follow(studio.log()[-1]):
                if piece.startswith(":"):
                    return

    play(scene)


def test_a_summary_that_takes_long_is_made_less_often(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "SUMMARY_SHARE", 1e-9)

    async def scene() -> None:
        watcher = Watcher(studio)
        watching = asyncio.create_task(watcher.watch())
        for number in range(10):
            await asyncio.to_thread(studio.say, f"line {number}")
            await until(lambda: len(watcher.numbers) == number + 2)  # noqa: B023 - awaited here
        assert studio.summaries == 1
        await asyncio.to_thread(studio.end)
        await watching
        assert studio.summaries > 1, "the last one is made in any case"

    play(scene)


def test_the_stream_goes_on_after_the_number_that_a_browser_sends_back(
    pages: Pages, database: Database, tmp_path: Path
) -> None:
    with closing(Workshop(database, tmp_path / "home")) as shop:
        studio = Studio(shop, shop.open().run.id)
        write_and_end(studio)
        path = f"/ui/runs/{studio.run_id}/events"
        whole = studio.log()

        reader = Reader(pages, path, headers={"host": "127.0.0.1"}).read()
        assert reader.numbers == whole
        assert reader.has_ended
        headers = dict(reader.answer["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert headers[b"cache-control"] == b"no-store"
        assert headers[b"x-accel-buffering"] == b"no"
        late = Reader(pages, path, f"after={whole[3]}", headers={"host": "127.0.0.1"})
        late.headers["last-event-id"] = str(whole[9])
        assert late.read().numbers == whole[10:], "what was received last counts more"
