"""The floor: the same claims on the same table, as SQL written by hand on the driver.

One connection leases a batch in one transaction and completes it in the next. There is no fencing,
no turn of tenants, no retry and no heartbeat.
"""

import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import psycopg

from bench.queue_assignment import (
    ENQUEUE,
    Assignment,
    check_done,
    name_way,
    new_ids,
    rate,
    read_assignment,
    tell,
)
from bench.queue_penstock import BATCH, refresh_statistics
from penstock.store.database import Database

LEASE_SECONDS = 60
_NEW = (
    "tenant_id, node_id, stage, status, priority, attempts, rescues, run_at, payload, "
    "created_at, updated_at"
)
_DUE = (
    "SELECT id, node_id, payload FROM work_items WHERE status IN ('pending', 'retry_pending') "
    "AND tenant_id = 'default' AND run_at <= {0} "
    "ORDER BY priority DESC, interrupted DESC, id LIMIT {0}"
)
_LEASE = (
    "UPDATE work_items SET status = 'processing', lease_owner = {0}, lease_token = {0}, "
    "lease_expires_at = {0}, claimed_at = {0}, updated_at = {0} WHERE id "
)
_DONE = (
    "UPDATE work_items SET status = 'complete', outcome = 'done', lease_owner = NULL, "
    "lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, finished_at = {0}, "
    "updated_at = {0} WHERE id "
)


class Store(Protocol):
    """Bare statements on one connection."""

    def enqueue(self, rows: Iterable[tuple[Any, ...]]) -> None: ...

    def claim(self, limit: int) -> list[int]: ...

    def complete(self, ids: list[int]) -> None: ...


class PostgresStore:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def enqueue(self, rows: Iterable[tuple[Any, ...]]) -> None:
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY work_items ({_NEW}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
        self._connection.commit()

    def claim(self, limit: int) -> list[int]:
        due = _DUE.format("%s") + " FOR UPDATE SKIP LOCKED"
        found = self._connection.execute(due, (datetime.now(UTC), limit))
        ids = [row[0] for row in found]
        if ids:
            self._connection.execute(_LEASE.format("%s") + "= ANY(%s)", (*_new_lease(), ids))
        self._connection.commit()
        return ids

    def complete(self, ids: list[int]) -> None:
        now = datetime.now(UTC)
        self._connection.execute(_DONE.format("%s") + "= ANY(%s)", (now, now, ids))
        self._connection.commit()


class SqliteStore:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def enqueue(self, rows: Iterable[tuple[Any, ...]]) -> None:
        marks = ", ".join("?" * len(_NEW.split(",")))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            f"INSERT INTO work_items ({_NEW}) VALUES ({marks})", map(_as_text, rows)
        )
        self._connection.execute("COMMIT")

    def claim(self, limit: int) -> list[int]:
        self._connection.execute("BEGIN IMMEDIATE")
        due = _as_text((datetime.now(UTC), limit))
        ids = [row[0] for row in self._connection.execute(_DUE.format("?"), due)]
        if ids:
            values = (*_as_text(_new_lease()), *ids)
            self._connection.execute(_LEASE.format("?") + _among(ids), values)
        self._connection.execute("COMMIT")
        return ids

    def complete(self, ids: list[int]) -> None:
        now = datetime.now(UTC)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(_DONE.format("?") + _among(ids), (*_as_text((now, now)), *ids))
        self._connection.execute("COMMIT")


def _new_lease() -> tuple[Any, ...]:
    now = datetime.now(UTC)
    return ("floor", uuid.uuid4().hex, now + timedelta(seconds=LEASE_SECONDS), now, now)


def _as_text(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        f"{value:%Y-%m-%d %H:%M:%S.%f}" if isinstance(value, datetime) else value
        for value in values
    )


def _among(ids: list[int]) -> str:
    return f"IN ({', '.join('?' * len(ids))})"


def enqueue(store: Store, ids: list[str]) -> None:
    now = datetime.now(UTC)
    for first in range(0, len(ids), BATCH):
        some = ids[first : first + BATCH]
        store.enqueue(
            ("default", one, "text", "pending", 0, 0, 0, now, "{}", now, now) for one in some
        )


def drain(store: Store, claims: int, jobs: int) -> None:
    done = 0
    while ids := store.claim(claims):
        store.complete(ids)
        done += len(ids)
    check_done(done, jobs)


def run(given: Assignment, database: Database, store: Store) -> dict[str, float]:
    """The figures of our own queue that have a floor."""
    rates: dict[str, float] = {}
    for claims in (50, 200):
        enqueue(store, new_ids(given.process))
        refresh_statistics(database)
        drained = rate(given.process, partial(drain, store, claims, given.process))
        rates[name_way(claims)] = drained
    enqueued = rate(given.enqueue, partial(enqueue, store, new_ids(given.enqueue)))
    return rates | {ENQUEUE: enqueued}


def main(given: Assignment) -> None:
    with closing(Database(given.address)) as database:
        if database.is_sqlite:
            # The driver, the pragmas and the file are the ones that our queue has.
            with closing(database.engine.raw_connection()) as borrowed:
                tell(run(given, database, SqliteStore(borrowed.driver_connection)))
            return
        with psycopg.connect(given.address.replace("+psycopg", "")) as connection:
            tell(run(given, database, PostgresStore(connection)))


if __name__ == "__main__":
    main(read_assignment())
