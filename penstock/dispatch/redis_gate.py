"""The gate of several processes: they count in Redis, and reserve before they write."""

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.dispatch.connection import explained, read_timeout
from penstock.dispatch.gate import LimitName, Limits, Refusal
from penstock.dispatch.keys import Queue
from penstock.dispatch.patience import call_within
from penstock.dispatch.scripts import run_script
from penstock.errors import ServiceError

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RedisReservation:
    """Counted in Redis until it is settled, or expires."""

    client: "Redis"
    queues: tuple[Queue, ...]
    member: str

    def settle(self) -> None:
        try:
            with explained(self.client):
                call_within(read_timeout(self.client), self._remove)
        except ServiceError as error:
            log.info("a reservation could not be settled and will expire: %s", error)

    def _remove(self) -> None:
        with self.client.pipeline(transaction=True) as pipeline:
            for queue in self.queues:
                pipeline.zrem(f"{queue}:reserved", self.member)
            pipeline.execute()


@dataclass(frozen=True, slots=True)
class RedisGate:
    """Counts what the mirror holds and what others have reserved. `ServiceError` without Redis."""

    client: "Redis"
    limits: Limits
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
        ask = partial(run_script, self.client, "reserve", arguments)
        with explained(self.client):
            refusal = call_within(read_timeout(self.client), ask)
        if refusal:
            return self._read_refusal(*refusal)
        return RedisReservation(self.client, tuple(queues), f"{token} {count} {tenant_id}")

    def _read_refusal(self, queue: str, name: str, figure: int) -> Refusal:
        limit_name = LimitName(name)
        limits = {
            LimitName.DEPTH: self.limits.max_depth,
            LimitName.TENANT: self.limits.tenant_max,
        }
        return Refusal(Queue(queue), limit_name, figure, limits[limit_name])
