"""What every test may use: both databases, migrated and empty, and a clean environment."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql

from penstock.crawl.s3_client import S3Access, build_s3_client
from penstock.launcher.postgres import PostgresServer
from penstock.launcher.prefect_server import PrefectServer, ServerAddress
from penstock.store.database import Database
from penstock.store.migration import migrate
from tests.s3 import running_s3, unscript
from tests.simulator import Site, running_site

_TEMPLATE = "penstock_template"
_FOREIGN_PREFIXES = ("PENSTOCK_", "EXTRACTION_", "EMBEDDING_", "PREFECT_", "AWS_")
_FOREIGN_NAMES = {"REDIS_URL", "GROQ_API_KEY", "NODE_BATCH_MAX", "ACTIVEKG_DSN"}

# Deadlines measure the machine, and remembered examples would lie in whatever folder we are in.
settings.register_profile("penstock", database=None, deadline=None)
settings.load_profile("penstock")


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No setting of the caller, from the environment or a `.env`, reaches a test."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN_PREFIXES) or name in _FOREIGN_NAMES:
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests. Pytest's own folders are closed to the account it runs as."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-tests-") as folder,
        PostgresServer(Path(folder), durable=False) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "penstock.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """A migrated, empty Postgres database to copy; its name."""
    _migrate(postgres.create_database(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database without any schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'penstock.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        yield from _postgres_database(server, "template1")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated, empty database of this test alone."""
    if request.param == "sqlite":
        path = tmp_path / "penstock.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield from _opened(f"sqlite:///{path}")
    else:
        template: str = request.getfixturevalue("postgres_template")
        for url in _postgres_database(request.getfixturevalue("postgres"), template):
            yield from _opened(url)


def _migrate(url: str) -> None:
    for database in _opened(url):
        migrate(database)


def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def _postgres_database(server: PostgresServer, template: str) -> Iterator[str]:
    name = "penstock_test"
    _run(server, "CREATE DATABASE {} TEMPLATE {}", name, template)
    try:
        yield server.dsn(name)
    finally:
        _run(server, "DROP DATABASE {} WITH (FORCE)", name)


def _run(server: PostgresServer, statement: str, *names: str) -> None:
    parts = [sql.Identifier(name) for name in names]
    address = server.dsn().replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*parts))


@pytest.fixture(scope="session")
def s3_access() -> Iterator[S3Access]:
    """An S3 server for all tests; stopped at the end, also when tests fail."""
    with running_s3() as access:
        yield access


@pytest.fixture(scope="session")
def s3_client(s3_access: S3Access) -> Iterator[Any]:
    """A client of that server; one for all tests, since making it takes 0.2 s."""
    with closing(build_s3_client(s3_access)) as client:
        yield client


@pytest.fixture
def s3(s3_client: Any) -> Iterator[Any]:
    """The same client, without the answers that other tests have scripted."""
    yield s3_client
    unscript(s3_client)


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket of this test alone."""
    name = f"penstock-{uuid.uuid4().hex}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect-home")


@pytest.fixture(scope="session")
def prefect_server(prefect_home: Path) -> Iterator[ServerAddress]:
    """Its address; stopped at the end, also when tests fail."""
    server = PrefectServer(prefect_home, idle_seconds=None)
    try:
        yield server.ensure()
    finally:
        server.stop()


@pytest.fixture
def site() -> Iterator[Site]:
    """A careers site on loopback, without any jobs yet."""
    with running_site() as site:
        yield site
