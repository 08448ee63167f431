"""Everything can be done without a mouse."""

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.browser.house import House
from tests.dashboard.browser.log_page import LogPage

# What has the focus: its name for people, its place in the page, and whether one can see it.
FOCUS = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const box = one.getBoundingClientRect();
  const style = getComputedStyle(one);
  return {
    name: (one.id && '#' + one.id) || one.getAttribute('aria-label') || one.textContent.trim(),
    order: [...document.querySelectorAll('*')].indexOf(one),
    outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    visible: box.width > 0 && box.height > 0 && box.left >= 0,
  };
}"""
REACHABLE = """() => [...document.querySelectorAll(
  'a[href], button, input:not([type=hidden]):not([type=radio]), select, summary, [tabindex="0"]'
)].filter((one) => one.tabIndex >= 0 && one.checkVisibility()).length"""


def tab_through(page: Page) -> list[dict[str, object]]:
    """Every stop of the tab key, until it leaves the page."""
    page.focus(".skip")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    stops: list[dict[str, object]] = []
    for _ in range(300):
        stop = page.evaluate(FOCUS)
        if stop is None or (stops and stop["order"] == stops[0]["order"]):
            return stops
        stops.append(stop)
        page.keyboard.press("Tab")
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("name", ["runs", "run", "document", "search", "queues", "cost", "login"])
def test_the_tab_key_reaches_everything_in_the_order_of_the_page(
    page: Page, house: House, name: str
) -> None:
    paths = {
        "run": f"/ui/runs/{house.acme.run_id}",
        "document": f"/ui/documents/{house.acme.node_id}",
        "search": "/ui/search?q=turbines",
    }
    page.goto(paths.get(name, f"/ui/{name}"))
    page.wait_for_load_state("networkidle")

    stops = tab_through(page)

    orders = [int(str(stop["order"])) for stop in stops]
    assert orders == sorted(orders)
    assert stops[0]["name"] == "Skip to the content"
    assert [stop["name"] for stop in stops if not stop["outlined"]] == []
    assert [stop["name"] for stop in stops if not stop["visible"]] == []
    radios = 1 if name == "search" else 0
    assert len(stops) == page.evaluate(REACHABLE) + radios


def test_the_content_is_one_key_away(page: Page) -> None:
    page.goto("/ui/runs")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")

    inside = "() => document.querySelector('main').contains(document.activeElement)"
    assert page.evaluate(inside)


def test_tabs_are_changed_by_arrow_keys(page: Page, house: House) -> None:
    log = LogPage(page, house.acme.run_id).open()
    chosen = page.locator("[role=tab][aria-selected=true]")
    page.focus("#tab-ALL")
    for key, tab in (
        ("ArrowRight", "ING"),
        ("ArrowRight", "CRL"),
        ("ArrowLeft", "ING"),
        ("End", "EMB"),
        ("ArrowRight", "ALL"),
        ("ArrowLeft", "EMB"),
        ("Home", "ALL"),
    ):
        page.keyboard.press(key)
        assert chosen.all_inner_texts() == [tab]
        assert page.evaluate("() => document.activeElement.id") == f"tab-{tab}"
        assert page.get_attribute("#panel", "aria-labelledby") == f"tab-{tab}"
        assert page.locator("[role=tab][tabindex='0']").count() == 1
    log.wait(lambda: log.total > 5, "all lines are shown again")


def test_a_log_is_scrolled_and_followed_by_keys(page: Page, house: House) -> None:
    log = LogPage(page, house.long_run).open()
    log.wait(lambda: page.inner_text("#connection") == "Run ended.", "the end")
    log.wait(lambda: log.top > 0 and log.below <= 1, "the log goes to its end")
    log.settle()
    page.focus(".lines")
    page.keyboard.press("Home")
    log.wait(lambda: log.top == 0, "the beginning")
    # The button comes with the next frame.
    page.wait_for_selector("#latest", state="visible")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "latest"
    page.keyboard.press("Enter")
    log.wait(lambda: log.below <= 1, "the end")
    in_lines = "() => document.activeElement.classList.contains('lines')"
    assert page.evaluate(in_lines), "the focus goes along, since the button is gone"


def test_what_moves_does_not_move_under_the_keyboard(page: Page, house: House) -> None:
    page.goto(f"/ui/runs/{house.acme.active_run_id}")
    progress = page.get_by_role("region", name="Progress by stage")
    duration = page.locator("#summary .facts div", has_text="Duration")
    progress.focus()
    shown = duration.inner_text()

    # Three summaries have come meanwhile.
    page.wait_for_timeout(3500)

    assert progress.evaluate("one => one === document.activeElement")
    assert duration.inner_text() == shown
    page.keyboard.press("Tab")
    page.focus("#text")
    expect(duration).not_to_have_text(shown, timeout=60_000)
