"""The servers of the queue bench, and an empty store on them for each measurement."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from bench.queue_contenders import Contender, Kind, Store
from penstock.local.postgres import PostgresServer
from penstock.local.valkey import ValkeyServer
from penstock.redis.client import build_redis_client
from penstock.store.database import Database
from penstock.store.migration import migrate

_NAME = "bench"
_TEMPLATE = "bench_template"
_EMPTY = "template1"


@dataclass(frozen=True, slots=True)
class Servers:
    """One Postgres, one Valkey and a folder for files."""

    postgres: PostgresServer
    redis_url: str
    folder: Path

    @contextmanager
    def open_store(self, contender: Contender) -> Iterator[str]:
        """The address of a store that holds nothing but our tables, where they are needed."""
        with build_redis_client(self.redis_url) as client:
            client.flushall()
        if contender.store is Store.REDIS:
            yield self.redis_url
        elif contender.store is Store.POSTGRES:
            yield from self._open_postgres(contender)
        else:
            yield from self._open_sqlite(contender)

    def prepare(self) -> None:
        """Make the databases that are copied for each measurement of ours."""
        for url in (self.postgres.create_database(_TEMPLATE), _sqlite_url(self._template)):
            database = Database(url)
            migrate(database)
            database.close()

    @property
    def _template(self) -> Path:
        return self.folder / "template.db"

    def _open_postgres(self, contender: Contender) -> Iterator[str]:
        peer = contender.kind is Kind.PEER
        self._execute("CREATE DATABASE {} TEMPLATE {}", _NAME, _EMPTY if peer else _TEMPLATE)
        try:
            address = self.postgres.dsn(_NAME)
            yield _plain(address) if peer else address
        finally:
            self._execute("DROP DATABASE {} WITH (FORCE)", _NAME)

    def _open_sqlite(self, contender: Contender) -> Iterator[str]:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        path = folder / "bench.db"
        if contender.kind is not Kind.PEER:
            shutil.copy(self._template, path)
        yield str(path) if contender.kind is Kind.PEER else _sqlite_url(path)
        shutil.rmtree(folder)

    def _execute(self, statement: str, *names: str) -> None:
        parts = [sql.Identifier(name) for name in names]
        with psycopg.connect(_plain(self.postgres.dsn()), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*parts))


@contextmanager
def start_servers() -> Iterator[Servers]:
    """On free ports and in folders of their own; stopped at the end, also after a failure.

    Postgres does not wait for the disk: what a shared disk takes for a commit changes tenfold from
    one minute to the next, and peers that commit for each job would pay most of it. Valkey keeps
    everything in memory anyway.
    """
    with (
        # Postgres as root runs as another account, which must be able to enter its folder.
        tempfile.TemporaryDirectory(prefix="penstock-bench-pg-") as data,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        PostgresServer(Path(data), durable=False) as postgres,
        ValkeyServer(Path(folder) / "valkey") as valkey,
    ):
        servers = Servers(postgres, valkey.start(), Path(folder))
        servers.prepare()
        yield servers


def _plain(address: str) -> str:
    return address.replace("+psycopg", "")


def _sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
