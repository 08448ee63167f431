"""Services on both databases, and a real Valkey."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from penstock.launcher.valkey import ValkeyServer
from penstock.store.database import Database
from penstock.work.redis_client import build_redis_client
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


@pytest.fixture(scope="package")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server.start()


@pytest.fixture
def redis_client(valkey: str) -> Iterator[Redis]:
    """Emptied before each test."""
    with build_redis_client(valkey) as client:
        client.flushall()
        yield client
