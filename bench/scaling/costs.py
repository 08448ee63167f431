"""What one document costs each part, and what a run costs that brings none."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.pipeline import Target
from bench.scaling.footprint import read_footprint, table_bytes_per_document
from bench.scaling.ingesting import ingest, serving
from bench.scaling.installation import Installation, Process
from bench.scaling.processes import Family, read_cpu, spent_between

FEW, MANY = 20, 1_000
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


def tell(costs: Costs) -> list[Target]:
    """Figures without targets."""
    rows = [
        Target(f"CPU of {name}", "", _told(costs, f"{CPU}{name}", 1_000, "ms"), True)
        for name in (WORKER, *_SERVERS)
    ]
    rows += [
        Target(what, "", _told(costs, name, 1, unit), True)
        for what, name, unit in (
            ("Postgres, data and indexes", "Postgres: bytes", "bytes"),
            ("  of it index of vectors", "Postgres: bytes of index hnsw", "bytes"),
            ("  written ahead (WAL)", "Postgres: bytes of WAL", "bytes"),
            ("  transactions", "Postgres: transactions", ""),
            ("Prefect's Postgres", "Prefect's Postgres: bytes", "bytes"),
            ("  written ahead (WAL)", "Prefect's Postgres: bytes of WAL", "bytes"),
            ("Redis, memory", "Redis: bytes", "bytes"),
            ("  commands, those in scripts too", "Redis: commands", ""),
            ("  keys", "Redis: keys", ""),
            ("raw store", "raw store: bytes", "bytes"),
            ("models, asked", "models: prompt tokens", "tokens"),
            ("  answered", "models: completion tokens", "tokens"),
        )
    ]
    dollars = 1_000 * costs.per_document("models: dollars")
    rows.append(Target("  price of 1,000 documents", "", f"${dollars:.3f}", True))
    told = f"{costs.many.connections}, of {costs.most_connections} that Postgres allows"
    return [*rows, Target("connections of one flow run to Postgres", "", told, True)]


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


def _told(costs: Costs, name: str, scale: float, unit: str) -> str:
    each, run = scale * costs.per_document(name), scale * costs.per_run(name)
    return f"{each:,.2f} {unit} a document + {run:,.0f} a run"


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
