"""Intake, workers and Redis together: woken at once, nothing lost, nothing done twice."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from penstock.app import App, open_app
from penstock.documents import Stage
from penstock.intake.nodes import NewNode
from penstock.queue.items import Claim
from penstock.redis.client import build_redis_client
from penstock.settings import EmbeddingSettings, load_settings
from penstock.store.database import Database
from penstock.store.schema import attempts, nodes, work_items, workers
from penstock.worker import Database as Library
from penstock.worker import ExtractionWorker
from tests.together import run_together, wait_until

TENANT = "acme"
JOBS = 2_000


@pytest.fixture(autouse=True)
def redis(valkey: str) -> Iterator[Redis]:
    with build_redis_client(valkey) as client:
        client.flushdb()
        yield client


MakeApp = Callable[..., App]


@pytest.fixture
def make_app(database: Database, tmp_path: Path, valkey: str) -> Iterator[MakeApp]:
    made: list[App] = []

    def make(*, with_redis: bool = True, **settings: object) -> App:
        embedding = EmbeddingSettings(
            backend="hash", queue_max_depth=10 * JOBS, tenant_max_pending=10 * JOBS
        )
        chosen = {"redis_url": valkey} if with_redis else {}
        loaded = load_settings(
            dsn=database.url, home=tmp_path / "home", embedding=embedding, **chosen, **settings
        )
        made.append(open_app(loaded))
        return made[-1]

    yield make
    for app in made:
        app.close()


def add_nodes(app: App, count: int, tenant_id: str = TENANT) -> None:
    for start in range(0, count, 200):
        size = min(200, count - start)
        new = [NewNode(props={"text": f"document {start + n}"}) for n in range(size)]
        app.intake.accept(tenant_id, new)


def done_nodes(app: App) -> int:
    with app.database.read() as tx:
        ready = sa.select(sa.func.count()).where(nodes.c.embedding_status == "ready")
        return int(tx.execute(ready).scalar_one())


class OpenLibrary(Library):
    """A library that works on an application which is there already."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.tenant_id = TENANT


def worker_on(app: App, poll_seconds: float) -> ExtractionWorker:
    return ExtractionWorker(
        OpenLibrary(app),
        num_workers=1,
        poll_interval=poll_seconds,
        stages=(Stage.EMBED,),
        batch_size=50,
        all_tenants=True,
    )


def seconds_until_claimed(app: App) -> float:
    began = time.monotonic()
    app.intake.accept(TENANT, [NewNode(props={"text": "quick"})])
    while True:
        with app.database.read() as tx:
            pending = sa.select(work_items.c.id).where(work_items.c.status == "pending")
            if tx.execute(pending).first() is None:
                return time.monotonic() - began
        time.sleep(0.001)


def test_with_redis_a_waiting_worker_claims_long_before_its_next_poll(make_app: MakeApp) -> None:
    app = make_app()
    with worker_on(app, poll_seconds=30.0):
        wait_until(lambda: _is_waiting(app))
        add_nodes(app, 1)
        wait_until(lambda: done_nodes(app) == 1)
        times = sorted(seconds_until_claimed(app) for _ in range(9))
    assert times[4] < 0.5, times


def test_without_redis_short_poll_intervals_work(make_app: MakeApp) -> None:
    app = make_app(with_redis=False)
    with worker_on(app, poll_seconds=0.05):
        wait_until(lambda: _is_waiting(app))
        times = sorted(seconds_until_claimed(app) for _ in range(5))
    assert times[2] < 0.5, times


def _is_waiting(app: App) -> bool:
    with app.database.read() as tx:
        return tx.execute(sa.select(workers.c.id)).first() is not None


def test_redis_may_be_wiped_in_the_middle_of_two_thousand_jobs(
    make_app: MakeApp, redis: Redis
) -> None:
    app = make_app(sweep_seconds=0.2, batch_size=50)
    add_nodes(app, JOBS)
    assert redis.llen("embedding:queue") == JOBS
    embedded: Counter[str] = Counter()
    counting = threading.Lock()

    def watch(event: str, *values: Any) -> None:
        if event == "job_completed":
            with counting:
                embedded[values[0].node_id] += 1

    over = threading.Event()

    def wipe() -> None:
        while not over.wait(0.05):
            redis.flushdb()

    wiper = threading.Thread(target=wipe)
    wiper.start()

    def work(_: int) -> None:
        with app.heartbeat() as heartbeat:
            drain = app.worker(app.processor(stages=(Stage.EMBED,)), heartbeat)
            drain.threads, drain.emit = 2, watch
            drain.run(lambda: True)

    try:
        run_together(2, work)
    finally:
        over.set()
        wiper.join()
    assert done_nodes(app) == JOBS
    assert len(embedded) == JOBS
    assert set(embedded.values()) == {1}
    with app.database.read() as tx:
        assert tx.execute(sa.select(attempts)).all() == [], "an attempt failed"
    app.recovery.run()
    assert redis.llen("embedding:queue") == redis.zcard("embedding:retry") == 0
    assert redis.get(f"embedding:tenant:pending:{TENANT}") is None


def test_a_worker_that_dies_is_recovered_and_the_counter_is_right(
    make_app: MakeApp, redis: Redis
) -> None:
    app = make_app()
    add_nodes(app, 3)
    with app.database.write() as tx:
        claim = app.queue.claim(tx, "a worker that dies", limit=3)
        app.queue.start(tx, claim, claim.items[:1])
    assert redis.llen("embedding:queue") == 0
    assert redis.get(f"embedding:tenant:pending:{TENANT}") == "3"
    _let_leases_run_out(app)

    found = run_together(2, lambda _: app.recovery.run())

    rescued = [item.id for one in found for item in one.items.rescued]
    freed = [item.id for one in found for item in one.items.freed]
    assert len(rescued) == 1
    assert len(freed) == 2
    app.recovery.run()
    assert redis.llen("embedding:queue") == 3
    _drain(app)
    assert done_nodes(app) == 3
    assert redis.get(f"embedding:tenant:pending:{TENANT}") is None
    assert redis.keys("embedding:pending:*") == []


def test_a_tenant_with_ten_thousand_jobs_does_not_delay_anothers_single_one(
    make_app: MakeApp,
) -> None:
    app = make_app()
    add_nodes(app, 10_000, "large")
    add_nodes(app, 1, "small")
    with app.database.write() as tx:
        claim: Claim = app.queue.claim(tx, "worker", limit=50)
    assert "small" in {item.tenant_id for item in claim.items}


def test_what_others_put_under_our_keys_is_dropped_and_stops_nobody(
    make_app: MakeApp, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()
    redis.lpush("embedding:queue", "not json", '{"job_id": 999999}')
    redis.set("extraction:queue", "a string")
    add_nodes(app, 2)
    _drain(app)
    app.recovery.run()
    assert done_nodes(app) == 2
    assert redis.llen("embedding:queue") == 0
    assert "embedding:queue" in caplog.text


def _drain(app: App) -> None:
    with app.heartbeat() as heartbeat:
        app.worker(app.processor(stages=(Stage.EMBED,)), heartbeat).run(lambda: True)


def _let_leases_run_out(app: App) -> None:
    with app.database.write() as tx:
        past = sa.update(work_items).where(work_items.c.lease_token.is_not(None))
        tx.execute(past.values(lease_expires_at=tx.now.replace(year=2020)))
