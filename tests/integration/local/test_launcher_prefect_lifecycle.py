"""One server for each home: shared, found, replaced when it is of no use, and ended."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ServiceError
from penstock.local import prefect_server
from penstock.local.prefect_server import PrefectServer, ServerAddress
from penstock.local.processes import ProcessIdentity, wait_until
from tests.together import quickest

MakeServer = Callable[..., PrefectServer]

DEADLINE_SECONDS = 60

ENSURE_IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from penstock.local.prefect_server import PrefectServer

class Fake(PrefectServer):
    def command(self, port):
        child = [sys.executable, "-m", "penstock.local.child"]
        return [*child, sys.argv[2], str(port), "well", sys.argv[1]]

    def version(self):
        return "1.0"

print(Fake(Path(sys.argv[1])).ensure().pid)
"""


def ensure_command(home: Path) -> list[str]:
    fake = Path(__file__).with_name("fake_prefect.py")
    return [sys.executable, "-c", ENSURE_IN_ANOTHER_PROCESS, str(home), str(fake)]


def state_of(home: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((home / "prefect/server.json").read_text())
    return state


def supervisor_of(home: Path) -> ProcessIdentity:
    return ProcessIdentity.of(int(state_of(home)["supervisor"]["pid"]))


def ends(process: ProcessIdentity, within_seconds: float = DEADLINE_SECONDS) -> bool:
    return wait_until(lambda: not process.is_alive(), within_seconds)


def server_process(address: ServerAddress) -> ProcessIdentity:
    return ProcessIdentity.of(address.pid)


def test_a_second_command_finds_the_server_of_the_first_one_quickly(
    make_server: MakeServer,
) -> None:
    address = make_server().ensure()
    assert quickest(lambda: make_server().find() == address) < 2
    assert make_server().ensure() == address


def test_nothing_is_found_where_nothing_was_started(make_server: MakeServer) -> None:
    assert make_server().find() is None
    assert make_server().stop() is False


def test_two_commands_at_once_share_one_server(home: Path, make_server: MakeServer) -> None:
    command = ensure_command(home)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other,
    ):
        pids = {one.communicate(timeout=60)[0], other.communicate(timeout=60)[0]}
    address = make_server().find()
    assert address is not None
    assert pids == {f"{address.pid}\n"}


def test_the_server_holds_none_of_the_pipes_of_the_command_that_started_it(
    home: Path, make_server: MakeServer
) -> None:
    pipeline = ["sh", "-c", '"$@" 2>&1 | cat', "sh", *ensure_command(home)]
    ended = subprocess.run(pipeline, capture_output=True, text=True, timeout=60, check=True)
    address = make_server().find()
    assert address is not None
    assert ended.stdout == f"{address.pid}\n"


def test_stopping_ends_both_processes_and_leaves_no_state(
    home: Path, make_server: MakeServer
) -> None:
    server = server_process(make_server().ensure())
    supervisor = supervisor_of(home)
    assert make_server().stop() is True
    assert not server.is_alive()
    assert not supervisor.is_alive()
    assert not (home / "prefect/server.json").exists()
    assert make_server().stop() is False


def test_a_server_that_died_is_noticed_and_replaced(make_server: MakeServer) -> None:
    dead = make_server().ensure()
    os.kill(dead.pid, signal.SIGKILL)
    assert wait_until(lambda: make_server().find() is None, DEADLINE_SECONDS)
    assert make_server().ensure().pid != dead.pid


def test_a_killed_supervisor_takes_its_server_along_and_is_replaced(
    home: Path, make_server: MakeServer
) -> None:
    address = make_server().ensure()
    server = server_process(address)
    os.kill(supervisor_of(home).pid, signal.SIGKILL)
    assert ends(server)
    assert make_server().find() is None
    assert make_server().ensure().pid != address.pid


def test_a_pid_that_belongs_to_somebody_else_now_is_neither_found_nor_ended(
    home: Path, make_server: MakeServer
) -> None:
    make_server().ensure()
    state = state_of(home)
    make_server().stop()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        other = {"pid": bystander.pid, "create_time": time.time() - 3600}
        state["supervisor"] = state["parts"][0]["process"] = other
        (home / "prefect/server.json").write_text(json.dumps(state))
        assert make_server().find() is None
        make_server().ensure()
        assert bystander.poll() is None
        bystander.communicate(b"\n")


def test_an_unreadable_state_file_is_as_good_as_none(home: Path, make_server: MakeServer) -> None:
    (home / "prefect").mkdir(parents=True)
    (home / "prefect/server.json").write_text("{half")
    assert make_server().find() is None
    assert make_server().ensure() == make_server().find()


def test_a_server_of_another_version_is_replaced(make_server: MakeServer) -> None:
    old = server_process(make_server(installed="1.0").ensure())
    assert make_server(installed="2.0").find() is None
    assert make_server(installed="2.0").ensure().pid != old.pid
    assert not old.is_alive()


def test_a_server_of_an_older_version_that_lets_everybody_in_is_replaced_at_once(
    home: Path, make_server: MakeServer
) -> None:
    old = server_process(make_server().ensure())
    state = state_of(home)
    del state["auth_digest"]
    (home / "prefect/server.json").write_text(json.dumps(state))
    assert make_server().find() is None
    began = time.monotonic()
    assert make_server().ensure().pid != old.pid
    assert time.monotonic() - began < prefect_server._STUCK_SECONDS
    assert not old.is_alive()


def test_a_server_whose_string_was_lost_is_replaced(home: Path, make_server: MakeServer) -> None:
    old = make_server().ensure()
    (home / "prefect.auth").unlink()
    assert make_server().find() is None
    new = make_server().ensure()
    assert new.pid != old.pid
    assert new.auth_string != old.auth_string


def test_the_string_outlives_its_server(make_server: MakeServer) -> None:
    first = make_server().ensure()
    assert "auth_string" not in repr(first)
    assert make_server().stop()
    assert make_server().ensure().auth_string == first.auth_string


def test_a_server_that_stays_unhealthy_is_replaced(
    home: Path, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefect_server, "_STUCK_SECONDS", 0.5)
    sick = server_process(make_server().ensure())
    (home / "sick").touch()
    with pytest.raises(ServiceError):
        make_server().ensure(timeout_seconds=3)
    assert not sick.is_alive()
    (home / "sick").unlink()
    assert make_server().ensure().pid != sick.pid


def test_an_unused_server_ends_by_itself(home: Path, make_server: MakeServer) -> None:
    # Long enough for us to read who it is before it ends.
    server = server_process(make_server(idle_seconds=3).ensure())
    supervisor = supervisor_of(home)
    assert ends(server)
    assert ends(supervisor)
    assert not (home / "prefect/server.json").exists()


def test_an_open_connection_keeps_an_otherwise_unused_server(make_server: MakeServer) -> None:
    address = make_server(idle_seconds=3).ensure()
    server = server_process(address)
    with socket.create_connection(("127.0.0.1", address.port)):
        assert not ends(server, within_seconds=6)
    assert ends(server)


def test_a_server_whose_home_was_removed_ends(home: Path, make_server: MakeServer) -> None:
    server = server_process(make_server().ensure())
    supervisor = supervisor_of(home)
    shutil.rmtree(home)
    assert ends(server)
    assert ends(supervisor)


def test_a_server_that_cannot_start_shows_the_end_of_its_log(make_server: MakeServer) -> None:
    server = make_server(mode="broken")
    with pytest.raises(ServiceError, match="the cellar is flooded") as failure:
        server.ensure()
    assert str(server.log_path) in str(failure.value)


def test_a_server_that_takes_too_long_is_ended(home: Path, make_server: MakeServer) -> None:
    with pytest.raises(ServiceError, match="not ready within 1 s"):
        make_server(mode="mute").ensure(timeout_seconds=1)
    assert not (home / "prefect/server.json").exists()


def test_another_port_is_tried_when_the_first_one_got_taken(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = iter([taken.getsockname()[1], free.getsockname()[1]])
        free.close()
        monkeypatch.setattr(prefect_server, "free_port", lambda: next(ports))
        assert make_server().ensure().port != taken.getsockname()[1]


def test_a_wanted_port_that_got_taken_is_given_up_at_the_first_start_alone(
    make_server: MakeServer,
) -> None:
    """Two installations that start at once both find it free."""
    server = make_server()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server._wanted_port = int(taken.getsockname()[1])
        first = server.ensure()
        assert first.port != server._wanted_port
    server.stop()
    assert server.ensure().port == first.port, "clients know it by now"


def test_the_wait_for_a_start_is_reported(make_server: MakeServer) -> None:
    heard: list[tuple[str, float]] = []
    make_server().ensure(lambda phrase, seconds: heard.append((phrase, seconds)))
    assert "starting the Prefect server" in heard[0][0]
    assert heard[-1][1] >= heard[0][1]


def test_a_start_that_another_command_abandoned_is_waited_for(
    home: Path, make_server: MakeServer
) -> None:
    address = make_server().ensure()
    state = {**state_of(home), "phase": "starting"}
    path = home / "prefect/server.json"
    path.write_text(json.dumps(state))

    def become_ready(phrase: str, _seconds: float) -> None:
        assert phrase == "waiting for the Prefect server to answer"
        path.write_text(json.dumps({**state, "phase": "ready"}))

    assert make_server().ensure(become_ready) == address
