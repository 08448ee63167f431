"""A real browser: Chromium from the system, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).parent.parent
SCREENSHOTS = ROOT / "screenshots"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing but what a test asks for goes over the network.
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_chromium() -> str:
    """Its program; the test is skipped, and says so, on a machine that has none."""
    named = os.environ.get("TEST_BROWSER")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(
            "NO BROWSER: pages are not tested on this machine. `make browser` installs Chromium "
            "where it can; or name one in TEST_BROWSER"
        )
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Playwright has an event loop in this thread while it is open: keep it open briefly."""
    program = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Browser, base_url: str, **options: object) -> Iterator[Page]:
    """A page of its own session. An error in a script, or a breach of the page's security policy,
    fails the test."""
    context: BrowserContext = browser.new_context(
        base_url=base_url,
        viewport={"width": 1280, "height": 900},
        **options,  # type: ignore[arg-type]
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    faults: list[str] = []

    def note(fault: str) -> None:
        # A test may go on to a page of Prefect's, whose scripts are not ours.
        if page.url.startswith(base_url):
            faults.append(fault)

    page.on("pageerror", lambda error: note(str(error)))
    page.on(
        "console",
        lambda said: note(said.text) if "Content Security Policy" in said.text else None,
    )
    try:
        yield page
        assert not faults, "\n".join(faults)
    finally:
        context.close()


def keep_screenshot(page: Page, name: str) -> Path:
    """For a person to look at."""
    SCREENSHOTS.mkdir(exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path
