"""A browser whose server goes away and comes back: no line is missing, and none is shown twice."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser

from penstock.runs.lifecycle import abort_run
from tests.browser import open_page
from tests.dashboard.browser.house import House
from tests.dashboard.browser.log_page import LogPage
from tests.dashboard.browser.served import Served, serving
from tests.dashboard.furnishing import Workshop


@pytest.fixture
def served(house: House) -> Iterator[Served]:
    """A server of this test alone."""
    with serving(house.home) as served:
        served.await_answer()
        yield served


@pytest.fixture
def shop(house: House, request: pytest.FixtureRequest) -> Iterator[Workshop]:
    with closing(house.open_shop(request.node.name)) as shop:
        yield shop


def test_a_server_that_is_killed_twice_costs_no_line_and_repeats_none(
    browser: Browser, served: Served, shop: Workshop
) -> None:
    run_id = shop.open().run.id
    with open_page(browser, served.address) as page:
        log = LogPage(page, run_id).open()
        for turn in range(2):
            shop.say(run_id, *[f"turn {turn}, seen {number}" for number in range(20)])
            log.wait_for_line(f"turn {turn}, seen 19")
            served.kill()
            shop.say(run_id, *[f"turn {turn}, alone {number}" for number in range(20)])
            log.wait(
                lambda: "Connection lost" in page.inner_text("#connection"), "the loss is told"
            )
            served.start()
            log.wait_for_line(f"turn {turn}, alone 19")
            assert page.inner_text("#connection") == ""
            assert log.below <= 1, "still at the end"
        assert log.read_all() == shop.log_of(run_id)
        served.kill()
        shop.say(run_id, "while nobody served")
        abort_run(shop.database, shop.app.queue, run_id, reason="enough")
        served.start()
        log.wait(lambda: page.inner_text("#connection") == "Run ended.", "the end")
        assert log.read_all() == shop.log_of(run_id)


def test_a_tab_that_was_chosen_while_the_server_was_away_is_shown_when_it_is_back(
    browser: Browser, served: Served, shop: Workshop
) -> None:
    run_id = shop.open().run.id
    shop.say(run_id, *[f"text {number}" for number in range(30)], stage="TXT")
    with open_page(browser, served.address) as page:
        log = LogPage(page, run_id).open()
        served.kill()
        page.click("#tab-TXT")
        log.wait(lambda: "fetch" in log.line_count.lower(), "it says that it cannot be read")
        served.start()
        log.wait(lambda: log.total == 30, "the lines of the tab")
        shop.say(run_id, "one more", stage="TXT")
        log.wait_for_line("one more")
        assert [message for _, message in log.read_all()] == [
            *[f"text {number}" for number in range(30)],
            "one more",
        ]
