"""Intake for programs: check for room, then write nodes and work items at once."""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Self

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import ConfigurationError, Interrupted, Overloaded, ServiceError, UsageError
from penstock.intake.nodes import (
    Accepted,
    IntakeRules,
    NewNode,
    earlier_answer,
    first_stages,
    keep_answer,
    record_nodes,
)
from penstock.queue.heartbeat import new_owner
from penstock.queue.items import Claim
from penstock.queue.queue import WorkQueue
from penstock.redis.backpressure import DatabaseIntakeGate, RedisIntakeGate, Refusal
from penstock.redis.keys import Queue
from penstock.store.database import Database
from penstock.store.schema import nodes, work_items

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intake:
    """Accepts nodes, or refuses all of them before anything is written."""

    database: Database
    queue: WorkQueue
    rules: IntakeRules
    database_gate: DatabaseIntakeGate
    redis_gate: RedisIntakeGate | None
    requires_redis: bool

    def accept(
        self, tenant_id: str, new: Sequence[NewNode], *, key: str | None = None
    ) -> list[Accepted]:
        """Record these nodes with their work; a request repeated with its key is answered again.

        Raises Overloaded when there is no room for them, and ServiceError when the Redis that has
        to count them does not answer.
        """
        digest = "" if key is None else _digest(new)
        if key is not None:
            with self.database.read() as tx:
                known = earlier_answer(tx, tenant_id, key, digest)
            if known is not None:
                return known
        stages = {stage for node in new for stage in first_stages(node, self.rules.order_of(node))}
        queues = [Queue.of(stage) for stage in stages]
        with self._room(queues, tenant_id, len(new)) as reserved:
            return self._write(tenant_id, new, key, digest, () if reserved else queues)

    @contextmanager
    def _room(self, queues: Sequence[Queue], tenant_id: str, count: int) -> Iterator[bool]:
        """Room reserved in Redis while the block writes; False when the database has to count."""
        if self.redis_gate is None:
            yield False
            return
        try:
            room = self.redis_gate.reserve(queues, tenant_id, count)
        except ServiceError:
            if self.requires_redis:
                raise
            yield False
            return
        if isinstance(room, Refusal):
            raise _overloaded(room, count)
        try:
            yield True
        finally:
            room.release()

    def _write(
        self,
        tenant_id: str,
        new: Sequence[NewNode],
        key: str | None,
        digest: str,
        uncounted: Sequence[Queue],
    ) -> list[Accepted]:
        try:
            with self.database.write() as tx:
                if uncounted:
                    refusal = self.database_gate.check(tx, uncounted, tenant_id, len(new))
                    if refusal is not None:
                        raise _overloaded(refusal, len(new))
                accepted = record_nodes(tx, self.queue, self.rules, tenant_id, new)
                if key is not None and not keep_answer(tx, tenant_id, key, digest, accepted):
                    raise _SameKeyError
                return accepted
        except _SameKeyError:
            # The same request was made in the same moment: that one is recorded, this one undone.
            with self.database.read() as tx:
                return earlier_answer(tx, tenant_id, str(key), digest) or []


class _SameKeyError(Exception):
    pass


def _overloaded(refusal: Refusal, count: int) -> Overloaded:
    message = f"{refusal}: there is no room for {count} more"
    return Overloaded(message, refusal.retry_after_seconds)


def _digest(new: Sequence[NewNode]) -> str:
    described: list[dict[str, Any]] = [asdict(node) for node in new]
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


MAX_GROUP = 200


@dataclass(frozen=True, slots=True)
class _Arrival:
    tenant_id: str
    node: NewNode
    key: str | None
    accepted: "Future[Accepted]" = field(default_factory=Future)


class GroupCommit:
    """A thread that accepts nodes that arrive at the same time in one transaction.

    A node never waits for others: while one transaction is under way, new ones collect for the
    next. Use it as a context manager.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._arrivals: SimpleQueue[_Arrival | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="penstock-intake", daemon=True)

    def submit(self, tenant_id: str, node: NewNode, key: str | None = None) -> "Future[Accepted]":
        """Have a node accepted; the future is done when it is committed or refused."""
        arrival = _Arrival(tenant_id, node, key)
        self._arrivals.put(arrival)
        return arrival.accepted

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """What was submitted before is still accepted."""
        self._arrivals.put(None)
        self._thread.join()

    def _work(self) -> None:
        open_ = True
        while open_:
            gathered, open_ = self._gather()
            # A caller that has gone has cancelled its future; from here on none can be cancelled.
            waiting = [one for one in gathered if one.accepted.set_running_or_notify_cancel()]
            for group in _by_tenant(waiting):
                self._accept(group)
        while not self._arrivals.empty():
            late = self._arrivals.get()
            if late is not None and late.accepted.set_running_or_notify_cancel():
                late.accepted.set_exception(Interrupted("the intake is closed; send it again"))

    def _gather(self) -> tuple[list[_Arrival], bool]:
        """All that has arrived, at least one; False with the last of it."""
        first = self._arrivals.get()
        gathered: list[_Arrival] = []
        while first is not None:
            gathered.append(first)
            if len(gathered) == MAX_GROUP or self._arrivals.empty():
                return gathered, True
            first = self._arrivals.get()
        return gathered, False

    def _accept(self, group: Sequence[_Arrival]) -> None:
        first = group[0]
        try:
            nodes = [arrival.node for arrival in group]
            accepted = self._intake.accept(first.tenant_id, nodes, key=first.key)
        except BaseException as error:
            if len(group) > 1 and isinstance(error, UsageError | Overloaded):
                # One of them may be invalid, or there is room for some of them only. After any
                # other error they may have been written, or each would meet the same one.
                for arrival in group:
                    self._accept([arrival])
            else:
                for arrival in group:
                    arrival.accepted.set_exception(error)
            return
        for arrival, one in zip(group, accepted, strict=True):
            arrival.accepted.set_result(one)


def _by_tenant(gathered: Sequence[_Arrival]) -> list[list[_Arrival]]:
    """Those of one tenant together; each with an idempotency key alone."""
    groups: dict[tuple[str, int], list[_Arrival]] = {}
    for arrival in gathered:
        alone = 0 if arrival.key is None else id(arrival)
        groups.setdefault((arrival.tenant_id, alone), []).append(arrival)
    return list(groups.values())


def embed_accepted(
    database: Database,
    queue: WorkQueue,
    process: Callable[[Claim], None],
    accepted: Sequence[Accepted],
) -> list[Accepted]:
    """Claim their embedding jobs and do them here. A job that another worker has claimed, that
    cannot be done here or has to be retried is left to the workers."""
    ids = [one.job_id for one in accepted if one.job_id is not None]
    tenant = sa.select(work_items.c.tenant_id).where(work_items.c.id.in_(ids)).limit(1)
    with database.write() as tx:
        claim = queue.claim(
            tx,
            new_owner(),
            stages=(Stage.EMBED,),
            limit=len(ids) or 1,
            tenant_id=tx.execute(tenant).scalar(),
            only=ids,
        )
    try:
        if claim:
            process(claim)
    except (ConfigurationError, Interrupted) as error:
        # The nodes are accepted: after an error, their sender would send them again.
        log.warning("embedding is left to the workers: %s", error)
    known = sa.and_(
        nodes.c.id.in_([one.id for one in accepted]), nodes.c.embedding_status.is_not(None)
    )
    with database.read() as tx:
        rows = tx.execute(sa.select(nodes.c.id, nodes.c.embedding_status).where(known))
        statuses = {row.id: row.embedding_status for row in rows}
    # A node of an earlier answer may have been deleted since.
    return [
        replace(one, embedding_status=statuses.get(one.id, one.embedding_status))
        for one in accepted
    ]
