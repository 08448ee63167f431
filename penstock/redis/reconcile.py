"""Makes the mirror in Redis match the database again."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.redis.client import copy_client, mapped_errors, read_timeout, run_script, try_lock
from penstock.redis.keys import RECONCILE_LOCK, Queue, is_payload
from penstock.redis.mirror import (
    BATCH,
    NEVER,
    QueuePosition,
    RedisJob,
    read_active_jobs,
    run_for_jobs,
    write_version,
)
from penstock.store.database import Database

if TYPE_CHECKING:
    from redis import Redis


log = logging.getLogger(__name__)
_LOCK_SECONDS = 120
# How long Redis remembers ended jobs, so that late news of them changes nothing.
_ENDED_KEPT = timedelta(minutes=10)
_FIRST_CURSOR = "0"
_DEPTHS = ("queue", "retry", "dlq")
# A rebuild of some hundred thousand jobs takes more than an ordinary call.
_TIMEOUT_SECONDS = 30.0
_ENTRY = re.compile(
    r"(\d{16}) (\d{19}) (\d{16}) (\w+) (\d+(?:\.\d+)?) (\S+) ([^\n]*)\n(.*)", re.ASCII | re.DOTALL
)

Jobs = Mapping[int, RedisJob]
"""A queue's active jobs in the database, by id."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one pass put right."""

    ran: bool = True
    """False: another one was running."""
    repaired: int = 0
    """Jobs that differed from the database."""
    foreign: int = 0
    """Entries and keys that stood for no job."""
    rebuilt: tuple[Queue, ...] = ()
    """Queues whose lists and counters were built anew."""

    def __bool__(self) -> bool:
        return bool(self.repaired or self.foreign or self.rebuilt)


def reconcile(database: Database, client: "Redis") -> Reconciled:
    """One pass over all queues; nothing is done while another one is running.

    Changes that Redis received after the database was read are newer and stay.
    """
    slow_client = copy_client(client, max(_TIMEOUT_SECONDS, read_timeout(client)))
    with (
        mapped_errors(client),
        slow_client,
        try_lock(slow_client, RECONCILE_LOCK, _LOCK_SECONDS) as held,
    ):
        return _reconcile(database, slow_client) if held else Reconciled(ran=False)


def _reconcile(database: Database, client: "Redis") -> Reconciled:
    dropped = run_script(client, "wrong_types", list(Queue))
    for key in dropped:
        log.warning("%s in Redis had another type: it is built anew", key)
    seconds, microseconds = client.time()
    since = f"{seconds:010d}{microseconds:06d}"
    with database.read() as tx:
        jobs = read_active_jobs(tx)
        oldest_ended = write_version(tx.now - _ENDED_KEPT)
    stale, tenants = drop_stale_node_keys(client)
    results = []
    for queue in Queue:
        counted = {*tenants[queue], *(job.tenant_id for job in jobs[queue].values())}
        results.append(_reconcile_queue(client, queue, jobs[queue], counted, since))
        client.zremrangebyscore(f"{queue}:ended", "-inf", oldest_ended)
    total = Reconciled(
        repaired=sum(result.repaired for result in results),
        foreign=len(dropped) + stale + sum(result.foreign for result in results),
        rebuilt=tuple(queue for result in results for queue in result.rebuilt),
    )
    if total:
        log.info("Redis follows the database again: %s", total)
    return total


def _reconcile_queue(
    client: "Redis", queue: Queue, jobs: Jobs, tenants: Collection[str], since: str
) -> Reconciled:
    """The jobs first, then the lists and counters from the jobs."""
    fields, repaired = clean_job_hash(client, queue)
    mirror = read_snapshot(client, queue, tenants)
    known = {entry.payload for entry in mirror.entries.values()}
    known |= {job.payload for job in jobs.values()}
    foreign = fields
    for name, payloads in (("queue", mirror.waiting), ("retry", mirror.retries)):
        count = sum(payload not in known for payload in payloads)
        warn_of_foreign(f"{queue}:{name}", count)
        foreign += count
    outdated = find_outdated_jobs(queue, mirror, jobs, since)
    written = sum(run_for_jobs(client, "repair", outdated, since))
    if written:
        # An ended job may have held its node's key in the place of the active one.
        repaired += written + clean_job_hash(client, queue)[1]
    rebuilt = written > 0 or not is_consistent(mirror)
    if rebuilt:
        run_script(client, "rebuild", [queue, *tenants])
    return Reconciled(
        repaired=repaired,
        foreign=foreign + drop_foreign_dead_letters(client, queue),
        rebuilt=(queue,) if rebuilt else (),
    )


class MirroredJob(NamedTuple):
    """An active job, as Redis has it."""

    version: str
    job: str
    touched: str
    place: str
    run_at: str
    node_id: str
    payload: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class MirrorSnapshot:
    """One queue, as Redis has it."""

    entries: dict[int, MirroredJob]
    """By job id."""
    waiting: list[str]
    retries: dict[str, float]
    """By payload, when each is due."""
    counters: dict[str, str | None]
    """By tenant, unparsed."""


def read_snapshot(client: "Redis", queue: Queue, tenants: Collection[str]) -> MirrorSnapshot:
    """All in one transaction, since every change of a job changes several keys."""
    with client.pipeline(transaction=True) as pipeline:
        pipeline.hvals(f"{queue}:jobs")
        pipeline.lrange(f"{queue}:queue", 0, -1)
        pipeline.zrange(f"{queue}:retry", 0, -1, withscores=True)
        # Also that of no tenant, since MGET needs one key at least.
        pipeline.mget([queue.tenant_key(name) for name in ("", *tenants)])
        entries, waiting, retries, counts = pipeline.execute()
    scores = {member: float(score) for member, score in retries}
    counters = dict(zip(tenants, counts[1:], strict=True))
    matches = map(_ENTRY.fullmatch, entries)
    jobs = [MirroredJob._make(match.groups()) for match in matches if match]
    return MirrorSnapshot({int(job.job): job for job in jobs}, waiting, scores, counters)


def find_outdated_jobs(
    queue: Queue, mirror: MirrorSnapshot, jobs: Jobs, since: str
) -> list[RedisJob]:
    """As they should be; the ended ones first. Entries written after `since` are newer and stay."""
    old = {job_id: entry for job_id, entry in mirror.entries.items() if entry.touched < since}
    ended = []
    for job_id in old.keys() - jobs.keys():
        version, owner = old[job_id].version, (old[job_id].node_id, old[job_id].tenant_id)
        ended.append(RedisJob(queue, job_id, QueuePosition.ENDED, version, NEVER, *owner, ""))
    missing = [job for job_id, job in jobs.items() if job_id not in mirror.entries]
    compared = attrgetter("place", "payload", "run_at", "tenant_id", "node_id")
    same = old.keys() & jobs.keys()
    changed = [jobs[one] for one in same if compared(old[one]) != compared(jobs[one])]
    return ended + missing + changed


def is_consistent(mirror: MirrorSnapshot) -> bool:
    """Whether the lists and counters match the jobs."""
    entries = mirror.entries.values()
    waiting = {entry.payload for entry in entries if entry.place == QueuePosition.QUEUE}
    retries = {e.payload: float(e.run_at) for e in entries if e.place == QueuePosition.RETRY}
    numbers = Counter(entry.tenant_id for entry in entries)
    return (
        len(mirror.waiting) == len(waiting)
        and waiting.issuperset(mirror.waiting)
        and mirror.retries == retries
        and all(
            text == (str(numbers[tenant]) if tenant in numbers else None)
            for tenant, text in mirror.counters.items()
        )
    )


def _scan(client: "Redis", script: str, *arguments: str) -> Iterator[list[Any]]:
    """What each step of a scanning script returned, without the cursor."""
    cursor = None
    while cursor != _FIRST_CURSOR:
        step = run_script(client, script, [cursor or _FIRST_CURSOR, BATCH, *arguments])
        cursor, *found = step
        yield found


def drop_stale_node_keys(client: "Redis") -> tuple[int, Mapping[Queue, Collection[str]]]:
    """How many node keys named no job of their node; and the tenants that have a counter."""
    dropped, wrong_types = 0, 0
    tenants: dict[Queue, set[str]] = defaultdict(set)
    for stale, wrong, counters in _scan(client, "node_keys", *Queue):
        dropped, wrong_types = dropped + stale, wrong_types + wrong
        for queue, tenant in zip(counters[::2], counters[1::2], strict=True):
            tenants[Queue(queue)].add(tenant)
    if wrong_types:
        log.warning("%d keys *:pending:* in Redis had another type: built anew", wrong_types)
    return dropped + wrong_types, tenants


def clean_job_hash(client: "Redis", queue: Queue) -> tuple[int, int]:
    """How many fields of the hash were no jobs, and how many node keys did not name their job."""
    dropped, named = map(sum, zip(*_scan(client, "job_hash", queue), strict=True))
    warn_of_foreign(f"{queue}:jobs", dropped)
    return dropped, named


def drop_foreign_dead_letters(client: "Redis", queue: Queue) -> int:
    key = f"{queue}:dlq"
    dead = {str(text) for text in client.lrange(key, 0, -1)}
    count = sum([int(client.lrem(key, 0, text)) for text in dead if not is_payload(text)])
    warn_of_foreign(key, count)
    return count


def warn_of_foreign(key: str, count: int) -> None:
    if count:
        log.warning("%s in Redis held %d entries that stand for no job: dropped", key, count)


def queue_depths(client: "Redis") -> dict[str, dict[str, int]]:
    """For every queue: how many jobs wait, wait for a retry, and are dead letters."""
    with mapped_errors(client), client.pipeline(transaction=True) as pipeline:
        for queue in Queue:
            pipeline.llen(f"{queue}:queue")
            pipeline.zcard(f"{queue}:retry")
            pipeline.llen(f"{queue}:dlq")
        answers = pipeline.execute(raise_on_error=False)
    # An error means a value of another type, which holds no job.
    sizes = (answer if isinstance(answer, int) else 0 for answer in answers)
    return {queue.value: {name: next(sizes) for name in _DEPTHS} for queue in Queue}
