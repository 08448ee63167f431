"""A log of a hundred thousand lines is as quick to look at as one of a hundred."""

import time

import pytest
from playwright.sync_api import Page

from tests.dashboard.browser.house import LINES, House
from tests.dashboard.browser.log_page import LogPage

FEW = 200
LINE_PIXELS = 20


@pytest.fixture
def log(page: Page, house: House) -> LogPage:
    log = LogPage(page, house.long_run).open()
    log.wait(lambda: page.inner_text("#connection") == "Run ended.", "the end")
    return log


def numbers(log: LogPage) -> list[int]:
    """Of the lines on the screen, once all of them are there."""
    log.wait(lambda: all(seq > 0 for seq, _ in log.on_screen), "lines are fetched")
    return [int(message.removeprefix("line ")) for _, message in log.on_screen if "line" in message]


def test_a_long_log_opens_quickly_with_few_elements(page: Page, house: House) -> None:
    before = time.monotonic()
    log = LogPage(page, house.long_run).open()
    log.wait(lambda: log.total >= LINES, "all lines are counted")

    assert time.monotonic() - before < 60, "about one second on a machine with nothing else to do"
    assert numbers(log)[-1] == LINES - 1
    assert log.below <= 1
    assert 0 < log.elements < FEW


def test_every_place_of_a_long_log_shows_its_own_lines(log: LogPage) -> None:
    before = log.total - LINES
    for place in (0, 1234, LINES // 2, LINES - 300, LINES - 1):
        log.scroll_to((place + before) * LINE_PIXELS)
        shown = numbers(log)
        assert shown == list(range(shown[0], shown[0] + len(shown))), "no gap and no repeat"
        assert shown[0] <= place <= shown[-1]
        assert 0 < log.elements < FEW
    assert log.below <= 1


def test_scrolling_through_a_long_log_keeps_few_lines_in_memory(log: LogPage) -> None:
    for place in range(0, LINES, 2500):
        log.scroll_to(place * LINE_PIXELS)
        assert log.elements < FEW
    log.scroll_to(0)
    assert numbers(log)[0] == 0


def test_filters_are_quick_on_a_long_log(log: LogPage) -> None:
    log.choose("EXT")
    assert log.total == LINES * 2 // 5
    assert numbers(log)[-2:] == [LINES - 3, LINES - 2]
    log.page.select_option("#level", "ERROR")
    log.wait(lambda: "No log lines" in log.line_count, "no line of these stages is an error")
    log.choose("ALL")
    assert log.total == LINES // 10
    assert numbers(log)[-1] == LINES - 1
    log.page.fill("#text", "line 77")
    log.wait(lambda: 0 < log.total < 1000, "the words")
    assert all(str(number).startswith("77") for number in numbers(log))
