"""Transactions on SQLite or Postgres: short, explicit, with the database's own clock."""

import os
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.errors import SchemaMismatch, StoreConflict, StoreError, StoreUnavailable
from penstock.settings import mask_url

_SQLITE_BUSY_SECONDS = 30.0
_IDLE_SECONDS = 60.0
_LEAST_IDLE_SECONDS = 10.0
_WHOLE_OVER_IDLE = 3
_WITH_TRANSACTION_TIMEOUT = 170_000
_ONE_ACTIVE = "uq_work_items_one_active"
_DEADLOCK = "40P01"
_TOO_LONG = ("25P03", "25P04")
# A table or column that is not there, or that has to have a value and was given none.
_OTHER_SCHEMA = ("42P01", "42703", "23502")
_OTHER_SCHEMA_IN_SQLITE = re.compile("no such (table|column)|has no column|NOT NULL constraint")
_SQLITE_PRAGMAS = (
    # With WAL, NORMAL loses nothing when a process dies; a power cut may undo the last commits.
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-8000",
    "PRAGMA temp_store=MEMORY",
)


@dataclass(frozen=True, slots=True)
class Tx:
    """One transaction, and the time it happens at by the database's clock."""

    connection: sa.Connection
    now: datetime
    _before_commit: dict[Callable[["Tx", list[Any]], None], list[Any]] = field(default_factory=dict)
    _after_commit: dict[Callable[[list[Any]], None], list[Any]] = field(default_factory=dict)

    @property
    def is_postgres(self) -> bool:
        return self.connection.dialect.name == "postgresql"

    def before_commit(self, call: Callable[["Tx", list[Any]], None], values: Iterable[Any]) -> None:
        """Call this right before the commit, once, with all values that it was given."""
        self._before_commit.setdefault(call, []).extend(values)

    def after_commit(self, call: Callable[[list[Any]], None], values: Iterable[Any]) -> None:
        """Call this after the commit, once, with all values that it was given. It must not raise:
        what is committed cannot fail any more."""
        self._after_commit.setdefault(call, []).extend(values)

    def run_before_commit(self) -> None:
        for call, values in self._before_commit.items():
            call(self, values)

    def run_after_commit(self) -> None:
        for call, values in self._after_commit.items():
            call(values)

    def execute(self, statement: sa.Executable, rows: Any = None) -> sa.CursorResult[Any]:
        return self.connection.execute(statement, rows)

    def among(self, column: sa.ColumnElement[Any], values: Iterable[Any]) -> sa.ColumnElement[bool]:
        """Whether a column has one of these values.

        On Postgres as one array: a statement of fixed length is parsed and planned once.
        """
        chosen = list(values)
        if not self.is_postgres:
            return column.in_(chosen)
        array = sa.bindparam(None, chosen, type_=postgresql.ARRAY(column.type))
        return column == sa.any_(array)

    def insert(self, table: sa.Table) -> "sqlite.Insert | postgresql.Insert":
        """An INSERT with `on_conflict_…`, which both databases have under one name."""
        return postgresql.insert(table) if self.is_postgres else sqlite.insert(table)


class Database:
    """A SQLite file or a Postgres server."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = _SQLITE_BUSY_SECONDS,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        """`timeout_seconds`: how long a writer waits for another writer of a SQLite file.
        `idle_seconds`: how long Postgres waits for a process in the middle of a transaction."""
        self.url = url
        self.revision: str | None = None
        """The schema's, as this process has found or made it; None until it has looked."""
        self.is_sqlite = url.startswith("sqlite")
        if self.is_sqlite:
            self.engine = _open_sqlite(url, timeout_seconds)
        else:
            self.engine = _open_postgres(url)
        # For this transaction alone: behind a pooler, the next one may have another session.
        idle_ms = round(1000 * max(idle_seconds, _LEAST_IDLE_SECONDS))
        self._idle_limit = f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms}; "
        self._whole_limit = f"SET LOCAL transaction_timeout = {_WHOLE_OVER_IDLE * idle_ms}; "
        # SQLite has one writer; queueing our own threads here beats its sleep-and-retry.
        self._writer: AbstractContextManager[Any] = (
            threading.RLock() if self.is_sqlite else nullcontext()
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of a SQLite database, the main one first; none of a server."""
        path = self.engine.url.database if self.is_sqlite else None
        endings = ("", "-wal", "-shm", "-journal")
        return tuple(Path(path + ending) for ending in endings) if path else ()

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction that only reads."""
        with self._explained(), self._begun() as tx:
            yield tx

    @contextmanager
    def write(self, *, lasting: bool = False) -> Iterator[Tx]:
        """A transaction that changes something; committed when the block ends well. One that is
        not `lasting` is ended by the database when it takes several times the length of a lease."""
        options = {"penstock_write": True, "penstock_lasting": lasting}
        with self._explained(), self._writer, self._begun(**options) as tx:
            yield tx
            tx.run_before_commit()
            self._commit(tx.connection)
        tx.run_after_commit()

    @contextmanager
    def outside(self) -> Iterator[sa.Connection]:
        """A connection without a transaction, for what cannot be done inside one."""
        with self._explained(), self.engine.connect() as connection:
            yield connection.execution_options(penstock_outside=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            where = mask_url(self.url)
            if _sqlstate(error) == _DEADLOCK:
                raise StoreConflict(
                    f"the database {where} ended a transaction that waited for another one, which "
                    "waited for it"
                ) from error
            if _may_be_of_another_schema(error):
                self.check_revision()
            if _is_passing(error):
                raise StoreUnavailable(
                    f"the database {where} cannot be used: {_first_line(error)}. "
                    "`penstock doctor` checks it."
                ) from error
            raise StoreError(f"the database refused a statement: {_first_line(error)}") from error

    def check_revision(self) -> None:
        """Raise SchemaMismatch if the database was migrated while this process used it."""
        if self.revision is None:
            return
        read = "SELECT version_num FROM alembic_version"
        try:
            with self.engine.connect() as connection:
                found = connection.exec_driver_sql(read).scalar_one_or_none()
        except SQLAlchemyError:
            # Other faults are reported by the statements that meet them.
            return
        if found not in (None, self.revision):
            raise SchemaMismatch(
                f"the database {mask_url(self.url)} was migrated to revision {found} while this "
                f"version of Penstock, which needs {self.revision}, worked on it. No job is lost: "
                "those it holds become pending again. Stop this process and start the new version"
            ) from None

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _begun(self, **options: Any) -> Iterator[Tx]:
        try:
            tx = self._begin(options)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            # A connection that died in the pool fails here; the others have most likely died too.
            self.engine.dispose()
            tx = self._begin(options)
        with tx.connection:
            yield tx

    def _begin(self, options: dict[str, Any]) -> Tx:
        connection = self.engine.connect().execution_options(**options)
        try:
            return Tx(connection, self._begin_at(connection))
        except BaseException:
            connection.close()
            raise

    def _begin_at(self, connection: sa.Connection) -> datetime:
        """Begin a transaction; the time by the database's clock. Postgres is asked for both in one
        round trip, which is why the driver leaves transactions to us.

        A process that was halted or cut off in a transaction must not keep its locks from the
        worker that takes over its work, so Postgres ends one that is idle for long; and, from 17
        on, one that takes long: between the rows of one statement it does not count as idle."""
        if self.is_sqlite:
            connection.begin()
            return datetime.now(UTC)
        from psycopg import Error as DriverError

        driver: Any = connection.connection.dbapi_connection
        try:
            answers = driver.execute(self._begin_postgres(connection, driver))
        except DriverError as error:
            connection.invalidate(error)
            raise OperationalError("BEGIN", None, error, connection_invalidated=True) from error
        while answers.nextset():
            pass
        now: datetime = answers.fetchone()[0]
        return now.astimezone(UTC)

    def _begin_postgres(self, connection: sa.Connection, driver: Any) -> str:
        options = connection.get_execution_options()
        bounded = options.get("penstock_write") and not options.get("penstock_lasting")
        whole = bounded and driver.info.server_version >= _WITH_TRANSACTION_TIMEOUT
        limits = self._idle_limit + (self._whole_limit if whole else "")
        return f"BEGIN; {limits}SELECT clock_timestamp()"

    def _commit(self, connection: sa.Connection) -> None:
        if self.is_sqlite:
            connection.commit()
        else:
            connection.exec_driver_sql("COMMIT")


def _open_postgres(url: str) -> sa.Engine:
    engine = sa.create_engine(url, pool_size=8, max_overflow=24, isolation_level="AUTOCOMMIT")
    sa.event.listen(engine, "connect", _prepare_nothing_behind_pooler)
    return engine


def _prepare_nothing_behind_pooler(connection: Any, _: object) -> None:
    """A pooler, such as PgBouncer, gives each transaction a session that may not know what another
    one has prepared. It introduces itself with a process id that is not the session's."""
    (backend_pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    if backend_pid != connection.info.backend_pid:
        connection.prepare_threshold = None


def _open_sqlite(url: str, timeout_seconds: float) -> sa.Engine:
    path = sa.engine.make_url(url).database
    if path:
        _make_folder(Path(path).parent)
    connect_args = {"timeout": timeout_seconds}
    # The connection that was used last has what is needed next in its cache; and the caches of
    # those that are not needed stay small.
    options: dict[str, Any] = {"connect_args": connect_args}
    if path and path != ":memory:":
        options |= {"pool_use_lifo": True}
    engine = sa.create_engine(url, module=_sqlite_driver(), **options)
    if path and path != ":memory:":
        sa.event.listen(engine, "do_connect", lambda *_: _make_private_file(path))
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {folder} cannot be made ({error.strerror or error}): choose another one "
            "with PENSTOCK_HOME"
        ) from error


def _make_private_file(path: str) -> None:
    """SQLite would make the file readable for every account; files beside it get its mode."""
    # It exists already, or cannot be made, which SQLite explains better.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def _sqlite_driver() -> Any:
    """The standard library's SQLite, unless this Python was built without extension loading."""
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    try:
        return import_module("pysqlite3.dbapi2")
    except ImportError:
        raise StoreError(
            "this Python's sqlite3 cannot load extensions, which vector search needs: run "
            "`pip install pysqlite3-binary`, use another Python, or set PENSTOCK_DSN to a Postgres"
        ) from None


def _prepare_sqlite(connection: Any, _: object) -> None:
    # The driver's own transaction handling would begin too late; `_begin_sqlite` does it.
    connection.isolation_level = None
    _switch_to_wal(connection)
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)
    # SQLite's own `lower` knows ASCII letters only.
    connection.create_function("lower", 1, _lower, deterministic=True)
    connection.enable_load_extension(True)
    connection.load_extension(_vector_extension())
    connection.enable_load_extension(False)


def _switch_to_wal(connection: Any) -> None:
    """The first switch of a file does not wait for its lock, as other statements do."""
    deadline = time.monotonic() + _SQLITE_BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except _sqlite_driver().OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _lower(value: object) -> str | None:
    return None if value is None else str(value).lower()


@cache
def _vector_extension() -> str:
    """The path of sqlite-vec. Importing it would import numpy, which quick commands do without."""
    package = find_spec("sqlite_vec")
    if package is None or package.origin is None:
        raise StoreError("sqlite-vec is not installed; run `pip install sqlite-vec`")
    return str(Path(package.origin).parent / "vec0")


def _begin_sqlite(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if options.get("penstock_outside"):
        return
    # A writer takes its lock at once: upgrading a read later fails under contention.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("penstock_write") else "BEGIN")


def _is_passing(error: SQLAlchemyError) -> bool:
    """Whether a retry may succeed: the server or the connection was lost."""
    if isinstance(error, OperationalError | PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated or _sqlstate(error) in _TOO_LONG:
        return True
    # Another transaction has just recorded the same work; the next attempt finds it.
    return _ONE_ACTIVE in str(error.orig)


def _may_be_of_another_schema(error: SQLAlchemyError) -> bool:
    if _sqlstate(error) is not None:
        return _sqlstate(error) in _OTHER_SCHEMA
    return isinstance(error, DBAPIError) and bool(_OTHER_SCHEMA_IN_SQLITE.search(str(error.orig)))


def _sqlstate(error: SQLAlchemyError) -> str | None:
    return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None


def _first_line(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().partition("\n")[0]


def new_node_id() -> str:
    """A UUID of version 7 (RFC 9562): milliseconds since 1970, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = int.from_bytes(milliseconds.to_bytes(6, "big") + os.urandom(10), "big")
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=value))
