"""The database goes away in the middle of a run, or the disk has no more room for documents."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
import sqlalchemy as sa
from psycopg import sql

from penstock import failpoints
from penstock.errors import StorageFull
from penstock.local.postgres import PostgresServer, find_programs
from penstock.local.processes import free_port
from penstock.runs.lifecycle import read_run
from penstock.store.schema import LEASED_ITEM, work_items
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.endurance import (
    Endured,
    count_fallen,
    count_ready,
    count_tracebacks,
    endure,
    hire_workers,
    in_small_batches,
)
from tests.faults.scenarios.scene import SWEEP_SECONDS, Scene, open_scene
from tests.faults.scenarios.waiting import wait_for

Mode = Literal["fast", "immediate"]
MODES: tuple[Mode, ...] = ("fast", "immediate")

_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
print("ready", flush=True)
sys.stdin.readline()
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True, slots=True)
class FixedPostgres:
    """A server that comes back at the same address, with all that was ever committed."""

    folder: Path
    server: PostgresServer

    @contextmanager
    def stopped(self, mode: Mode) -> Iterator[None]:
        """`immediate` is a crash: it comes back by way of its log."""
        stop = ("stop", f"--mode={mode}", "--wait", "-D", str(self.folder))
        find_programs().run("pg_ctl", *stop)
        try:
            yield
        finally:
            self.server.start()


@contextmanager
def open_fixed_postgres() -> Iterator[FixedPostgres]:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-faults-") as folder,
        PostgresServer(Path(folder), free_port()) as server,
    ):
        yield FixedPostgres(Path(folder), server)


def restart_postgres(
    scene: Scene, postgres: FixedPostgres, mode: Mode, *, documents: int, seconds: float
) -> Endured:
    """The server is stopped in the middle of a run, and started again so much later."""
    name = f"Postgres stopped ({mode}) and started"
    return endure(scene, name, postgres.stopped(mode), documents=documents, seconds=seconds)


def refuse_connections(
    scene: Scene, server: PostgresServer, *, documents: int, seconds: float
) -> Endured:
    """The server cuts every connection, and lets nobody in for so long."""
    outage = _refusing(server, str(scene.app.database.engine.url.database))
    name = "Postgres refuses connections"
    return endure(scene, name, outage, documents=documents, seconds=seconds)


@contextmanager
def _refusing(server: PostgresServer, name: str) -> Iterator[None]:
    switch = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    database = sql.Identifier(name)
    with psycopg.connect(server.dsn().replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(switch.format(database, sql.Literal(False)))
        try:
            while _cut_connections(admin, name):
                time.sleep(0.01)
            yield
        finally:
            admin.execute(switch.format(database, sql.Literal(True)))


def _cut_connections(admin: "psycopg.Connection[tuple[object, ...]]", name: str) -> int:
    """How many there were, also such as were being made when the door was closed."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    return admin.execute(query, [name]).rowcount


@dataclass(frozen=True, slots=True)
class Locked:
    """What another program that held a SQLite file cost."""

    endured: Endured
    expired: int
    """Leases that had run out when it let go."""


def lock_sqlite(scene: Scene, *, documents: int, seconds: float) -> Locked:
    """Another process begins to write to the file, and does not come to an end for so long."""
    expired = 0
    command = [sys.executable, "-c", _LOCKER, str(scene.app.database.engine.url.database)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as locker:
        assert locker.stdin is not None
        assert locker.stdout is not None
        stdin, stdout = locker.stdin, locker.stdout
        # Started before it is needed: workers would meanwhile come to the end of what there is.
        assert stdout.readline() == b"ready\n"

        @contextmanager
        def locked() -> Iterator[None]:
            nonlocal expired
            stdin.write(b"lock\n")
            assert stdout.readline() == b"locked\n"
            try:
                yield
                expired = _count_expired(scene)
            finally:
                stdin.close()

        fault = "SQLite locked by another process"
        found = endure(scene, fault, locked(), documents=documents, seconds=seconds)
    return Locked(found, expired)


def _count_expired(scene: Scene) -> int:
    with scene.app.database.read() as tx:
        query = sa.select(sa.func.count()).select_from(work_items)
        gone = query.where(LEASED_ITEM, work_items.c.lease_expires_at < tx.now)
        return int(tx.execute(gone).scalar_one())


@dataclass(frozen=True, slots=True)
class FilledUp:
    """A run that met a full disk, and was taken up when there was room again."""

    audit: Audit
    reason: str
    """Why it was paused."""
    done_before: int
    """Documents that were admitted before, and got ready while the run was paused."""
    recovery_seconds: float
    """From the moment there was room to the end of the run."""
    fallen: int
    tracebacks: int

    @property
    def problems(self) -> list[str]:
        own = [f"{self.fallen} workers did not live through it"] if self.fallen else []
        own += [f"{self.tracebacks} unforeseen errors"] if self.tracebacks else []
        return [*self.audit.problems, *own]

    def __str__(self) -> str:
        return (
            f"disk full: of {self.audit.documents} documents {self.done_before} were done while "
            f"the run was paused; over {self.recovery_seconds:.1f} s after there was room; "
            f"{', '.join(self.problems) or 'nothing lost, nothing twice'}"
        )


def fill_disk(scene: Scene, *, documents: int, stored: int) -> FilledUp:
    """There is room for so many documents; then somebody makes more, and starts the run again."""
    source = scene.write_documents(documents)
    with in_small_batches(scene) as small:
        run_id = small.open(source)
        admitted, reason = _bring_until_full(small, run_id, stored)
        wait_for(lambda: count_ready(scene, run_id) == admitted, 60, "what was admitted to be done")
        # Nothing of it is left to do now, and yet no sweep may take it for finished.
        time.sleep(2 * SWEEP_SECONDS)
        began = time.monotonic()
        assert small.admit(source) == run_id
    scene.wait_for_run(run_id)
    return FilledUp(
        scene.audit(run_id, documents),
        reason,
        admitted,
        time.monotonic() - began,
        count_fallen(scene),
        count_tracebacks(scene),
    )


def _bring_until_full(scene: Scene, run_id: int, stored: int) -> tuple[int, str]:
    """How many documents were admitted, and why the run was paused."""
    admitted = 0

    def note(count: int) -> None:
        nonlocal admitted
        admitted = count

    failpoints.arm(f"raw.storing=full@{stored + 1}")
    try:
        scene.bring(run_id, note)
    except StorageFull:
        with scene.app.database.read() as tx:
            return admitted, str(read_run(tx, run_id).paused_reason)
    finally:
        failpoints.arm(None)
    raise AssertionError("the disk was never full")


def endure_all() -> Iterator[Endured | FilledUp]:
    """Every outage of a store at its full length."""
    with ExitStack() as opened:
        postgres = opened.enter_context(open_fixed_postgres())
        scene = opened.enter_context(open_scene(postgres.server.create_database("faults")))
        hire_workers(scene)
        for mode in MODES:
            yield restart_postgres(scene, postgres, mode, documents=200, seconds=5)
        yield refuse_connections(scene, postgres.server, documents=200, seconds=30)
        yield fill_disk(scene, documents=200, stored=100)
    with open_scene() as scene:
        hire_workers(scene)
        yield lock_sqlite(scene, documents=200, seconds=10).endured
        yield fill_disk(scene, documents=200, stored=100)
