"""Nodes that arrive one by one at the same time are accepted together, in one transaction.

Nobody waits for company: while one transaction is under way, those that come gather for the next.
"""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from penstock.errors import Interrupted, Overloaded, UsageError
from penstock.intake.intake import Intake
from penstock.intake.request import Accepted, NewNode

MOST_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class _Arrival:
    tenant_id: str
    node: NewNode
    key: str | None
    accepted: "Future[Accepted]" = field(default_factory=Future)


class Gathering:
    """A thread that accepts what has gathered; use it in a block."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._arrivals: queue.SimpleQueue[_Arrival | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="penstock-intake", daemon=True)

    def submit(self, tenant_id: str, node: NewNode, key: str | None = None) -> "Future[Accepted]":
        """Have a node accepted; done once it is committed, or refused."""
        arrival = _Arrival(tenant_id, node, key)
        self._arrivals.put(arrival)
        return arrival.accepted

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What has come before is still accepted."""
        self._arrivals.put(None)
        self._thread.join()

    def _work(self) -> None:
        open_ = True
        while open_:
            gathered, open_ = self._gather()
            # Whoever has gone meanwhile wants no node; from here on nobody can go any more.
            waiting = [one for one in gathered if one.accepted.set_running_or_notify_cancel()]
            for together in _by_tenant(waiting):
                self._accept(together)
        for late in self._left():
            if late.accepted.set_running_or_notify_cancel():
                late.accepted.set_exception(Interrupted("the intake is closed; send it again"))

    def _gather(self) -> tuple[list[_Arrival], bool]:
        """All that has come, at least one; False with the last of it."""
        first = self._arrivals.get()
        gathered: list[_Arrival] = []
        while first is not None:
            gathered.append(first)
            if len(gathered) == MOST_TOGETHER or self._arrivals.empty():
                return gathered, True
            first = self._arrivals.get()
        return gathered, False

    def _left(self) -> list[_Arrival]:
        left: list[_Arrival] = []
        while not self._arrivals.empty():
            arrival = self._arrivals.get()
            if arrival is not None:
                left.append(arrival)
        return left

    def _accept(self, together: Sequence[_Arrival]) -> None:
        if len(together) > 1:
            try:
                nodes = [arrival.node for arrival in together]
                accepted = self._intake.accept(together[0].tenant_id, nodes)
            except (UsageError, Overloaded):
                # One of them may be wrong, or there is room for some of them only. After any other
                # error they may have been written, or each would wait as long for the same one.
                for arrival in together:
                    self._accept_alone(arrival)
                return
            except BaseException as error:
                for arrival in together:
                    arrival.accepted.set_exception(error)
                return
            for arrival, one in zip(together, accepted, strict=True):
                arrival.accepted.set_result(one)
        elif together:
            self._accept_alone(together[0])

    def _accept_alone(self, arrival: _Arrival) -> None:
        try:
            (one,) = self._intake.accept(arrival.tenant_id, [arrival.node], key=arrival.key)
        except BaseException as error:
            arrival.accepted.set_exception(error)
        else:
            arrival.accepted.set_result(one)


def _by_tenant(gathered: Sequence[_Arrival]) -> list[list[_Arrival]]:
    """Those of one tenant together; those with a key of their own alone."""
    groups: dict[str, list[_Arrival]] = {}
    alone: list[list[_Arrival]] = []
    for arrival in gathered:
        if arrival.key is not None:
            alone.append([arrival])
        else:
            groups.setdefault(arrival.tenant_id, []).append(arrival)
    return [*groups.values(), *alone]
