"""Services with settings of their own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.store.database import Database
from tests.contract.api.service import MakeService, Service


@pytest.fixture
def make_service(database: Database, tmp_path: Path) -> Iterator[MakeService]:
    """Services with settings of their own, all on the database of this test."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Service:
            return stack.enter_context(Service(database, tmp_path / "home", **settings))

        yield make


@pytest.fixture
def service(make_service: MakeService) -> Service:
    """As it is when nobody has configured anything."""
    return make_service()
