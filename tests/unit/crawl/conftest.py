from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.crawl.fetch import Fetcher

from .scripted import ScriptedServer, running_server

MakeFetcher = Callable[..., Fetcher]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def naps() -> list[float]:
    """How long the fetchers would have slept."""
    return []


@pytest.fixture
def make_fetcher(naps: list[float]) -> Iterator[MakeFetcher]:
    made: list[Fetcher] = []

    def make(**options: Any) -> Fetcher:
        made.append(Fetcher(**{"allow_private": True, "sleep": naps.append, **options}))
        return made[-1]

    yield make
    for fetcher in made:
        fetcher.close()


@pytest.fixture
def fetcher(make_fetcher: MakeFetcher) -> Fetcher:
    return make_fetcher()
