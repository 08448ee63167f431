"""A scene: a store, a stand-in for the models, worker processes, and runs they work on."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.errors import ConfigurationError
from penstock.local.postgres import PostgresServer
from penstock.runs.execute import admit_listed, list_source, open_source_run
from penstock.runs.lifecycle import pause_run, take_run
from penstock.settings import load_settings
from penstock.store.schema import ACTIVE_ITEM, work_items, workers
from penstock.testing import GroqServer
from tests.faults.scenarios.audit import Audit, audit_run, is_over
from tests.faults.scenarios.hand import Hand
from tests.faults.scenarios.waiting import TooLong, wait_for
from tests.leftovers import VARIABLE

TENANT = "faults"
KEY = "gsk_stand-in"
LEASE_SECONDS = 2.0
HEARTBEAT_SECONDS = 0.5
SWEEP_SECONDS = 0.5
# Short, so that a scenario takes seconds; in the proportions of the defaults.
TIMES = {
    "PENSTOCK_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "PENSTOCK_HEARTBEAT_SECONDS": f"{HEARTBEAT_SECONDS:g}",
    "PENSTOCK_SWEEP_SECONDS": f"{SWEEP_SECONDS:g}",
    "EXTRACTION_WORKER_POLL_INTERVAL": "0.1",
    "PENSTOCK_BATCH_SIZE": "3",
}
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", VARIABLE)


@dataclass
class Scene:
    """Workers of one store. Everything it starts is ended with it."""

    folder: Path
    app: App
    environment: Mapping[str, str]
    models: GroqServer
    hands: list[Hand] = field(default_factory=list)
    _runs: int = 0

    def hire(
        self,
        faults: str | None = None,
        *,
        skew_seconds: float = 0.0,
        begin: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> Hand:
        """Start a worker process; one that is not to begin yet is imported and waits."""
        armed = {"PENSTOCK_FAULTS": faults} if faults else {}
        environment = {**self.environment, **armed, **(settings or {})}
        hand = Hand(environment, self.folder / f"worker-{len(self.hands)}.log", skew_seconds)
        self.hands.append(hand)
        if begin:
            hand.begin()
        return hand

    def wait_until_ready(self, *hands: Hand, seconds: float = 180.0) -> None:
        """Until these have shown a sign of life in the store."""
        wanted = {hand.pid for hand in hands}

        def all_there() -> bool:
            with self.app.database.read() as tx:
                return wanted <= set(tx.execute(sa.select(workers.c.pid)).scalars())

        wait_for(all_there, seconds, f"workers {sorted(wanted)} to begin")

    def open_run(self, documents: int, extension: str = "txt") -> int:
        """A run over new documents, all of them admitted: only work is left."""
        return self.admit(self.write_documents(documents, extension))

    def write_documents(self, documents: int, extension: str = "txt") -> Path:
        self._runs += 1
        source = self.folder / f"source-{self._runs}"
        source.mkdir()
        for number in range(documents):
            text = f"The mill number {number} of lot {self._runs}. " + "It grinds corn. " * 20
            (source / f"{number:05}.{extension}").write_text(text, encoding="utf-8")
        return source

    def admit(self, source: Path) -> int:
        """The order of calls of the flow `ingest`, up to the end of the listing."""
        run_id = self.open(source)
        self.bring(run_id)
        return run_id

    def open(self, source: Path) -> int:
        """Record a run over this folder, or find the one that was paused."""
        return open_source_run(self.app.sources, str(source), TENANT, profile="document").id

    def bring(self, run_id: int, tell: Callable[[int], object] = lambda _: None) -> None:
        """Admit the documents of a run; `tell` hears how many there are, batch by batch."""
        lease = take_run(self.app.database, run_id, lease_seconds=600)
        admission = self.app.admission(lease)
        discover = partial(list_source, self.app.sources, lease.run)
        admitted = 0
        try:
            for count in admit_listed(
                self.app.database, lease, discover, admission.fetch_batches, admission.record
            ):
                admitted += count
                tell(admitted)
        except ConfigurationError as fault:
            pause_run(self.app.database, lease, str(fault))
            raise

    def is_over(self, run_id: int) -> bool:
        return is_over(self.app.database, run_id)

    def wait_for_run(self, run_id: int, seconds: float = 180.0) -> float:
        try:
            return wait_for(lambda: self.is_over(run_id), seconds, f"run {run_id} to end")
        except TooLong as error:
            raise TooLong(f"{error}\n{self.left_over(run_id)}\n{self.logs()}") from None

    def audit(self, run_id: int, documents: int, *, failed: int = 0) -> Audit:
        return audit_run(self.app.database, run_id, documents, failed=failed)

    def left_over(self, run_id: int) -> str:
        """What has not ended, for whoever wants to know what it waits for."""
        active = sa.select(work_items).where(work_items.c.run_id == run_id, ACTIVE_ITEM)
        with self.app.database.read() as tx:
            rows = [dict(row._mapping) for row in tx.execute(active)]
            return "\n".join([f"at {tx.now}", *map(str, rows)])

    def logs(self) -> str:
        """The last lines of every worker, for whoever wants to know what went wrong."""
        tails = []
        for hand in self.hands:
            lines = hand.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
            tails.append(
                f"-- worker {hand.pid}, alive: {hand.is_alive()}\n" + "\n".join(lines[-8:])
            )
        return "\n".join(tails)

    def dismiss(self) -> None:
        """End all workers as a supervisor would."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Hand.stop, self.hands))
        self.hands.clear()


@contextmanager
def open_scene(database_url: str | None = None, **more: str) -> Iterator[Scene]:
    """A scene on this database, or on a SQLite file of its own; `more` are settings."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-scene-")))
        models = opened.enter_context(GroqServer())
        environment = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            **TIMES,
            "PENSTOCK_HOME": str(folder / "home"),
            "PENSTOCK_DSN": database_url or f"sqlite:///{folder / 'penstock.db'}",
            "GROQ_API_KEY": KEY,
            "EXTRACTION_BASE_URL": models.base_url,
            **more,
        }
        settings = load_settings(
            dsn=environment["PENSTOCK_DSN"],
            home=environment["PENSTOCK_HOME"],
            redis_url=environment.get("REDIS_URL"),
        )
        app = opened.enter_context(open_app(settings))
        scene = Scene(folder, app, environment, models)
        opened.callback(scene.dismiss)
        yield scene


def open_scenes() -> Iterator[Scene]:
    """A scene on SQLite, then one on a Postgres of its own."""
    with open_scene() as scene:
        yield scene
    with open_postgres_scene() as scene:
        yield scene


@contextmanager
def open_postgres_scene() -> Iterator[Scene]:
    """The second of these alone."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-faults-") as folder,
        PostgresServer(Path(folder), durable=False) as server,
        open_scene(server.create_database("faults")) as scene,
    ):
        yield scene
