"""What holds for every gate: with Redis and without, on both databases."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import timedelta

import pytest
import sqlalchemy as sa
from redis import Redis

from penstock.queue.items import ItemStatus
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.redis.backpressure import (
    DatabaseIntakeGate,
    LimitName,
    QueueLimits,
    RedisIntakeGate,
    RedisReservation,
    Refusal,
)
from penstock.redis.keys import Queue
from penstock.redis.mirror import RedisMirror
from penstock.store.database import Database, Tx
from penstock.store.schema import work_items
from tests.contract.redis.moves import read_moves
from tests.factories import TENANT, make_item
from tests.together import run_together, wait_until

pytestmark = pytest.mark.both_databases

LIMITS = QueueLimits(max_depth=20, tenant_max=10)
EXTRACTION, EMBEDDING = Queue.EXTRACTION, Queue.EMBEDDING


class Intake(ABC):
    """Accepts jobs through a gate and writes them, as an API does."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.queue = WorkQueue(default_rules())

    @abstractmethod
    def accept(self, tenant_id: str, count: int, *queues: Queue) -> Refusal | None:
        """The jobs are written in all queues, or refused."""

    def set_status(self, status: ItemStatus) -> None:
        """Of all jobs, a moment later."""
        with self.database.write() as tx:
            later = tx.now + timedelta(seconds=1)
            tx.execute(sa.update(work_items).values(status=status, updated_at=later))

    def count(self, queue: Queue = EXTRACTION) -> int:
        query = sa.select(sa.func.count()).where(work_items.c.stage == queue.stage)
        with self.database.read() as tx:
            return int(tx.execute(query).scalar_one())

    def write(self, tx: Tx, tenant_id: str, count: int, queues: Collection[Queue]) -> list[int]:
        new = [make_item(stage=q.stage, tenant_id=tenant_id) for q in queues for _ in range(count)]
        return list(self.queue.enqueue(tx, new).values())


class DatabaseIntake(Intake):
    def accept(self, tenant_id: str, count: int, *queues: Queue) -> Refusal | None:
        with self.database.write() as tx:
            refusal = DatabaseIntakeGate(LIMITS).check(tx, queues, tenant_id, count)
            if refusal is None:
                self.write(tx, tenant_id, count, queues)
            return refusal


class RedisIntake(Intake):
    def __init__(self, database: Database, client: Redis) -> None:
        super().__init__(database)
        self.gate = RedisIntakeGate(client, LIMITS)
        self.dispatch = RedisMirror(client)

    def accept(self, tenant_id: str, count: int, *queues: Queue) -> Refusal | None:
        answer = self.gate.reserve(queues, tenant_id, count)
        if isinstance(answer, Refusal):
            return answer
        with self.database.write() as tx:
            ids = self.write(tx, tenant_id, count, queues)
        self.dispatch.apply(read_moves(self.database, work_items.c.id.in_(ids)))
        answer.release()
        return None

    def set_status(self, status: ItemStatus) -> None:
        super().set_status(status)
        self.dispatch.apply(read_moves(self.database))


@pytest.fixture(params=["database", pytest.param("redis", marks=pytest.mark.full_suite)])
def intake(request: pytest.FixtureRequest, database: Database) -> Intake:
    if request.param == "database":
        return DatabaseIntake(database)
    return RedisIntake(database, request.getfixturevalue("redis_client"))


@pytest.fixture
def gate(redis_client: Redis) -> RedisIntakeGate:
    return RedisIntakeGate(redis_client, LIMITS)


def reserved(gate: RedisIntakeGate, count: int = 1, tenant_id: str = TENANT) -> RedisReservation:
    answer = gate.reserve([EXTRACTION], tenant_id, count)
    assert not isinstance(answer, Refusal), answer
    return answer


def test_jobs_come_in_up_to_the_tenants_limit(intake: Intake) -> None:
    assert intake.accept(TENANT, 9, EXTRACTION) is None
    refusal = intake.accept(TENANT, 2, EXTRACTION)
    assert refusal == Refusal(EXTRACTION, LimitName.TENANT, 9, 10)
    assert intake.accept(TENANT, 1, EXTRACTION) is None
    assert intake.count() == 10


def test_jobs_come_in_up_to_the_depth(intake: Intake) -> None:
    for tenant_id in ("a", "b"):
        assert intake.accept(tenant_id, 9, EXTRACTION) is None
    refusal = intake.accept("c", 3, EXTRACTION)
    assert refusal == Refusal(EXTRACTION, LimitName.DEPTH, 18, 20)
    assert refusal.retry_after_seconds == 5
    assert str(refusal) == "total depth of queue extraction is 18, the limit is 20"
    assert intake.accept("c", 2, EXTRACTION) is None


def test_what_waits_for_a_retry_is_depth_too(intake: Intake) -> None:
    intake.accept("a", 10, EXTRACTION)
    intake.set_status(ItemStatus.RETRY_PENDING)
    intake.accept("b", 9, EXTRACTION)
    refusal = intake.accept("c", 2, EXTRACTION)
    assert refusal == Refusal(EXTRACTION, LimitName.DEPTH, 19, 20)


def test_what_is_being_worked_on_is_no_depth_but_the_tenants(intake: Intake) -> None:
    intake.accept(TENANT, 10, EXTRACTION)
    intake.set_status(ItemStatus.PROCESSING)
    assert intake.accept(TENANT, 1, EXTRACTION) == Refusal(EXTRACTION, LimitName.TENANT, 10, 10)
    for tenant_id in ("b", "c"):
        assert intake.accept(tenant_id, 10, EXTRACTION) is None


def test_what_has_ended_makes_room(intake: Intake) -> None:
    intake.accept(TENANT, 10, EXTRACTION)
    intake.set_status(ItemStatus.COMPLETE)
    assert intake.accept(TENANT, 10, EXTRACTION) is None


def test_a_full_queue_refuses_for_all_requested_queues(intake: Intake) -> None:
    intake.accept(TENANT, 10, EMBEDDING)
    refusal = intake.accept(TENANT, 1, EXTRACTION, EMBEDDING)
    assert refusal == Refusal(EMBEDDING, LimitName.TENANT, 10, 10)
    assert intake.count(EXTRACTION) == 0
    assert intake.accept(TENANT, 10, EXTRACTION) is None


def test_eight_clients_at_once_never_pass_the_tenants_limit(intake: Intake) -> None:
    answers = run_together(8, lambda _: intake.accept(TENANT, 3, EXTRACTION, EMBEDDING))
    assert [type(answer) for answer in answers].count(type(None)) <= 3
    assert intake.count(EXTRACTION) == intake.count(EMBEDDING) <= 10


def test_eight_clients_at_once_never_pass_the_depth(intake: Intake) -> None:
    def accept_many(number: int) -> int:
        answers = [intake.accept(f"tenant-{number}", 1, EXTRACTION) for _ in range(5)]
        return answers.count(None)

    accepted = run_together(8, accept_many)
    assert sum(accepted) == intake.count() <= 20
    while intake.accept("last", 1, EXTRACTION) is None:
        pass
    assert intake.count() == 20


def test_what_others_have_reserved_counts(gate: RedisIntakeGate) -> None:
    reserved(gate, 6)
    refusal = gate.reserve([EXTRACTION], TENANT, 5)
    assert refusal == Refusal(EXTRACTION, LimitName.TENANT, 6, 10)
    reserved(gate, 10, "b")
    assert gate.reserve([EXTRACTION], "c", 5) == Refusal(EXTRACTION, LimitName.DEPTH, 16, 20)
    reserved(gate, 4, "c")


def test_a_released_reservation_makes_room(gate: RedisIntakeGate, redis_client: Redis) -> None:
    first = reserved(gate, 10)
    first.release()
    first.release()
    reserved(gate, 10).release()
    assert redis_client.keys() == []


def test_a_refusal_reserves_nothing(gate: RedisIntakeGate, redis_client: Redis) -> None:
    reserved(gate, 10).release()
    assert isinstance(gate.reserve([EMBEDDING, EXTRACTION], TENANT, 11), Refusal)
    assert redis_client.keys() == []


def test_the_reservation_of_a_client_that_died_expires(redis_client: Redis) -> None:
    gate = RedisIntakeGate(redis_client, LIMITS, expiry_seconds=2)
    reserved(gate, 10)
    assert isinstance(gate.reserve([EXTRACTION], TENANT, 1), Refusal)
    wait_until(lambda: not isinstance(gate.reserve([EXTRACTION], TENANT, 10), Refusal))
    assert 0 < redis_client.ttl("extraction:reserved") <= 3


def test_tenants_are_distinguished_whatever_their_names(gate: RedisIntakeGate) -> None:
    for tenant_id in ("a b", "a", "b", ""):
        reserved(gate, 3, tenant_id).release()
        reserved(gate, 3, tenant_id)
    refusal = gate.reserve([EXTRACTION], "a b", 8)
    assert refusal == Refusal(EXTRACTION, LimitName.TENANT, 3, 10)


def test_values_of_another_type_hold_no_jobs(gate: RedisIntakeGate, redis_client: Redis) -> None:
    redis_client.set("extraction:queue", "x")
    redis_client.lpush("extraction:retry", "x")
    redis_client.lpush(f"extraction:tenant:pending:{TENANT}", "x")
    reserved(gate, 10)
