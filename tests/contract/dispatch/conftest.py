"""A real Valkey, emptied before each test."""

from collections.abc import Iterator

import pytest
from redis import Redis

from penstock.launcher.valkey import ValkeyServer
from penstock.work.redis_client import build_redis_client


@pytest.fixture(scope="package")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server.start()


@pytest.fixture
def redis_client(valkey: str) -> Iterator[Redis]:
    with build_redis_client(valkey) as client:
        client.flushall()
        yield client
