"""Search in a browser: from a few words to a document, and why it was found."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page

from tests.dashboard.browser.house import House


def ask(page: Page, words: str) -> None:
    page.goto("/ui/search")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=**")


def titles(page: Page) -> list[str]:
    return page.locator(".hits h2").all_inner_texts()


def test_words_lead_to_a_document(page: Page, house: House) -> None:
    ask(page, "sluice gates")

    assert titles(page)[0] == "Ada Park"
    best = page.locator(".hits li").first
    assert set(best.locator("mark").all_inner_texts()) == {"sluice", "gates"}
    assert "Keyword #1" in best.inner_text()
    assert "Semantic #" in best.inner_text()
    page.click("text=Ada Park")
    page.wait_for_url(f"**/documents/{house.acme.node_id}")
    assert page.inner_text("h1") == "Ada Park"
    assert "hydropower" in page.inner_text("section[aria-label=Text]")
    assert "Python" in page.inner_text("section[aria-label='Extracted fields']")
    assert page.locator("section[aria-label=Vector] ol li").count() >= 1


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("skill", "python", True),
        ("skill", "cobol", False),
        ("title", "data engineer", True),
        ("title", "pilot", False),
        ("years", "5", True),
        ("years", "30", False),
        ("source", "papers", True),
        ("source", "elsewhere", False),
    ],
)
def test_filters_narrow_what_is_found(page: Page, name: str, value: str, found: bool) -> None:
    page.goto("/ui/search")
    page.fill("#q", "sluice gates")
    page.click("summary")
    page.fill(f"input[name={name}]", value)
    page.click("form[role=search] button")
    page.wait_for_url("**/search?q=**")

    assert ("Ada Park" in titles(page)) is found
    assert page.input_value(f"input[name={name}]") == value
    assert page.is_visible(f"input[name={name}]"), "filters in use are open"
    if not found:
        assert "Nothing found" in page.inner_text("main")


def test_each_way_of_searching_says_that_it_was_the_one(page: Page) -> None:
    for mode, why in {"text": "Keyword #", "vector": "Semantic #"}.items():
        page.goto("/ui/search")
        page.fill("#q", "turbines")
        page.check(f"input[value={mode}]")
        page.click("form[role=search] button")
        page.wait_for_url(f"**mode={mode}**")
        told = page.locator(".hits .why").all_inner_texts()
        assert told
        assert all(one.startswith(why) for one in told)
        assert parse_qs(urlsplit(page.url).query)["q"] == ["turbines"]


def test_nothing_found_says_what_to_try(page: Page) -> None:
    page.goto("/ui/search?q=zzzz+qqqq&mode=text")

    assert "Try fewer words" in page.inner_text("main")
