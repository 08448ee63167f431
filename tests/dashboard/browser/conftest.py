"""One browser and one house for all tests here. Playwright keeps an event loop in this thread while
the browser is open: nothing here runs another one."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import open_browser, open_page
from tests.contract.api.tokens import SECRET
from tests.dashboard.browser.house import House, open_database, write_long_log
from tests.dashboard.browser.served import serving
from tests.dashboard.furnishing import furnish


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    home = tmp_path_factory.mktemp("house") / "home"
    home.mkdir()
    with ExitStack() as stack:
        database = stack.enter_context(closing(open_database(home)))
        free = stack.enter_context(serving(home))
        guarded = stack.enter_context(serving(home, PENSTOCK_API_JWT_SECRET=SECRET))
        house = House(
            home,
            database,
            free,
            guarded,
            stack.enter_context(closing(furnish(database, home, "default"))),
            stack.enter_context(closing(furnish(database, home, "globex"))),
            write_long_log(database, home),
        )
        free.await_answer()
        guarded.await_answer()
        yield house


@pytest.fixture
def page(browser: Browser, house: House) -> Iterator[Page]:
    """Of somebody at this machine."""
    with open_page(browser, house.free.address) as page:
        yield page
