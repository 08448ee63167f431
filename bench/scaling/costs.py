"""What one document costs each part, and what a run costs that brings none."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.figures import Figure
from bench.scaling.footprint import read_footprint, table_bytes_per_document
from bench.scaling.ingesting import ingest, serving
from bench.scaling.installation import Installation, Process
from bench.scaling.processes import Family, read_cpu, spent_between

FEW = 20
LOOK_SECONDS = 0.5
CPU = "processor seconds of "
WORKER = "worker and flow run"
_SERVERS = ("Postgres", "Prefect server", "Prefect's Postgres", "Redis")
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = 'penstock' AND pid <> pg_backend_pid() AND client_port IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Weighed:
    """One ingest: how much of everything it used."""

    documents: int
    used: Mapping[str, float]
    connections: int
    """To Penstock's database, the most that were open at one time."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Two ingests of different sizes tell the cost of a document from the cost of a run."""

    few: Weighed
    many: Weighed
    most_connections: int
    tables: Mapping[str, float]
    """Of Penstock's database: bytes a document, with indexes."""

    def per_document(self, name: str) -> float:
        more = self.many.documents - self.few.documents
        return (self.many.used.get(name, 0) - self.few.used.get(name, 0)) / more

    def per_run(self, name: str) -> float:
        return self.few.used.get(name, 0) - self.few.documents * self.per_document(name)


def weigh(place: Installation, documents: int) -> Costs:
    """With Redis, and every other setting as it is by default."""
    with serving(place, REDIS_URL=place.redis_url) as worker:
        # The first one also makes the index of vectors, and loads what servers load once.
        _weigh_one(place, worker, FEW)
        few, many = (_weigh_one(place, worker, count) for count in (FEW, documents))
    most_connections = int(place.ask_store("SHOW max_connections")[0][0])
    return Costs(few, many, most_connections, table_bytes_per_document(place))


_TOLD = (
    ("postgres_bytes", "Postgres, data and indexes", "Postgres: bytes", "bytes"),
    ("vector_index_bytes", "  of it index of vectors", "Postgres: bytes of index hnsw", "bytes"),
    ("postgres_wal_bytes", "  written ahead (WAL)", "Postgres: bytes of WAL", "bytes"),
    ("postgres_transactions", "  transactions", "Postgres: transactions", "transactions"),
    ("prefect_bytes", "Prefect's Postgres", "Prefect's Postgres: bytes", "bytes"),
    ("prefect_wal_bytes", "  written ahead (WAL)", "Prefect's Postgres: bytes of WAL", "bytes"),
    ("redis_bytes", "Redis, memory", "Redis: bytes", "bytes"),
    ("redis_commands", "  commands, those in scripts too", "Redis: commands", "commands"),
    ("redis_keys", "  keys", "Redis: keys", "keys"),
    ("raw_bytes", "raw store", "raw store: bytes", "bytes"),
    ("prompt_tokens", "models, asked", "models: prompt tokens", "tokens"),
    ("completion_tokens", "  answered", "models: completion tokens", "tokens"),
)


def tell(costs: Costs) -> list[Figure]:
    """Figures a document, without targets; what a run costs besides stands in their detail."""
    figures = [
        _figure(costs, f"cpu_{_key(name)}", f"CPU of {name}", f"{CPU}{name}", "ms", 1_000)
        for name in (WORKER, *_SERVERS)
    ]
    figures += [_figure(costs, key, what, name, unit) for key, what, name, unit in _TOLD]
    dollars = 1_000 * costs.per_document("models: dollars")
    return [
        *figures,
        Figure("scale.cost.dollars", "models, price of 1,000 documents", dollars, "$"),
        Figure(
            "scale.cost.connections",
            "connections of one flow run to Postgres",
            costs.many.connections,
            "connections",
            detail=f"of {costs.most_connections} that Postgres allows",
        ),
    ]


def _figure(costs: Costs, key: str, what: str, name: str, unit: str, scale: float = 1.0) -> Figure:
    each, run = scale * costs.per_document(name), scale * costs.per_run(name)
    detail = f"a document; + {run:,.0f} {unit} a run"
    return Figure(f"scale.cost.{key}", what, each, unit, detail=detail)


def _key(name: str) -> str:
    return "_".join(re.findall(r"[a-z]+", name.lower()))


def describe(costs: Costs) -> list[str]:
    """Tables of Penstock's database, and rows in Prefect's."""
    lines = [
        f"  {size:9,.0f} bytes a document in table {table}"
        for table, size in sorted(costs.tables.items(), key=lambda pair: -pair[1])
        if size >= 50
    ]
    for name in sorted(costs.many.used):
        each, run = costs.per_document(name), costs.per_run(name)
        if "rows of" in name and (each >= 0.005 or run >= 1):
            lines.append(f"  {1_000 * each:9,.0f} per 1,000 documents + {run:,.0f} a run: {name}")
    return lines


def _weigh_one(place: Installation, worker: Process, documents: int) -> Weighed:
    families = {**place.servers, WORKER: Family(worker.pid)}
    footprint, cpu = read_footprint(place), read_cpu(families)
    with _watching_connections(place) as seen:
        ingest(place, worker, documents)
    spent = spent_between(cpu, read_cpu(families))
    used = read_footprint(place).since(footprint)
    used |= {f"{CPU}{name}": seconds for name, seconds in spent.families.items()}
    return Weighed(documents, used, seen.most - seen.before)


@dataclass
class _Connections:
    before: int
    most: int = 0
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def _watching_connections(place: Installation) -> Iterator[_Connections]:
    seen = _Connections(_count_connections(place))

    def watch() -> None:
        while not seen.over.wait(LOOK_SECONDS):
            seen.most = max(seen.most, _count_connections(place))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.over.set()
        thread.join()


def _count_connections(place: Installation) -> int:
    return int(place.ask_store(_CONNECTIONS)[0][0])
