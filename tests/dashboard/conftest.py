"""Pages: empty ones for a test alone, and furnished ones to look at."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from penstock.store.database import Database
from tests.dashboard.furnishing import Furnished, furnish
from tests.dashboard.pages import GUARDED, HOST, Exhibit, MakePages, Pages


@pytest.fixture
def make_pages(database: Database, tmp_path: Path) -> Iterator[MakePages]:
    """Pages with settings of their own, all on the database of this test."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Pages:
            return stack.enter_context(Pages(database, tmp_path / "home", **settings))

        yield make


@pytest.fixture
def pages(make_pages: MakePages) -> Pages:
    """As somebody at this machine sees them: without tokens, of tenant acme."""
    return make_pages(tenant="acme")


@pytest.fixture
def acme(database: Database, tmp_path: Path) -> Iterator[Furnished]:
    """A tenant with all that pages can show."""
    with closing(furnish(database, tmp_path / "home", "acme")) as room:
        yield room


@pytest.fixture(scope="session")
def exhibition(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exhibit]:
    """Two tenants and their pages, with and without tokens; furnished once, for tests that change
    nothing."""
    home = tmp_path_factory.mktemp("exhibition")
    shutil.copy(sqlite_template, home / "penstock.db")
    with ExitStack() as stack:
        database = stack.enter_context(closing(Database(f"sqlite:///{home / 'penstock.db'}")))
        yield Exhibit(
            stack.enter_context(Pages(database, home, tenant="acme")),
            stack.enter_context(Pages(database, home, **GUARDED)),
            stack.enter_context(closing(furnish(database, home, "acme"))),
            stack.enter_context(closing(furnish(database, home, "globex"))),
        )


@pytest.fixture
def exhibit(exhibition: Exhibit) -> Exhibit:
    """The same, as a browser sees it that was never there."""
    for pages in (exhibition.pages, exhibition.guarded):
        pages.http.cookies.clear()
        pages.http.base_url = HOST
    return exhibition


@pytest.fixture
def guarded(exhibit: Exhibit) -> Pages:
    """With tokens; nobody has signed in yet."""
    return exhibit.guarded
