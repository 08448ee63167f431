"""Mirrors status changes of work items in Redis, which wakes waiting workers."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.queue.items import ItemStatus, StatusChange
from penstock.redis.client import OpenConnections, RedisBreaker, call_with_timeout, run_script
from penstock.redis.keys import WAKE_CHANNEL, Queue, add_failure, write_payload
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, work_items

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import PubSub


log = logging.getLogger(__name__)
# Jobs or keys of one script call, so that none blocks Redis for more than some milliseconds.
BATCH = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
NEVER = "0"
_POLL_SECONDS = 0.2
_STOP_SECONDS = 0.8
# A connection may die without an error, so it is replaced now and then.
_RENEW_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class QueuePosition(StrEnum):
    """Where the mirror keeps a job."""

    QUEUE = "queue"
    RETRY = "retry"
    CLAIMED = "claimed"
    DEAD = "dead"
    ENDED = "ended"


_PLACES = {
    ItemStatus.PENDING: QueuePosition.QUEUE,
    ItemStatus.RETRY_PENDING: QueuePosition.RETRY,
    ItemStatus.PROCESSING: QueuePosition.CLAIMED,
    ItemStatus.FAILED: QueuePosition.DEAD,
    ItemStatus.COMPLETE: QueuePosition.ENDED,
    ItemStatus.CANCELLED: QueuePosition.ENDED,
}


class RedisJob(NamedTuple):
    """A job, in the order in which the scripts read its fields."""

    queue: Queue
    job_id: int
    place: QueuePosition
    version: str
    run_at: str
    node_id: str
    tenant_id: str
    payload: str


def job_of_change(change: StatusChange) -> RedisJob:
    item = change.item
    owner = (item.id, item.node_id, item.tenant_id)
    described = (*owner, item.priority, item.attempts, item.enqueued_at)
    job = _make_job(item.stage, change.status, change.at, change.run_at or change.at, *described)
    if job.place is not QueuePosition.DEAD:
        return job
    return job._replace(payload=add_failure(job.payload, change.at, change.fault))


def read_active_jobs(tx: Tx) -> dict[Queue, dict[int, RedisJob]]:
    """All active jobs in the database, by queue and id."""
    c = work_items.c
    described = (c.id, c.node_id, c.tenant_id, c.priority, c.attempts, c.created_at)
    query = sa.select(c.stage, c.status, c.updated_at, c.run_at, *described)
    jobs: dict[Queue, dict[int, RedisJob]] = {queue: {} for queue in Queue}
    for row in tx.execute(query.where(ACTIVE_ITEM)):
        job = _make_job(*row)
        jobs[job.queue][job.job_id] = job
    return jobs


def _make_job(
    stage: str, status: str, changed_at: datetime, run_at: datetime, *described: Any
) -> RedisJob:
    """The job; `described` is what its payload says of it, as `write_payload` takes it."""
    job_id, node_id, tenant_id, *_ = described
    place = _PLACES[ItemStatus(status)]
    score = NEVER
    if place is QueuePosition.RETRY:
        seconds, microseconds = divmod((run_at - _EPOCH) // _MICROSECOND, 1_000_000)
        score = f"{seconds}.{microseconds:06d}"
    payload = write_payload(*described)
    queue, version = Queue.of(Stage(stage)), write_version(changed_at)
    return RedisJob(queue, job_id, place, version, score, node_id, tenant_id, payload)


def run_for_jobs(
    client: "Redis", script: str, jobs: Sequence[RedisJob], *first: str | int
) -> list[Any]:
    """What the script returned for each batch of jobs; `first` are arguments before the jobs."""
    results = []
    for start in range(0, len(jobs), BATCH):
        fields = [field for job in jobs[start : start + BATCH] for field in job]
        results.append(run_script(client, script, [*first, *fields]))
    return results


class Group(NamedTuple):
    """Jobs that changed alike, of which Redis knows the rest."""

    queue: Queue
    place: QueuePosition
    version: str
    job_ids: list[int]


def group_changes(changes: Sequence[StatusChange]) -> tuple[list[Group], list[RedisJob]]:
    """Claimed and ended jobs in groups, and all others whole: those that Redis cannot know yet,
    those that are dead, and those that changed more than once."""
    times = Counter(change.item.id for change in changes)
    groups: dict[tuple[Stage, QueuePosition, datetime], list[int]] = {}
    others: list[RedisJob] = []
    for change in changes:
        item, place = change.item, _PLACES[change.status]
        known = times[item.id] == 1 and item.enqueued_at != change.at
        if known and place in (QueuePosition.CLAIMED, QueuePosition.ENDED):
            groups.setdefault((item.stage, place, change.at), []).append(item.id)
        else:
            others.append(job_of_change(change))
    return [
        Group(Queue.of(stage), place, write_version(at), numbers[first : first + BATCH])
        for (stage, place, at), numbers in groups.items()
        for first in range(0, len(numbers), BATCH)
    ], others


def write_version(at: datetime) -> str:
    """Microseconds in a fixed number of digits, so that they compare as text."""
    return f"{(at - _EPOCH) // _MICROSECOND:016d}"


class RedisMirror:
    """Applies committed changes to Redis. It never raises, and never takes longer than the
    client's timeout. Changes that Redis missed are left to the reconciler."""

    def __init__(self, client: "Redis", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._connections = OpenConnections(client)
        self._breaker = RedisBreaker(
            client,
            "until it can, workers look for work by themselves and the queues in Redis stand still",
            clock,
        )

    def apply(self, changes: Sequence[StatusChange]) -> None:
        if not changes or not self._breaker.allows_call():
            return
        try:
            dropped = self._apply(changes)
        except Exception as error:
            # The changes are committed: an error here must not fail the caller.
            self._breaker.failed(error)
            return
        self._breaker.succeeded()
        for key in dropped:
            log.warning("%s in Redis had another type: it was removed", key)

    def _apply(self, changes: Sequence[StatusChange]) -> list[str]:
        """The keys that had another type."""
        dropped, unknown = self._call(*group_changes(changes))
        if unknown:
            missing = {int(number) for number in unknown}
            again = [job_of_change(change) for change in changes if change.item.id in missing]
            dropped += self._call([], again)[0]
        return dropped

    def _call(self, groups: Sequence[Group], jobs: Sequence[RedisJob]) -> list[list[str]]:
        """The keys that had another type, and the ids in groups that are not known."""
        calls = [*_arguments_of_calls(groups, jobs)]
        if len(calls) == 1 and (found := self._connections.run_script("apply", calls[0])):
            return [*found]
        lists = call_with_timeout(self._client, partial(self._call_all, calls))
        # Not in the thread of the call, which may come to it when its caller has long given up and
        # the client is closed.
        self._connections.keep_one()
        return lists

    def _call_all(self, calls: Sequence[Sequence[str | int]]) -> list[list[str]]:
        found = [run_script(self._client, "apply", arguments) for arguments in calls]
        return [[*chain(*lists)] for lists in zip(*found, strict=True)]


def _arguments_of_calls(
    groups: Sequence[Group], jobs: Sequence[RedisJob]
) -> Iterator[list[str | int]]:
    for number in range(max(len(groups), -(-len(jobs) // BATCH))):
        some = groups[number : number + 1]
        arguments: list[str | int] = [len(some)]
        for queue, place, version, ids in some:
            arguments += [queue, place, version, len(ids), *ids]
        for job in jobs[number * BATCH : (number + 1) * BATCH]:
            arguments += job
        yield arguments


class Waker:
    """A thread that calls back for every wake-up, and whenever one may have been missed.

    The callback should only set an event: it is called in this thread, possibly often.
    """

    def __init__(self, client: "Redis", callback: Callable[[], None]) -> None:
        self._client = client
        self._callback = callback
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._breaker = RedisBreaker(client, "until it can, workers look for work by themselves")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-waker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No callback starts after this. A thread that still waits for Redis ends by itself."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._client.pubsub() as subscription:  # type: ignore[no-untyped-call]
                    self._listen(subscription)
            except Exception as error:
                # Without its waker the worker would sleep for ever.
                self._breaker.failed(error)
                self._stopping.wait(self._pause_seconds)
                self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _listen(self, subscription: "PubSub") -> None:
        renew_at = time.monotonic() + _RENEW_SECONDS
        subscription.subscribe(WAKE_CHANNEL)
        while not self._stopping.is_set() and time.monotonic() < renew_at:
            message = subscription.get_message(timeout=_POLL_SECONDS)
            if message is not None:
                self._receive(message["type"])

    def _receive(self, kind: str) -> None:
        if kind == "subscribe":
            self._breaker.succeeded()
            self._pause_seconds = _FIRST_PAUSE_SECONDS
        if self._stopping.is_set():
            return
        try:
            self._callback()
        except Exception:
            log.exception("the callback of a wake-up has failed")
