"""A real PgBouncer in transaction mode in front of the tests' Postgres."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from penstock.local.postgres import PostgresServer, find_programs
from penstock.local.processes import LOOPBACK, free_port
from tests.together import wait_until

SESSIONS = 3
"""Of Postgres, for each database; transactions of all clients take turns in them."""


def find_pgbouncer() -> str:
    """Its program; the test is skipped, and says so, on a machine that has none."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(
            "NO PGBOUNCER: working behind a pooler is not tested on this machine. `make pgbouncer` "
            "installs it where it can"
        )
    return found


class Pooler:
    """A running PgBouncer; `url` leads a database of the server through it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, direct_url: str) -> str:
        return make_url(direct_url).set(port=self.port).render_as_string(hide_password=False)


@contextmanager
def running_pooler(server: PostgresServer) -> Iterator[Pooler]:
    """As root it runs as the account that Postgres runs as: both refuse root."""
    program, account, port = find_pgbouncer(), find_programs().account, free_port()
    with tempfile.TemporaryDirectory(prefix="penstock-pooler-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(host=LOOPBACK, of=server.port, at=port, most=SESSIONS))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        try:
            pooler = Pooler(port)
            wait_until(lambda: process.poll() is not None or _answers(pooler, server), 20)
            assert process.poll() is None, (folder / "log").read_text()
            yield pooler
        finally:
            process.terminate()
            process.wait(20)


def _answers(pooler: Pooler, server: PostgresServer) -> bool:
    try:
        psycopg.connect(pooler.url(server.dsn()).replace("+psycopg", "")).close()
    except psycopg.OperationalError:
        return False
    return True


_SETTINGS = """
[databases]
* = host={host} port={of} user=postgres
[pgbouncer]
listen_addr = {host}
listen_port = {at}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {most}
max_client_conn = 200
"""
