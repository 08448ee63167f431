"""What Redis holds of a queue at one instant."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.dispatch.keys import Queue

if TYPE_CHECKING:
    from redis import Redis

_ENTRY = re.compile(
    r"(\d{16}) (\d{19}) (\d{16}) (\w+) (\d+(?:\.\d+)?) (\S+) ([^\n]*)\n(.*)", re.ASCII | re.DOTALL
)


class Entry(NamedTuple):
    """Where an active job stands, as Redis was told."""

    version: str
    job: str
    touched: str
    place: str
    run_at: str
    node_id: str
    payload: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class Mirror:
    """One queue, as Redis has it."""

    entries: dict[int, Entry]
    """By job."""
    waiting: list[str]
    retries: dict[str, float]
    """By payload, when it is due."""
    counters: dict[str, str | None]
    """By tenant, as they stand there."""


def read_mirror(client: "Redis", queue: Queue, tenants: Collection[str]) -> Mirror:
    """All at the same instant, since whoever moves a job changes all of them."""
    with client.pipeline(transaction=True) as pipeline:
        pipeline.hvals(f"{queue}:jobs")
        pipeline.lrange(f"{queue}:queue", 0, -1)
        pipeline.zrange(f"{queue}:retry", 0, -1, withscores=True)
        # Of no tenant too, since there must be one key at least.
        pipeline.mget([queue.tenant_key(name) for name in ("", *tenants)])
        entries, waiting, retries, counts = pipeline.execute()
    scores = {member: float(score) for member, score in retries}
    counters = dict(zip(tenants, counts[1:], strict=True))
    return Mirror(_read_entries(entries), waiting, scores, counters)


def _read_entries(texts: list[str]) -> dict[int, Entry]:
    matches = map(_ENTRY.fullmatch, texts)
    entries = (Entry._make(match.groups()) for match in matches if match)
    return {int(entry.job): entry for entry in entries}
