"""Who takes part in the queue bench, and with how many jobs."""

from dataclasses import dataclass
from enum import StrEnum

# What a worker has on two cores: one more than there are parsers.
WORKER_LANES = 3
# With the mirror of the queue in Redis.
MIRRORED = "mirrored"


class Store(StrEnum):
    """Where jobs are kept. Redis and Postgres are servers, shared by all."""

    REDIS = "Redis"
    POSTGRES = "Postgres"
    SQLITE = "SQLite"


class Kind(StrEnum):
    OURS = "penstock"
    FLOOR = "bare SQL"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Contender:
    """One queue on one store."""

    name: str
    kind: Kind
    store: Store
    module: str
    jobs: int
    """To process, each time: about as many as take it a second. A longer queue is no easier."""
    way: str = ""
    requirements: str = ""
    """The file that lists what a peer needs."""

    @property
    def on_server(self) -> bool:
        return self.store is not Store.SQLITE


_MOST = "requirements.txt"
_ARQ = "requirements-arq.txt"
_HUEY = "bench.peers.huey"


def _own(store: Store) -> list[Contender]:
    module, mirror = "bench.queue_penstock", f"penstock on {store}, Redis mirror"
    return [
        Contender(f"penstock on {store}", Kind.OURS, store, module, 5_000),
        Contender(mirror, Kind.OURS, store, module, 2_000, MIRRORED),
        Contender(f"bare SQL on {store}", Kind.FLOOR, store, "bench.queue_floor", 5_000),
    ]


def _peer(
    name: str, store: Store, module: str, jobs: int, way: str = "", requirements: str = _MOST
) -> Contender:
    return Contender(name, Kind.PEER, store, module, jobs, way, requirements)


OURS = [*_own(Store.POSTGRES), *_own(Store.SQLITE)]
PEERS = [
    _peer("rq", Store.REDIS, "bench.peers.rq", 300),
    _peer("arq", Store.REDIS, "bench.peers.arq", 2_000, requirements=_ARQ),
    _peer("procrastinate", Store.POSTGRES, "bench.peers.procrastinate", 600),
    _peer("huey on Redis", Store.REDIS, _HUEY, 4_000, "redis"),
    _peer("huey on Redis, greenlets", Store.REDIS, f"{_HUEY}_greenlets", 4_000, "greenlet"),
    _peer("huey on Postgres", Store.POSTGRES, _HUEY, 2_000, "postgres"),
    _peer("huey on SQLite", Store.SQLITE, _HUEY, 6_000, "sqlite"),
]
