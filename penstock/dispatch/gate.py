"""Back-pressure: before jobs are accepted, a gate says whether there is room for them."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from penstock.dispatch.keys import Queue


@dataclass(frozen=True, slots=True)
class Limits:
    """How much each queue may hold."""

    max_depth: int
    """Jobs that wait, of all tenants."""
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
    """What there is already."""
    limit: int
    retry_after_seconds: int = 5

    def __str__(self) -> str:
        return (
            f"{self.limit_name} of queue {self.queue} is {self.figure}, the limit is {self.limit}"
        )


class Reservation(Protocol):
    """Room for jobs that are about to be written."""

    def settle(self) -> None:
        """Say that they were written and mirrored, or never will be."""


class Gate(Protocol):
    """Lets jobs in while there is room in all the queues they need; two callers never share it."""

    def reserve(
        self, queues: Collection[Queue], tenant_id: str, count: int
    ) -> Reservation | Refusal: ...


def judge(limits: Limits, queue: Queue, *, waiting: int, active: int, count: int) -> Refusal | None:
    """Why so many more may not come."""
    if waiting + count > limits.max_depth:
        return Refusal(queue, LimitName.DEPTH, waiting, limits.max_depth)
    if active + count > limits.tenant_max:
        return Refusal(queue, LimitName.TENANT, active, limits.tenant_max)
    return None
