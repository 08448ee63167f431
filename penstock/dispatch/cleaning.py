"""Clears away what is not ours, or nobody's any more, from under the names of the queues."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.dispatch.keys import Queue
from penstock.dispatch.payloads import is_payload
from penstock.dispatch.scripts import run_script

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

# So long is one step of a walk: some milliseconds for Redis.
_STEP = 500
_FIRST_CURSOR = "0"


def drop_other_kinds(client: "Redis") -> int:
    dropped: list[str] = run_script(client, "kinds", list(Queue))
    for key in dropped:
        log.warning("%s in Redis held a value of another kind: it is built anew", key)
    return len(dropped)


def drop_stale_owners(client: "Redis") -> tuple[int, Mapping[Queue, Collection[str]]]:
    """How many keys of nodes named no job of theirs; and the tenants that have a counter."""
    cursor, dropped, odd = None, 0, 0
    tenants: dict[Queue, set[str]] = defaultdict(set)
    while cursor != _FIRST_CURSOR:
        cursor, stale, other_kinds, counters = run_script(
            client, "owners", [cursor or _FIRST_CURSOR, _STEP, *Queue]
        )
        dropped, odd = dropped + stale, odd + other_kinds
        for queue, tenant in zip(counters[::2], counters[1::2], strict=True):
            tenants[Queue(queue)].add(tenant)
    if odd:
        log.warning("%d keys *:pending:* in Redis held values of another kind: built anew", odd)
    return dropped + odd, tenants


def tidy_jobs(client: "Redis", queue: Queue) -> tuple[int, int]:
    """How many fields of its jobs were not ours, and how many nodes did not name their job."""
    cursor, dropped, named = None, 0, 0
    while cursor != _FIRST_CURSOR:
        cursor, foreign, unnamed = run_script(
            client, "entries", [queue, cursor or _FIRST_CURSOR, _STEP]
        )
        dropped, named = dropped + foreign, named + unnamed
    warn_of_foreign(f"{queue}:jobs", dropped)
    return dropped, named


def drop_foreign_dead(client: "Redis", queue: Queue) -> int:
    key = f"{queue}:dlq"
    dead = {str(text) for text in client.lrange(key, 0, -1)}
    count = sum([int(client.lrem(key, 0, text)) for text in dead if not is_payload(text)])
    warn_of_foreign(key, count)
    return count


def warn_of_foreign(key: str, count: int) -> None:
    if count:
        log.warning("%s in Redis held %d entries that stand for no job: dropped", key, count)
