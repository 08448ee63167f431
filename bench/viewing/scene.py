"""A large run in a Postgres, and `penstock serve` beside it."""

import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.local.postgres import PostgresServer
from penstock.local.processes import LOOPBACK, free_port
from penstock.runs.lifecycle import begin_ingesting, open_run, take_run
from penstock.runs.run import SourceSpec
from penstock.settings import load_settings
from penstock.store.schema import events
from tests.faults.scenarios.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent
TENANT = "default"

# As a run of that size leaves them behind: every fiftieth document failed, the last are pending.
_DOCUMENTS = """
INSERT INTO run_documents (run_id, external_id, node_id, url, status, change, reason, error_class,
                           updated_at)
SELECT :run, 'jobs/' || lpad(n::text, 6, '0'), gen_random_uuid(),
       'https://acme.example/jobs/' || n,
       CASE WHEN n % 50 = 0 THEN 'error' WHEN n > :documents - 100 THEN 'pending' ELSE 'ready' END,
       'new', CASE WHEN n % 50 = 0 THEN 'the server answered 404' END,
       CASE WHEN n % 50 = 0 THEN 'not_found' END, now()
FROM generate_series(1, :documents) AS n
"""
_ITEMS = """
INSERT INTO work_items (tenant_id, node_id, run_id, stage, status, outcome, priority, attempts,
                        rescues, run_at, payload, created_at, updated_at, started_at, finished_at)
SELECT :tenant, node_id, run_id, stage, 'complete', 'done', 0, 0, 0, now(), '{}', now(), now(),
       now() - make_interval(secs => 600 - row_number() OVER () / 250.0),
       now() - make_interval(secs => 600 - row_number() OVER () / 250.0 - 0.2)
FROM run_documents, unnest(ARRAY['text', 'extract', 'embed']) AS stage
WHERE run_id = :run AND run_documents.status = 'ready'
"""
_LINES = """
INSERT INTO events (tenant_id, run_id, source, document, stage, level, message, at)
SELECT :tenant, :run, 'acme', 'jobs/' || lpad(n::text, 6, '0'),
       (ARRAY['CRL', 'TXT', 'LLM', 'EMB'])[1 + n % 4],
       CASE WHEN n % 100 = 0 THEN 'ERROR' ELSE 'INFO' END,
       'line ' || n || ' of a log that is read while it is being written', now()
FROM generate_series(1, :lines) AS n
"""


@dataclass(frozen=True)
class Scene:
    """A run that is under way, and the server that shows it."""

    app: App
    run_id: int
    address: str
    server: psutil.Process

    def write_lines(self, first: int, count: int) -> None:
        """As workers write them, a batch in a transaction."""
        with self.app.database.write() as tx:
            rows = [
                {
                    "tenant_id": TENANT,
                    "run_id": self.run_id,
                    "source": "acme",
                    "document": f"jobs/{number:06}",
                    "stage": "EMB",
                    "level": "INFO",
                    "message": f"line {number} that was written during the measurement",
                    "at": tx.now,
                }
                for number in range(first, first + count)
            ]
            tx.execute(sa.insert(events), rows)

    def transactions(self) -> int:
        """How many the database has done, for all of its clients."""
        with self.app.database.read() as tx:
            tx.execute(sa.text("SELECT pg_stat_force_next_flush()"))
            done = "SELECT xact_commit + xact_rollback FROM pg_stat_database"
            query = sa.text(f"{done} WHERE datname = current_database()")
            return int(tx.execute(query).scalar_one())

    def cpu_seconds(self) -> float:
        times = self.server.cpu_times()
        return float(times.user + times.system)


@contextmanager
def open_scene(documents: int, lines: int) -> Iterator[Scene]:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-viewing-") as data,
        tempfile.TemporaryDirectory(prefix="penstock-viewing-") as folder,
        PostgresServer(Path(data), durable=False) as postgres,
    ):
        dsn = postgres.create_database("penstock")
        home = Path(folder)
        with open_app(load_settings(dsn=dsn, home=home)) as app:
            run_id = _furnish(app, documents, lines)
            with _serving(dsn, home) as (address, process):
                yield Scene(app, run_id, address, process)


def _furnish(app: App, documents: int, lines: int) -> int:
    spec = SourceSpec(TENANT, "acme", "sitemap", "https://acme.example/sitemap.xml")
    run = open_run(app.database, spec, profile=None, force=False, forced=())
    lease = take_run(app.database, run.id, lease_seconds=3600)
    begin_ingesting(app.database, lease)
    values = {"run": run.id, "tenant": TENANT, "documents": documents, "lines": lines}
    with app.database.write() as tx:
        for statement in (_DOCUMENTS, _ITEMS, _LINES):
            named = sa.text(statement)
            tx.execute(named, {name: values[name] for name in named.compile().params})
    with app.database.write() as tx:
        tx.execute(sa.text("ANALYZE"))
    return run.id


@contextmanager
def _serving(dsn: str, home: Path) -> Iterator[tuple[str, psutil.Process]]:
    port = free_port()
    address = f"http://{LOOPBACK}:{port}"
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "PENSTOCK_DSN": dsn,
        "PENSTOCK_HOME": str(home),
    }
    command = [sys.executable, "-m", "entrypoints.cli.main", "serve", "--port", str(port)]
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _answers(address), 60, f"penstock serve on port {port}")
        yield address, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(timeout=30)


def _answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=1):
        return True
    return False
