"""Databases of the tests' Postgres: new ones, and one that is emptied after each test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from penstock.local.postgres import PostgresServer

_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
"""
_RESTART = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE last_value IS NOT NULL
"""
# What a test may change besides rows, and then gets a new database for those after it.
_SHAPE = """
SELECT (SELECT array_agg((oid, relnatts)::text ORDER BY oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace),
       (SELECT count(*) FROM pg_trigger),
       (SELECT count(*) FROM pg_proc),
       (SELECT count(*) FROM pg_db_role_setting)
"""


@contextmanager
def new_database(server: PostgresServer, template: str, name: str) -> Iterator[str]:
    """Its address."""
    _run(server, "CREATE DATABASE {} TEMPLATE {}", name, template)
    try:
        yield server.dsn(name)
    finally:
        _run(server, "DROP DATABASE {} WITH (FORCE)", name)


class EmptiedDatabase:
    """A copy of the template for one test after the other; copying takes longer than most tests."""

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._server = server
        self._template = template
        self._name = "penstock_test"
        self._shape: object = None

    @contextmanager
    def lend(self) -> Iterator[str]:
        if self._shape is None:
            _run(self._server, "CREATE DATABASE {} TEMPLATE {}", self._name, self._template)
            with self._connect() as connection:
                self._shape = connection.execute(_SHAPE).fetchone()
        try:
            yield self._server.dsn(self._name)
        finally:
            self._empty()

    def _empty(self) -> None:
        with self._connect() as connection:
            connection.execute(_END_OTHERS)
            is_unchanged = connection.execute(_SHAPE).fetchone() == self._shape
            if is_unchanged:
                tables = [sql.Identifier(name) for (name,) in connection.execute(_TABLES)]
                is_filled = sql.SQL("EXISTS (SELECT 1 FROM {})")
                columns = sql.SQL(", ").join(is_filled.format(table) for table in tables)
                found = connection.execute(sql.SQL("SELECT ") + columns).fetchone() or ()
                filled = [table for table, is_it in zip(tables, found, strict=True) if is_it]
                if filled:
                    truncate = sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(filled))
                    connection.execute(truncate)
                connection.execute(_RESTART)
        if not is_unchanged:
            _run(self._server, "DROP DATABASE {} WITH (FORCE)", self._name)
            self._shape = None

    def _connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        address = self._server.dsn(self._name).replace("+psycopg", "")
        return psycopg.connect(address, autocommit=True)


def _run(server: PostgresServer, statement: str, *names: str) -> None:
    parts = [sql.Identifier(name) for name in names]
    address = server.dsn().replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*parts))
