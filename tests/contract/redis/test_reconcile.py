"""Whatever happened to Redis: one pass, and it shows what the database says."""

import itertools
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from penstock.documents import Stage
from penstock.errors import ServiceError
from penstock.queue.items import Claim, ItemStatus
from penstock.redis import reconcile as module
from penstock.redis.client import build_redis_client
from penstock.redis.keys import RECONCILE_LOCK, WAKE_CHANNEL, Queue
from penstock.redis.reconcile import Reconciled, queue_depths, reconcile
from penstock.store.database import Database
from penstock.store.schema import work_items
from tests.contract.redis.moves import read_jobs, read_moves, read_state
from tests.contract.redis.scene import Scene
from tests.factories import NOON, TENANT, make_fault, make_item
from tests.faults.scenarios.proxy import Proxy
from tests.together import wait_until

COUNTER = f"extraction:tenant:pending:{TENANT}"
NOTHING = Reconciled()


@pytest.fixture
def scene(database: Database, redis_client: Redis) -> Scene:
    scene = Scene(database, redis_client)
    scene.fill()
    scene.dispatch.apply(read_moves(database))
    assert read_state(redis_client) == scene.expected()
    return scene


def test_nothing_is_touched_when_nothing_is_wrong(scene: Scene) -> None:
    changes = scene.client.info("persistence")["rdb_changes_since_last_save"]
    assert scene.reconcile() == NOTHING
    # The lock was taken and let go.
    assert scene.client.info("persistence")["rdb_changes_since_last_save"] == changes + 2


def test_a_wiped_redis_is_filled_again_and_workers_are_woken(scene: Scene) -> None:
    scene.client.flushall()
    with scene.client.pubsub() as subscription:  # type: ignore[no-untyped-call]
        subscription.subscribe(WAKE_CHANNEL)
        result = scene.reconcile()
        wait_until(lambda: (subscription.get_message(timeout=1) or {}).get("data") == "extraction")
    assert result.rebuilt == (Queue.EXTRACTION, Queue.EMBEDDING)
    assert result.repaired == 14
    scene.check()


def test_what_redis_missed_is_made_up_for(scene: Scene) -> None:
    scene.desk.later(1).enqueue(make_item(stage=Stage.EXTRACT))
    scene.desk.later(1)
    scene.desk.complete(scene.claim(Stage.EXTRACT))
    scene.desk.later(100).sweep()
    scene.desk.cancel(work_items.c.tenant_id == "Zürich")
    assert scene.reconcile()
    scene.check()


def kill(scene: Scene, job: int) -> None:
    values = {
        "status": ItemStatus.FAILED,
        "updated_at": NOON + timedelta(seconds=scene.desk.second),
    }
    with scene.database.write() as tx:
        tx.execute(sa.update(work_items).where(work_items.c.id == job).values(values))


def test_a_failure_that_redis_missed_is_not_put_into_the_dlq(scene: Scene) -> None:
    for job in scene.desk.rows():
        kill(scene, job)
    scene.reconcile()
    assert read_state(scene.client) == {}


def drop_from_queue(client: Redis) -> None:
    client.lpop("extraction:queue")


def drop_from_retry(client: Redis) -> None:
    client.zpopmin("extraction:retry")


def drop_pending_keys(client: Redis) -> None:
    client.delete(*client.scan_iter("extraction:pending:*"))


def drop_jobs(client: Redis) -> None:
    client.delete("extraction:jobs")


def drop_one_job(client: Redis) -> None:
    client.hdel("extraction:jobs", client.hkeys("extraction:jobs")[0])


def drop_lists(client: Redis) -> None:
    client.delete("extraction:queue", "extraction:retry")


def double_in_queue(client: Redis) -> None:
    client.lpush("extraction:queue", client.lrange("extraction:queue", 0, 0)[0])


def shift_scores(client: Redis) -> None:
    client.zincrby("extraction:retry", 7, str(client.zrange("extraction:retry", 0, 0)[0]))


def drift_counter(client: Redis) -> None:
    client.incrby(COUNTER, 40)


def drop_counter(client: Redis) -> None:
    client.delete(COUNTER)


def spoil_counter(client: Redis) -> None:
    client.set(COUNTER, "many")


def count_nobody(client: Redis) -> None:
    client.set("embedding:tenant:pending:nobody", 3)


def pend_nobody(client: Redis) -> None:
    client.set("extraction:pending:nobody", "12")


def pend_wrong_node(client: Redis) -> None:
    client.set("extraction:pending:nobody", client.hkeys("extraction:jobs")[0])


def pend_wrong_job(client: Redis) -> None:
    for key in client.scan_iter("extraction:pending:*"):
        client.set(key, 99_999)


def make_ghost(client: Redis) -> None:
    text = str(client.hvals("extraction:jobs")[0]).replace("acme", "ghost")
    number = f"{777_777:019d}"
    client.hset("extraction:jobs", "777777", f"{text[:17]}{number}{text[36:]}")


def swap_jobs(client: Redis) -> None:
    first, second = client.hkeys("extraction:jobs")[:2]
    one, other = client.hmget("extraction:jobs", [first, second])
    client.hset("extraction:jobs", mapping={first: str(other), second: str(one)})


DAMAGES = [
    drop_from_queue,
    drop_from_retry,
    drop_pending_keys,
    drop_jobs,
    drop_one_job,
    drop_lists,
    double_in_queue,
    shift_scores,
    drift_counter,
    drop_counter,
    spoil_counter,
    count_nobody,
    pend_nobody,
    pend_wrong_node,
    pend_wrong_job,
    make_ghost,
    swap_jobs,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_repaired(
    scene: Scene, damage: Callable[[Redis], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(scene.client)
    assert scene.reconcile()
    scene.check()
    # Ours went wrong: nobody is warned of strangers.
    assert caplog.records == [] or damage is swap_jobs


FOREIGN: list[str | bytes] = ["rubbish", "[1]", '{"job_id":1}', b"\xff\xfe\x00", '{"a":"b"}', ""]


@pytest.mark.parametrize("name", ["queue", "retry", "dlq", "jobs"])
def test_foreign_entries_are_dropped_with_one_warning(
    scene: Scene, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = f"extraction:{name}"
    for number, text in enumerate(FOREIGN):
        if name == "retry":
            scene.client.execute_command("ZADD", key, number, text)  # type: ignore[no-untyped-call]
        elif name == "jobs":
            scene.client.hset(key, text, "rubbish")
        else:
            scene.client.rpush(key, text)
    assert scene.reconcile().foreign == len(FOREIGN)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{key} in Redis held {len(FOREIGN)} entries" in caplog.text
    scene.check()


def test_foreign_keys_are_left_alone(scene: Scene) -> None:
    keys: list[str | bytes] = [
        "shop:pending:1",
        "extraction",
        "extraction:other",
        b"\xff:pending:\xfe",
        "pending:1",
    ]
    for key in keys:
        scene.client.set(key, "theirs")
    assert scene.reconcile() == NOTHING
    assert scene.client.mget(keys) == ["theirs"] * len(keys)


@pytest.mark.parametrize("name", ["queue", "retry", "dlq", "jobs", "ended", "reserved"])
def test_values_of_another_kind_are_replaced_with_a_warning(
    scene: Scene, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.client.delete(f"extraction:{name}")
    scene.client.set(f"extraction:{name}", "theirs")
    assert scene.reconcile()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"extraction:{name}" in caplog.text
    scene.check()


def test_small_keys_of_another_kind_are_replaced_with_a_warning(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for key in (COUNTER, next(scene.client.scan_iter("extraction:pending:*")), "text:pending:x"):
        scene.client.delete(key)
        scene.client.lpush(key, "theirs")
    assert scene.reconcile()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "3 keys" in caplog.text
    scene.check()


def test_the_dlq_is_left_as_it_is(scene: Scene) -> None:
    [job, *_] = scene.ids(ItemStatus.PROCESSING)
    scene.act(lambda: kill(scene, job))
    assert read_jobs(scene.client, "extraction:dlq") == [job]
    assert scene.reconcile() == NOTHING
    assert read_jobs(scene.client, "extraction:dlq") == [job]
    scene.client.delete("extraction:dlq")
    assert scene.reconcile() == NOTHING
    assert scene.client.exists("extraction:dlq") == 0


def test_a_rebuilt_queue_has_the_oldest_at_the_right(scene: Scene) -> None:
    before = read_jobs(scene.client, "extraction:queue")
    assert len(before) == 3
    scene.client.flushall()
    scene.reconcile()
    assert read_jobs(scene.client, "extraction:queue") == before


def during(
    monkeypatch: pytest.MonkeyPatch, step: str, interrupt: Callable[[], None], turn: int = 1
) -> None:
    """Let something happen right after a step of the reconciler, before it goes on."""
    original = getattr(module, step)
    turns = itertools.count(1)

    def wrapped(*arguments: Any) -> Any:
        result = original(*arguments)
        # Steps of no queue, or of the one in which something happens.
        ours = Queue.TEXT not in arguments and Queue.EMBEDDING not in arguments
        if ours and next(turns) == turn:
            interrupt()
        return result

    monkeypatch.setattr(module, step, wrapped)


STEPS = [
    "read_active_jobs",
    "drop_stale_node_keys",
    "clean_job_hash",
    "read_snapshot",
    "find_outdated_jobs",
]


@pytest.mark.parametrize(
    ("step", "turn", "wiped"),
    [*((step, 1, wiped) for step in STEPS for wiped in (False, True)), ("clean_job_hash", 2, True)],
)
def test_moves_that_happen_meanwhile_are_not_undone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str, turn: int, wiped: bool
) -> None:
    """Heard at once, as each is when it is committed."""
    claims: list[Claim] = []

    def claim() -> None:
        claims.append(scene.claim(Stage.EXTRACT))

    def go_on() -> None:
        scene.act(lambda: scene.desk.enqueue(make_item(stage=Stage.EXTRACT, tenant_id="new")))
        scene.act(claim)
        scene.act(lambda: scene.desk.complete(claims[0]))
        scene.act(claim)
        scene.act(lambda: scene.desk.fail(claims[1], make_fault()))
        scene.act(claim)

    if wiped:
        scene.client.flushall()
    during(monkeypatch, step, go_on, turn)
    scene.reconcile()
    assert len(claims) == 3
    assert read_state(scene.client) == scene.expected()
    scene.check()


def test_readers_never_see_an_empty_queue(scene: Scene) -> None:
    many = [make_item(stage=Stage.EXTRACT) for _ in range(500)]
    scene.act(lambda: scene.desk.enqueue(*many))
    done, seen = threading.Event(), set()

    def look() -> None:
        while not done.is_set():
            seen.add(scene.client.llen("extraction:queue"))

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(5):
        scene.client.lpush("extraction:queue", "rubbish")
        scene.reconcile()
    done.set()
    reader.join()
    assert seen <= {503, 504}


def test_a_late_failure_still_reaches_the_dlq(scene: Scene) -> None:
    [job, *_] = scene.ids(ItemStatus.PROCESSING)
    late = scene.change(lambda: kill(scene, job))
    scene.reconcile()
    scene.dispatch.apply(late)
    assert read_jobs(scene.client, "extraction:dlq") == [job]


def test_a_late_change_that_is_known_already_changes_nothing(scene: Scene) -> None:
    late = scene.change(lambda: scene.desk.enqueue(make_item(stage=Stage.EXTRACT)))
    late += scene.change(lambda: scene.claim(Stage.EXTRACT, limit=2))
    scene.reconcile()
    scene.dispatch.apply(late)
    scene.check()


def test_ended_jobs_are_forgotten_after_a_while(scene: Scene) -> None:
    with scene.database.read() as tx:
        now = tx.now.timestamp() * 1e6
    scene.client.zadd("text:ended", {"1": now - 3600e6, "2": now - 1e6})
    scene.reconcile()
    assert scene.client.zrange("text:ended", 0, -1) == ["2"]


def test_only_one_is_at_it(scene: Scene) -> None:
    scene.client.flushall()
    scene.client.set(RECONCILE_LOCK, "another")
    assert scene.reconcile() == Reconciled(ran=False)
    assert scene.client.keys() == [RECONCILE_LOCK]
    scene.client.delete(RECONCILE_LOCK)
    assert scene.reconcile().ran
    assert scene.client.exists(RECONCILE_LOCK) == 0


def test_a_lock_that_went_to_another_is_not_released(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose() -> None:
        assert 0 < scene.client.ttl(RECONCILE_LOCK) <= 120
        scene.client.set(RECONCILE_LOCK, "another")

    during(monkeypatch, "clean_job_hash", lose)
    scene.reconcile()
    assert scene.client.get(RECONCILE_LOCK) == "another"


def test_without_redis_it_says_what_to_do(scene: Scene, valkey: str) -> None:
    with Proxy(valkey) as proxy:
        url = proxy.url
    with pytest.raises(ServiceError, match="REDIS_URL"), build_redis_client(url) as client:
        reconcile(scene.database, client)


def test_a_pass_logs_what_it_repaired(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=module.__name__)
    scene.client.flushall()
    scene.reconcile()
    scene.reconcile()
    assert caplog.text.count("Redis follows the database again") == 1
    assert queue_depths(scene.client)["extraction"] == {"queue": 3, "retry": 2, "dlq": 0}
