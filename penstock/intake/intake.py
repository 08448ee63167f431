"""The door by which programs bring nodes: room is asked for first, then all is written at once."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from penstock.dispatch.database_gate import DatabaseGate
from penstock.dispatch.gate import Refusal
from penstock.dispatch.keys import Queue
from penstock.dispatch.redis_gate import RedisGate
from penstock.errors import Overloaded, ServiceError
from penstock.intake.acceptance import Acceptance
from penstock.intake.idempotency import earlier_answer, keep_answer
from penstock.intake.request import Accepted, NewNode
from penstock.store.database import Database, Tx


@dataclass(frozen=True, slots=True)
class Intake:
    """Accepts nodes, or refuses all of them before anything is written."""

    database: Database
    acceptance: Acceptance
    database_gate: DatabaseGate
    redis_gate: RedisGate | None
    requires_redis: bool

    def accept(
        self, tenant_id: str, new: Sequence[NewNode], *, key: str | None = None
    ) -> list[Accepted]:
        """Record these nodes with their work. Raises Overloaded when there is no room for them and
        ServiceError when the Redis that has to count them does not answer."""
        digest = _digest(new)
        if key is not None:
            with self.database.read() as tx:
                known = earlier_answer(tx, tenant_id, key, digest)
            if known is not None:
                return [Accepted(**one) for one in known]
        queues = [Queue.of(stage) for stage in self.acceptance.queues_of(new)]
        with self._room(queues, tenant_id, len(new)) as counted:
            return self._write(tenant_id, new, key, digest, None if counted else queues)

    @contextmanager
    def _room(self, queues: Sequence[Queue], tenant_id: str, count: int) -> Iterator[bool]:
        """Room kept in Redis while the block writes; False when the database has to count."""
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
            room.settle()

    def _write(
        self,
        tenant_id: str,
        new: Sequence[NewNode],
        key: str | None,
        digest: str,
        uncounted: Sequence[Queue] | None,
    ) -> list[Accepted]:
        try:
            with self.database.write() as tx:
                if uncounted is not None:
                    self._count(tx, uncounted, tenant_id, len(new))
                accepted = self.acceptance.record(tx, tenant_id, new)
                answer = [one.as_json() for one in accepted]
                if key is not None and not keep_answer(tx, tenant_id, key, digest, answer):
                    raise _SameKeyError
                return accepted
        except _SameKeyError:
            # Somebody made the same request in the same moment: theirs is recorded, ours undone.
            with self.database.read() as tx:
                known = earlier_answer(tx, tenant_id, str(key), digest)
            return [Accepted(**one) for one in known or []]

    def _count(self, tx: Tx, queues: Sequence[Queue], tenant_id: str, count: int) -> None:
        room = self.database_gate.reserve(tx, queues, tenant_id, count)
        if isinstance(room, Refusal):
            raise _overloaded(room, count)


class _SameKeyError(Exception):
    pass


def _overloaded(refusal: Refusal, count: int) -> Overloaded:
    message = f"{refusal}: there is no room for {count} more"
    return Overloaded(message, refusal.retry_after_seconds)


def _digest(new: Sequence[NewNode]) -> str:
    described: list[dict[str, Any]] = [asdict(node) for node in new]
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
