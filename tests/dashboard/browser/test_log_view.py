"""The log of a run as it is written: followed, scrolled, filtered, paused, downloaded."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page

from penstock.runs.lifecycle import abort_run
from tests.dashboard.browser.house import House
from tests.dashboard.browser.log_page import LogPage
from tests.dashboard.furnishing import Workshop


@pytest.fixture
def shop(house: House, request: pytest.FixtureRequest) -> Iterator[Workshop]:
    with closing(house.open_shop(request.node.name)) as shop:
        yield shop


@pytest.fixture
def log(page: Page, shop: Workshop) -> LogPage:
    """Of a run under way that has a hundred lines."""
    run_id = shop.open().run.id
    shop.say(run_id, *[f"old {number}" for number in range(99)])
    return LogPage(page, run_id).open()


def test_the_end_is_followed_only_while_it_is_near(log: LogPage, shop: Workshop) -> None:
    assert log.below <= 1
    log.scroll_from_end(15)
    shop.say(log.run_id, *[f"near {number}" for number in range(10)])
    log.wait_for_line("near 9")
    assert log.below <= 1, "within 20 pixels one is at the end"

    log.scroll_from_end(60)
    here, shown = log.top, log.on_screen
    shop.say(log.run_id, *[f"far {number}" for number in range(30)])
    log.wait(lambda: log.total == 140, "lines are counted")
    assert log.top == here, "whoever reads is not disturbed"
    assert log.on_screen == shown
    assert log.page.inner_text("#latest") == "Jump to latest (30 new)"

    log.page.click("#latest")
    log.wait(lambda: log.below <= 1, "the jump")
    assert "far 29" in log.messages
    assert log.page.is_hidden("#latest")
    shop.say(log.run_id, "and on it goes")
    log.wait_for_line("and on it goes")
    assert log.below <= 1


def test_each_tab_remembers_where_it_was_left(log: LogPage, shop: Workshop) -> None:
    shop.say(log.run_id, *[f"text {number}" for number in range(90)], stage="TXT")
    log.wait(lambda: log.total == 190, "all lines")
    log.scroll_to(420)
    shown = log.on_screen

    log.choose("TXT")
    log.wait_for_line("text 89")
    assert log.below <= 1, "a tab that was never opened shows its end"
    log.scroll_to(300)
    there = log.on_screen
    log.choose("ING")
    assert log.below <= 1
    shop.say(log.run_id, "late text", stage="TXT")
    shop.say(log.run_id, "late ING")
    log.wait_for_line("late ING")

    log.choose("TXT")
    log.wait(lambda: log.top == 300, "the place it was left at")
    assert log.on_screen == there
    log.choose("ALL")
    log.wait(lambda: log.top == 420, "the place it was left at")
    assert log.on_screen == shown
    log.choose("ING")
    assert log.below <= 1, "this one was left at its end"


def test_tabs_levels_and_words_choose_lines_also_of_those_to_come(
    log: LogPage, shop: Workshop
) -> None:
    for stage in ("CRL", "TXT", "LLM", "EMB"):
        shop.say(log.run_id, f"about {stage} Über", stage=stage)
    log.wait(lambda: log.total == 104, "all lines")
    for tab, stages in {"EXT": ("TXT", "LLM"), "CRL": ("CRL",), "EMB": ("EMB",)}.items():
        log.choose(tab)
        assert log.messages == [f"about {stage} Über" for stage in stages]
    log.choose("EXT")
    shop.say(log.run_id, "more text", stage="TXT")
    shop.say(log.run_id, "more ING")
    shop.say(log.run_id, "more of models", stage="LLM")
    log.wait_for_line("more of models")
    assert log.messages[2:] == ["more text", "more of models"]

    log.page.fill("#text", "MORE OF")
    log.wait(lambda: log.messages == ["more of models"], "the filter")
    log.choose("ALL")
    assert log.messages == ["more of models"]
    shop.say(log.run_id, "no", "some more of it")
    log.wait_for_line("some more of it")
    assert log.messages == ["more of models", "some more of it"]
    log.page.fill("#text", "Über")
    log.wait(lambda: log.total == 4, "letters that not every database knows")
    log.page.fill("#text", "nothing like it")
    log.wait(lambda: "No log lines" in log.line_count, "nothing to show")
    log.page.fill("#text", "")
    log.page.select_option("#level", "ERROR")
    log.wait(lambda: log.elements == 0, "no errors")
    shop.say_error(log.run_id, "it broke")
    log.wait_for_line("it broke")
    assert log.messages == ["it broke"]


def test_a_paused_view_stands_still_and_goes_on_with_all_lines(
    log: LogPage, shop: Workshop
) -> None:
    log.page.click("#pause")
    shown = log.on_screen
    shop.say(log.run_id, *[f"new {number}" for number in range(30)], stage="TXT")
    log.wait(lambda: "30 new" in log.page.inner_text("#latest"), "lines are counted")
    assert log.on_screen == shown
    assert log.total == 100

    log.choose("EXT")
    assert log.messages[-1] == "new 29", "another tab shows what is there"
    asked: list[str] = []
    log.page.on("request", lambda request: asked.append(request.url))
    shop.say(log.run_id, "unseen")
    log.page.wait_for_timeout(300)
    assert len(asked) <= 1, "nothing is asked for again and again"
    log.choose("ALL")

    log.page.click("#pause")
    log.wait_for_line("unseen")
    assert log.below <= 1
    assert [seq for seq, _ in log.read_all()] == [seq for seq, _ in shop.log_of(log.run_id)]


def test_what_is_shown_can_be_downloaded(log: LogPage, shop: Workshop, tmp_path: Path) -> None:
    shop.say(log.run_id, "about text", stage="TXT")

    def download() -> list[str]:
        with log.page.expect_download() as started:
            log.page.click("#download")
        path = tmp_path / "log.txt"
        started.value.save_as(path)
        assert started.value.suggested_filename == f"penstock-run-{log.run_id}.log"
        return path.read_text().splitlines()

    assert len(download()) == 101
    log.choose("TXT")
    (line,) = download()
    assert line.endswith("about text")


def test_the_log_is_fetched_once_more_when_the_run_ends(log: LogPage, shop: Workshop) -> None:
    asked: list[str] = []
    log.page.on("request", lambda request: asked.append(request.url))
    shop.say(log.run_id, "the last but one")
    abort_run(shop.database, shop.app.queue, log.run_id, reason="enough")

    log.wait(lambda: log.page.inner_text("#connection") == "Run ended.", "the end")
    assert len([url for url in asked if "/lines" in url]) == 1
    asked.clear()
    assert log.read_all() == shop.log_of(log.run_id)
    log.page.wait_for_timeout(1200)
    assert not [url for url in asked if "/events" in url], "nobody connects again"
    assert "aborted" in log.page.inner_text("#summary .status")
    assert log.page.is_hidden("text=Abort")
    assert log.page.is_visible("text=Run again")


def test_two_viewers_of_one_run_see_the_same(log: LogPage, shop: Workshop) -> None:
    other = LogPage(log.page.context.new_page(), log.run_id).open()
    shop.say(log.run_id, *[f"both {number}" for number in range(20)])

    for one in (log, other):
        one.wait_for_line("both 19")
    assert log.read_all() == other.read_all() == shop.log_of(log.run_id)
