"""Transactions on the database: short, explicit, with the database's own clock."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

from penstock.errors import StoreError, StoreUnavailable
from penstock.settings import mask_url

_SQLITE_BUSY_SECONDS = 30.0
_IDLE_SECONDS = 60.0
_LEAST_IDLE_SECONDS = 10.0
_ONE_ACTIVE = "uq_work_items_one_active"
_IDLE_TOO_LONG = "25P03"  # what Postgres says to a process that it has waited for too long
_SQLITE_PRAGMAS = (
    # With WAL, NORMAL loses nothing when a process dies; a power cut may undo the last commits.
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-16000",
    "PRAGMA temp_store=MEMORY",
)


@dataclass(frozen=True, slots=True)
class Tx:
    """One transaction, and the time it happens at by the database's clock."""

    connection: sa.Connection
    now: datetime
    _last: dict[Callable[["Tx", list[Any]], None], list[Any]] = field(default_factory=dict)
    _afterwards: dict[Callable[[list[Any]], None], list[Any]] = field(default_factory=dict)

    def last(self, write: Callable[["Tx", list[Any]], None], things: Iterable[Any]) -> None:
        """Have these written right before the commit, all that one writer is given together."""
        self._last.setdefault(write, []).extend(things)

    def afterwards(self, tell: Callable[[list[Any]], None], news: Iterable[Any]) -> None:
        """Have this told once it is committed, all that one listener is given together.

        What is committed cannot fail any more, so a listener must not raise.
        """
        self._afterwards.setdefault(tell, []).extend(news)

    def write_last(self) -> None:
        for write, things in self._last.items():
            write(self, things)

    def tell_afterwards(self) -> None:
        for tell, news in self._afterwards.items():
            tell(news)

    def execute(self, statement: sa.Executable, rows: Any = None) -> sa.CursorResult[Any]:
        return self.connection.execute(statement, rows)

    def among(self, column: sa.ColumnElement[Any], values: Iterable[Any]) -> sa.ColumnElement[bool]:
        """Whether a column has one of these values.

        On Postgres as one array: a statement of fixed length is parsed and planned once.
        """
        chosen = list(values)
        if self.connection.dialect.name != "postgresql":
            return column.in_(chosen)
        array = sa.bindparam(None, chosen, type_=postgresql.ARRAY(column.type))
        return column == sa.any_(array)

    def insert(self, table: sa.Table) -> "sqlite.Insert | postgresql.Insert":
        """An INSERT with `on_conflict_…`, which both databases have under one name."""
        if self.connection.dialect.name == "postgresql":
            return postgresql.insert(table)
        return sqlite.insert(table)


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
        self.is_sqlite = url.startswith("sqlite")
        if self.is_sqlite:
            self.engine = _open_sqlite(url, timeout_seconds)
        else:
            self.engine = _open_postgres(url, max(idle_seconds, _LEAST_IDLE_SECONDS))
        # SQLite has one writer; queueing our own threads here beats its sleep-and-retry.
        self._writer: AbstractContextManager[Any] = (
            threading.RLock() if self.is_sqlite else nullcontext()
        )

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction that only looks."""
        with _explained(self.url), self._begun() as tx:
            yield tx

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """A transaction that changes something; committed when the block ends well."""
        with _explained(self.url), self._writer, self._begun(penstock_write=True) as tx:
            yield tx
            tx.write_last()
            self._commit(tx.connection)
        tx.tell_afterwards()

    @contextmanager
    def outside(self) -> Iterator[sa.Connection]:
        """A connection without a transaction, for what cannot be done inside one."""
        with _explained(self.url), self.engine.connect() as connection:
            yield connection.execution_options(penstock_outside=True)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _begun(self, **options: Any) -> Iterator[Tx]:
        tx = self._begin(options)
        with tx.connection:
            yield tx

    def _begin(self, options: dict[str, Any]) -> Tx:
        """A connection whose transaction has begun. One that died in the pool is found out by the
        first question, which is the one for the time, and replaced."""
        try:
            return self._try_begin(options)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            # The others that wait in the pool have most likely died with it.
            self.engine.dispose()
            return self._try_begin(options)

    def _try_begin(self, options: dict[str, Any]) -> Tx:
        connection = self.engine.connect().execution_options(**options)
        try:
            return Tx(connection, self._begin_at(connection))
        except BaseException:
            connection.close()
            raise

    def _begin_at(self, connection: sa.Connection) -> datetime:
        """Begin a transaction; when, by the database's clock. Postgres is asked for both at once,
        and so the driver leaves transactions to us: it would make two questions of it."""
        if self.is_sqlite:
            connection.begin()
            return datetime.now(UTC)
        from psycopg import Error as DriverError

        driver: Any = connection.connection.dbapi_connection
        try:
            answers = driver.execute("BEGIN; SELECT clock_timestamp()")
        except DriverError as error:
            connection.invalidate(error)
            raise OperationalError("BEGIN", None, error, connection_invalidated=True) from error
        answers.nextset()
        now: datetime = answers.fetchone()[0]
        return now.astimezone(UTC)

    def _commit(self, connection: sa.Connection) -> None:
        if self.is_sqlite:
            connection.commit()
        else:
            connection.exec_driver_sql("COMMIT")


def _open_postgres(url: str, idle_seconds: float) -> sa.Engine:
    """Transactions are short here. A process that was halted, or cut off, in the middle of one
    must not keep its locks from whoever takes over its work."""
    engine = sa.create_engine(url, pool_size=8, max_overflow=24, isolation_level="AUTOCOMMIT")
    limit = f"SET idle_in_transaction_session_timeout = {round(1000 * idle_seconds)}"
    sa.event.listen(engine, "connect", lambda driver, _: driver.execute(limit))
    return engine


def _open_sqlite(url: str, timeout_seconds: float) -> sa.Engine:
    path = sa.engine.make_url(url).database
    if path:
        _make_folder(Path(path).parent)
    engine = sa.create_engine(
        url,
        module=_sqlite_driver(),
        connect_args={"timeout": timeout_seconds},
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {folder} cannot be made ({error.strerror or error}): choose another one "
            "with PENSTOCK_HOME"
        ) from error


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
    # SQLite's own knows the letters of English alone.
    connection.create_function("lower", 1, _lower, deterministic=True)
    connection.enable_load_extension(True)
    connection.load_extension(_vector_extension())
    connection.enable_load_extension(False)


def _switch_to_wal(connection: Any) -> None:
    """The very first switch of a file does not wait for its lock by itself, as all else does."""
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
    """Where sqlite-vec lies. Importing it would import numpy, which quick commands do without."""
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


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        if _is_passing(error):
            raise StoreUnavailable(
                f"the database {mask_url(url)} cannot be used: {_first_line(error)}. "
                "`penstock doctor` checks it."
            ) from error
        raise StoreError(f"the database refused a statement: {_first_line(error)}") from error


def _is_passing(error: SQLAlchemyError) -> bool:
    """Whether the same may go well a moment later: the server or the connection was lost."""
    if isinstance(error, OperationalError | PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated or getattr(error.orig, "sqlstate", None) == _IDLE_TOO_LONG:
        return True
    # Somebody else has recorded the same work in this very moment; the next look finds it.
    return _ONE_ACTIVE in str(error.orig)


def _first_line(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().partition("\n")[0]
