"""Back-pressure: whether the queues have room for more jobs, counted in database or Redis."""

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from penstock.errors import ServiceError
from penstock.queue.items import ACTIVE_STATUSES, WAITING_STATUSES
from penstock.queue.stats import count_items
from penstock.redis.client import call_with_timeout, mapped_errors, run_script
from penstock.redis.keys import Queue
from penstock.store.database import Tx

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)
# The key of the advisory lock: "penstock" in ASCII.
_LOCK = int.from_bytes(b"penstock", "big")


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much each queue may hold."""

    max_depth: int
    """Waiting jobs of all tenants."""
    tenant_max: int
    """Active jobs of one tenant."""


class LimitName(StrEnum):
    DEPTH = "total depth"
    TENANT = "tenant pending"


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no room; nothing was written."""

    queue: Queue
    limit_name: LimitName
    figure: int
    """How many jobs there are already."""
    limit: int
    retry_after_seconds: int = 5

    def __str__(self) -> str:
        return (
            f"{self.limit_name} of queue {self.queue} is {self.figure}, the limit is {self.limit}"
        )


@dataclass(frozen=True, slots=True)
class DatabaseIntakeGate:
    """Counts jobs in the database, one caller at a time until its transaction ends.

    Check it before anything else is written, so that no caller waits here while holding rows.
    """

    limits: QueueLimits

    def check(
        self, tx: Tx, queues: Collection[Queue], tenant_id: str, count: int
    ) -> Refusal | None:
        """The refusal when one of the queues has no room for so many more jobs."""
        if tx.is_postgres:
            # SQLite has one writer anyway.
            tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        limits = self.limits
        for queue in queues:
            waiting = count_items(tx, stage=queue.stage, statuses=WAITING_STATUSES).total()
            if waiting + count > limits.max_depth:
                return Refusal(queue, LimitName.DEPTH, waiting, limits.max_depth)
            own = count_items(tx, tenant_id=tenant_id, stage=queue.stage, statuses=ACTIVE_STATUSES)
            active = own.total()
            if active + count > limits.tenant_max:
                return Refusal(queue, LimitName.TENANT, active, limits.tenant_max)
        return None


@dataclass(frozen=True, slots=True)
class RedisReservation:
    """Room for jobs that are about to be written, counted in Redis until released or expired."""

    client: "Redis"
    queues: tuple[Queue, ...]
    member: str

    def release(self) -> None:
        """Call this once the jobs are written and mirrored, or never will be."""
        try:
            with mapped_errors(self.client):
                call_with_timeout(self.client, self._remove)
        except ServiceError as error:
            log.info("a reservation could not be released and will expire: %s", error)

    def _remove(self) -> None:
        with self.client.pipeline(transaction=True) as pipeline:
            for queue in self.queues:
                pipeline.zrem(f"{queue}:reserved", self.member)
            pipeline.execute()


@dataclass(frozen=True, slots=True)
class RedisIntakeGate:
    """Counts the jobs in the mirror and in reservations. `ServiceError` without Redis."""

    client: "Redis"
    limits: QueueLimits
    expiry_seconds: float = 30.0

    def reserve(
        self, queues: Collection[Queue], tenant_id: str, count: int
    ) -> RedisReservation | Refusal:
        token = uuid.uuid4().hex
        arguments: list[str | int] = [
            token,
            count,
            tenant_id,
            self.limits.max_depth,
            self.limits.tenant_max,
            repr(self.expiry_seconds),
            *queues,
        ]
        reserve = partial(run_script, self.client, "reserve", arguments)
        with mapped_errors(self.client):
            refusal = call_with_timeout(self.client, reserve)
        if not refusal:
            return RedisReservation(self.client, tuple(queues), f"{token} {count} {tenant_id}")
        queue, name, figure = refusal
        limits = self.limits
        limit = limits.max_depth if name == LimitName.DEPTH else limits.tenant_max
        return Refusal(Queue(queue), LimitName(name), figure, limit)
