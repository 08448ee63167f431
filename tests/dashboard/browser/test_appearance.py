"""How pages look: readable for everybody, light and dark, on a desk and on a phone."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, ViewportSize

from tests.browser import keep_screenshot, open_page
from tests.dashboard.browser.house import House

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "is_mobile": True, "has_touch": True},
}
PHONE: ViewportSize = {"width": 390, "height": 844}


def paths_of(house: House) -> dict[str, str]:
    return {
        "runs": "/ui/runs",
        "run": f"/ui/runs/{house.acme.run_id}",
        "run-active": f"/ui/runs/{house.acme.active_run_id}",
        "document": f"/ui/documents/{house.acme.node_id}",
        "search": "/ui/search?q=turbines",
        "search-empty": "/ui/search?q=zzzz&mode=text",
        "queues": "/ui/queues",
        "cost": "/ui/cost?days=30",
        "login": "/ui/login",
        "problem": "/ui/runs/999999",
    }


def check(page: Page, name: str, width: int = 1280) -> None:
    """No finding that keeps anybody from reading or using it, and nothing cut off."""
    found = Axe().run(page).response["violations"]
    serious = [
        (one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == [], name
    # Not what the page says of the screen: a phone makes it as wide as what it has to show.
    needed = page.evaluate("() => document.documentElement.scrollWidth")
    assert needed <= width, f"{name} is wider than the screen"


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_accessible_and_fits(browser: Browser, house: House, look: str) -> None:
    with open_page(browser, house.free.address, **LOOKS[look]) as page:
        width = PHONE["width"] if look == "phone" else 1280
        if look == "phone":
            page.set_viewport_size(PHONE)
        for name, path in paths_of(house).items():
            page.goto(path)
            if name.startswith("run-") or name == "run":
                page.wait_for_selector(".line[data-seq]")
            keep_screenshot(page, f"dashboard-{name}-{look}")
            check(page, f"{name} {look}", width)


def test_a_page_with_hardly_any_room_is_not_cut_off(browser: Browser, house: House) -> None:
    with open_page(browser, house.free.address) as page:
        page.set_viewport_size({"width": 320, "height": 640})
        for name, path in paths_of(house).items():
            page.goto(path)
            width = page.evaluate("() => document.documentElement.scrollWidth")
            assert width <= 320, name


def test_pages_of_a_tenant_with_nothing_are_accessible(browser: Browser, house: House) -> None:
    with open_page(browser, house.free.address) as page:
        page.goto("/ui/runs")
        page.fill("#tenant", "nobody")
        page.press("#tenant", "Enter")
        page.wait_for_selector("text=Switched to tenant nobody.")
        for name in ("runs", "search", "queues", "cost"):
            page.goto(f"/ui/{name}")
            keep_screenshot(page, f"dashboard-{name}-nothing")
            check(page, name)
