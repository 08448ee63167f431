"""`POST /nodes` under load: so many clients at once, each sending one node after the other.

Beside it the same endpoint written bare, on the same server program and database.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from bench.figures import Figure
from bench.queue_contenders import OURS, Kind, Store
from bench.queue_servers import Servers
from penstock.local.processes import answers_ok, free_port
from penstock.store.database import Database
from penstock.store.schema import nodes, work_items

ROOT = Path(__file__).parents[1]
CLIENTS = 100
WARM_UP = 2 * CLIENTS
OVER_BARE = 2.0
OURS_ALONE, WITH_REDIS, BARE = "POST /nodes", "POST /nodes with Redis", "POST /nodes, bare"
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
    nodes_before, items_before = _count_stored(dsn)
    began = time.perf_counter()
    answers = asyncio.run(_send_all(url, requests))
    seconds = time.perf_counter() - began
    good = [took for status, took in answers if status == 200]
    stored_nodes, stored_items = _count_stored(dsn)
    refused = len(answers) - len(good)
    return Intake(
        len(good),
        refused,
        seconds,
        good,
        stored_nodes - nodes_before,
        stored_items - items_before,
    )


def _count_stored(dsn: str) -> tuple[int, int]:
    """Nodes, and nodes that have a work item."""
    with closing(Database(dsn)) as database, database.read() as tx:
        stored_nodes = tx.execute(sa.select(sa.func.count()).select_from(nodes)).scalar_one()
        distinct = sa.select(sa.func.count(sa.distinct(work_items.c.node_id)))
        return stored_nodes, tx.execute(distinct).scalar_one()


def measure_intake(servers: Servers, *, rounds: int, requests: int) -> list[Figure]:
    """Each way of serving once in each round, on an empty database."""
    contender = next(one for one in OURS if one.kind is Kind.OURS and one.store is Store.POSTGRES)
    found: dict[str, list[Intake]] = {name: [] for name in (OURS_ALONE, WITH_REDIS, BARE)}
    for _ in range(rounds):
        for name, taken in found.items():
            redis_url = servers.redis_url if name == WITH_REDIS else None
            with (
                tempfile.TemporaryDirectory(prefix="penstock-intake-") as home,
                servers.open_store(contender) as dsn,
                serving(dsn, redis_url, Path(home), bare=name == BARE) as address,
            ):
                # What is built at the first request is not of interest.
                load(address, dsn, WARM_UP)
                taken.append(load(address, dsn, requests))
    return [
        _over_bare("intake_over_bare", OURS_ALONE, found, wanted=OVER_BARE),
        _over_bare("intake_with_redis_over_bare", WITH_REDIS, found),
        *[_latency(name, taken) for name, taken in found.items()],
        _lost([one for name in (OURS_ALONE, WITH_REDIS) for one in found[name]]),
    ]


def _over_bare(
    key: str, name: str, found: Mapping[str, Sequence[Intake]], wanted: float | None = None
) -> Figure:
    ours, bare = ([one.per_second for one in found[which]] for which in (name, BARE))
    what = f"{name}, {CLIENTS} clients, over the endpoint written bare"
    return Figure.ratio(f"queue.{key}", what, ours, bare, wanted=wanted, unit="requests/s")


def _latency(name: str, taken: Sequence[Intake]) -> Figure:
    p50, p99 = (
        statistics.median(1000 * one.quantile(share) for one in taken) for share in (0.5, 0.99)
    )
    key = name.lower().replace("post /nodes", "intake").replace(", ", "_").replace(" ", "_")
    what = f"{name}, {CLIENTS} clients, p99"
    return Figure(f"queue.{key}_p99", what, p99, unit="ms", detail=f"p50 {p50:.0f} ms; medians")


def _lost(taken: Sequence[Intake]) -> Figure:
    lost = sum(one.lost + one.refused for one in taken)
    accepted = sum(one.accepted for one in taken)
    return Figure(
        "queue.intake_lost",
        "accepted nodes that were lost, or refused ones",
        lost,
        unit="",
        wanted=0,
        lower_is_better=True,
        detail=f"of {accepted:,}",
    )


@contextmanager
def serving(dsn: str, redis_url: str | None, home: Path, *, bare: bool = False) -> Iterator[str]:
    """`penstock serve` with limits that the load stays below, or the bare endpoint; it ends with
    the block."""
    port = free_port()
    environment = os.environ | {
        "PENSTOCK_DSN": dsn,
        "PENSTOCK_HOME": str(home),
        "EMBEDDING_QUEUE_MAX_DEPTH": "10000000",
        "EMBEDDING_TENANT_MAX_PENDING": "10000000",
    }
    if redis_url is not None:
        environment["REDIS_URL"] = redis_url
    ours = ["entrypoints.cli.main", "serve", "--port", str(port)]
    served = ["bench.queue_intake_bare", str(port)] if bare else ours
    with (home / "serve.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *served], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
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
