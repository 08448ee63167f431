"""Requests that one ingest makes to Prefect's API, by its server's access log; events apart."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from bench.figures import Figure
from bench.scaling.ingesting import ingest, read_moments, serving
from bench.scaling.installation import Installation

DOCUMENTS = 1_000
WANTED = 200
_REQUEST = re.compile(r'"(?P<method>[A-Z]+) /api(?P<path>[^ ?"]*)[^"]*" (?:\d{3})')
_SOCKET = re.compile(r'"WebSocket /api(?P<path>[^ ?"]*)[^"]*" \[accepted\]')
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
# Requests of idle workers: their number grows with time, not with documents.
_POLLING = ("/work_pools/", "/work_queues/")


@dataclass(frozen=True, slots=True)
class Called:
    """What came to the server from the command to the end of the flow run."""

    documents: int
    seconds: float
    requests: Mapping[str, int]
    """By method and route."""
    sockets: Mapping[str, int]
    events: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.requests.values())

    @property
    def polls(self) -> int:
        return sum(n for route, n in self.requests.items() if any(p in route for p in _POLLING))

    @property
    def per_thousand(self) -> float:
        return 1_000 * self.total / self.documents


def count_calls(place: Installation, documents: int) -> Called:
    """One ingest by a process worker with Prefect's own settings."""
    with serving(place) as worker:
        events, log_size = _count_events(place), place.access_log.stat().st_size
        ingested = ingest(place, worker, documents)
        with place.access_log.open("rb") as log:
            log.seek(log_size)
            lines = log.read().decode(errors="replace").splitlines()
        later = _count_events(place)
    at = read_moments(place, ingested.run_id)
    seconds = (at.finished_at - at.opened_at).total_seconds()
    return Called(documents, seconds, requests_of(lines), sockets_of(lines), later - events)


def judge(called: Called) -> list[Figure]:
    own = called.total - called.polls
    detail = f"{own} by command and flow run, {called.polls} by the worker"
    events = sum(called.events.values())
    return [
        Figure(
            "scale.prefect_calls",
            "Prefect API calls per 1,000 documents",
            called.per_thousand,
            "calls",
            wanted=WANTED,
            lower_is_better=True,
            detail=detail,
        ),
        Figure("scale.prefect_events", "events meanwhile, over websockets", events, "events"),
    ]


def describe(called: Called) -> list[str]:
    lines = [f"{called.documents} documents in {called.seconds:.1f} s of flow run; requests:"]
    for counts in (called.requests, called.sockets, called.events):
        ordered = sorted(counts.items(), key=lambda pair: -pair[1])
        lines += [f"  {count:5}  {what}" for what, count in ordered]
        lines.append("  --")
    return lines


def requests_of(lines: list[str]) -> Counter[str]:
    found = (_REQUEST.search(line) for line in lines)
    return Counter(f"{one['method']} {_ID.sub('{id}', one['path'])}" for one in found if one)


def sockets_of(lines: list[str]) -> Counter[str]:
    found = (_SOCKET.search(line) for line in lines)
    return Counter(f"websocket {_ID.sub('{id}', one['path'])}" for one in found if one)


def _count_events(place: Installation) -> Counter[str]:
    rows = place.ask_prefect_store("SELECT event, count(*) FROM events GROUP BY event")
    return Counter({f"event {event}": count for event, count in rows})
