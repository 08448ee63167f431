"""`POST /nodes` under load: so many clients at once, each sending one node after the other."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from entrypoints.local.processes import answers_ok, free_port
from penstock.store.database import Database
from penstock.store.schema import nodes, work_items

CLIENTS = 100
_BODY = {
    "classes": ["Resume"],
    "props": {"text": "Ada Park. Data engineer with eight years of Python and SQL. " * 8},
}


@dataclass(frozen=True, slots=True)
class Intake:
    """What the clients saw, and what the database holds."""

    accepted: int
    refused: int
    seconds: float
    latencies: list[float]
    stored_nodes: int
    stored_items: int

    @property
    def per_second(self) -> float:
        return self.accepted / self.seconds

    def quantile(self, share: float) -> float:
        return sorted(self.latencies)[
            min(int(share * len(self.latencies)), len(self.latencies) - 1)
        ]

    @property
    def lost(self) -> int:
        """Nodes that were accepted and are not there, or have no work item."""
        return max(self.accepted - self.stored_nodes, self.accepted - self.stored_items)


def load(url: str, dsn: str, requests: int) -> Intake:
    """Send so many nodes, and count what became of them."""
    began = time.perf_counter()
    answers = asyncio.run(_send_all(url, requests))
    seconds = time.perf_counter() - began
    good = [took for status, took in answers if status == 200]
    database = Database(dsn)
    try:
        with database.read() as tx:
            stored_nodes = tx.execute(sa.select(sa.func.count()).select_from(nodes)).scalar_one()
            stored_items = tx.execute(
                sa.select(sa.func.count(sa.distinct(work_items.c.node_id)))
            ).scalar_one()
    finally:
        database.close()
    refused = len(answers) - len(good)
    return Intake(len(good), refused, seconds, good, stored_nodes, stored_items)


@contextmanager
def serving(dsn: str, redis_url: str | None, home: Path) -> Iterator[str]:
    """`penstock serve` with limits that the load stays below; it ends with the block."""
    port = free_port()
    environment = os.environ | {
        "PENSTOCK_DSN": dsn,
        "PENSTOCK_HOME": str(home),
        "EMBEDDING_QUEUE_MAX_DEPTH": "10000000",
        "EMBEDDING_TENANT_MAX_PENDING": "10000000",
    }
    if redis_url is not None:
        environment["REDIS_URL"] = redis_url
    command = [sys.executable, "-m", "entrypoints.cli.main", "serve", "--port", str(port)]
    with (home / "serve.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_until_up(port, server)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _wait_until_up(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while not answers_ok(port, "/readyz", 1.0):
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("penstock serve does not come up; see serve.log")
        time.sleep(0.1)


async def _send_all(address: str, requests: int) -> list[tuple[int, float]]:
    body = json.dumps(_BODY).encode()
    head = (
        f"POST /nodes HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    left = iter(range(requests))
    answers: list[tuple[int, float]] = []

    async def client() -> None:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            began = time.perf_counter()
            writer.write(head + body)
            status = await _read_answer(reader)
            answers.append((status, time.perf_counter() - began))
        writer.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return answers


async def _read_answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length:")[2].split("\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(" ")[1])
