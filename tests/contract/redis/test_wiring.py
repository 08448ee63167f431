"""What the work queue tells of itself is enough: the reconciler finds nothing to do."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from penstock.documents import Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Claim
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.redis.mirror import RedisMirror
from penstock.store.database import Database
from penstock.store.schema import work_items
from tests.contract.redis.moves import read_jobs
from tests.contract.redis.scene import Scene
from tests.factories import TENANT, make_fault, make_item

EXTRACT = Stage.EXTRACT


@pytest.fixture
def scene(database: Database, redis_client: Redis) -> Scene:
    scene = Scene(database, redis_client)
    scene.desk.queue = WorkQueue(default_rules(), mirror=RedisMirror(redis_client))
    return scene


def step(scene: Scene, do: Callable[[], Any]) -> None:
    scene.desk.later(1)
    do()
    scene.check()


def claim(scene: Scene, limit: int) -> Claim:
    """A claim that Redis was told of."""
    claim = scene.claim(EXTRACT, limit)
    scene.check()
    scene.desk.later(1)
    return claim


def test_every_change_of_an_item_is_mirrored(scene: Scene) -> None:
    desk = scene.desk
    items = [make_item(stage=EXTRACT) for _ in range(6)]
    step(scene, lambda: desk.enqueue(*items))
    step(scene, lambda: desk.enqueue(*items[:2], replace_active=True))
    step(scene, lambda: desk.fail(claim(scene, 3), make_fault()))
    step(scene, lambda: desk.go_on(claim(scene, 1), Stage.EMBED))
    step(scene, lambda: desk.go_on(claim(scene, 1), Stage.EMBED, leased=False))
    step(scene, lambda: desk.release(claim(scene, 1)))
    step(scene, lambda: desk.start(claim(scene, 1)))
    desk.later(1000)
    step(scene, desk.sweep)
    step(scene, lambda: desk.complete(claim(scene, 2)))
    step(scene, lambda: desk.cancel(work_items.c.tenant_id == TENANT))
    assert scene.expected() == {}


def test_a_dead_letter_is_mirrored_once(scene: Scene) -> None:
    desk = scene.desk
    [job] = desk.enqueue(make_item(stage=EXTRACT))
    desk.later(1).fail(claim(scene, 1), make_fault(ErrorClass.CORRUPTION))
    assert read_jobs(scene.client, "extraction:dlq") == [job]
    desk.later(1).requeue()
    assert read_jobs(scene.client, "extraction:queue") == [job]
    assert not scene.reconcile()
    assert read_jobs(scene.client, "extraction:dlq") == [job]
