"""No statement of the product reads a whole large table, and none takes the square of its rows.

The product is used on a store that is full; its statements are listened to, so that a new one is
looked at without being named here.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.backfill.backfill import count_failed, dispatcher, open_backfill
from penstock.backfill.estimate import estimate
from penstock.backfill.selection import choose_nodes
from penstock.documents import Stage
from penstock.operations.jobs import JobFilter, list_jobs, purge, replay
from penstock.queue.items import ItemStatus
from penstock.queue.stats import count_items, count_nodes
from penstock.review.gold import list_gold
from penstock.runs.costs import tenant_spending
from penstock.runs.lifecycle import abort_run
from penstock.runs.report import list_documents
from penstock.search.nodes import ReviewFilter, list_for_review, list_nodes
from penstock.store.database import Database, Tx
from penstock.store.schema import nodes
from penstock.worker.jobs import queue_statistics
from tests.contract.api.routes import routes_of
from tests.contract.ingestion import Workplace, make_text
from tests.dashboard.pages import Pages
from tests.factories import TENANT
from tests.filled import COMMON, RARE, FilledStore
from tests.statements import Watch

Thing = tuple[str, Callable[[], object]]

pytestmark = [pytest.mark.both_databases, pytest.mark.full_suite]

TENANTS = 10
FEW, MANY = 500, 2000
LARGE = {
    "nodes",
    "texts",
    "embeddings",
    "extractions",
    "corrections",
    "model_calls",
    "run_documents",
    "work_items",
    "events",
}
# What goes through everything, and why it may.
READS_ALL: dict[str, str] = {
    "maintain": "once a day, a page at a time, without holding anybody up",
    "GET /metrics": "calls to models are summed",
    "backfill": "one pass over the nodes of a tenant, which its cursor does not repeat",
}
# Four times as many documents may cost eight times as much, and small things what they like.
MOST_GROWTH = 8.0
SMALL_STEPS, SMALL_COST = 500_000, 5_000.0
# What a page of jobs may take: a tenth, and half, of going through those that wait.
SMALL_PAGE_STEPS, SMALL_PAGE_COST = 5_000, 250.0


@dataclass(frozen=True)
class Installation:
    """Everything that asks the database something, on one store."""

    store: FilledStore
    pages: Pages
    workplace: Workplace

    def things_to_do(self) -> Iterator[Thing]:
        yield "ingest", self._ingest
        yield "abort", self._abort
        yield "intake", self._take_in
        yield "recover", self.pages.app.recovery.run
        for name, read in self._reads().items():
            yield name, partial(self._read, read)
        yield "common word", lambda: self.pages.get("/search", q=COMMON, mode="text")
        for method, path in sorted(route.split(" ") for route in self._routes()):
            yield f"{method} {path}", partial(self._get, path)
        yield "correct", self._correct
        yield "gold", lambda: next(list_gold(self.store.database, TENANT), None)
        yield "dead letters", lambda: self._write(self._handle_dead)
        yield "delete", lambda: self.pages.delete(f"/nodes/{self._last_node()}")
        yield "backfill", self._backfill

    def maintenance(self) -> Thing:
        """To be done last: from then on, a SQLite file knows how large its tables are."""
        return "maintain", lambda: self.pages.app.maintenance.run().raise_failures()

    def _reads(self) -> dict[str, Callable[[Tx], object]]:
        """What commands show, and the pages do not."""
        run_id = self.store.run_id
        return {
            "status": lambda tx: (count_nodes(tx, TENANT), count_items(tx, tenant_id=TENANT)),
            "spending": lambda tx: tenant_spending(tx, TENANT),
            "run": lambda tx: list_documents(tx, run_id, 50),
            "nodes": lambda tx: list_nodes(tx, TENANT, run_id=run_id, limit=50),
            "review": self._review,
            "worker": lambda tx: queue_statistics(tx, TENANT, tuple(Stage)),
            **{
                f"jobs {status}": partial(
                    list_jobs, wanted=JobFilter(TENANT, status=status), limit=9
                )
                for status in (None, *ItemStatus)
            },
        }

    def _routes(self) -> set[str]:
        shown = {f"GET {path}" for path in self.pages.routes("GET")}
        return shown | {one for one in routes_of(self.pages.web) if one.startswith("GET ")}

    def _get(self, path: str) -> None:
        named = {
            "run_id": self.store.run_id,
            "node_id": self.store.node_id(7),
            "job_id": 7,
            "stage": "extraction",
            "queue": "extraction",
        }
        answer = self.pages.http.get(path.format(**named), params={"q": RARE})
        assert answer.status_code < 500, (path, answer.text)

    def _read(self, read: Callable[[Tx], object]) -> None:
        with self.store.database.read() as tx:
            read(tx)

    def _write(self, write: Callable[[Tx], object]) -> None:
        with self.store.database.write() as tx:
            write(tx)

    def _ingest(self) -> None:
        self.workplace.write(f"{self.store.documents}.txt", make_text(str(self.store.documents)))
        assert self.workplace.ingest().run.status == "finished"

    def _abort(self) -> None:
        self.workplace.write("left.txt", make_text(f"Left {self.store.documents}"))
        lease = self.workplace.open()
        self.workplace.admit(lease)
        app = self.workplace.app
        abort_run(app.database, app.queue, lease.run.id, reason="not wanted")

    def _review(self, tx: Tx) -> None:
        """Also from the middle of the queue on."""
        for wanted in (ReviewFilter(TENANT), ReviewFilter(TENANT, reason="missing:title")):
            assert len(list_for_review(tx, wanted, 50)[0]) == 50
            list_for_review(tx, wanted, 50, "5.1000")

    def _correct(self) -> None:
        node_id = self.store.node_id(8)
        fields = {"title": "The right title"}
        self.pages.app.decider.correct(TENANT, node_id, fields, author="ada")
        self.pages.app.decider.accept(TENANT, node_id, author="ada")

    def _take_in(self) -> None:
        self.pages.add()
        self.pages.work()

    def _handle_dead(self, tx: Tx) -> None:
        queue = self.pages.app.queue
        replay(tx, queue, TENANT, Stage.TEXT, ids=None, limit=10)
        purge(tx, TENANT, Stage.TEXT, older_than=tx.now - tx.now)

    def _last_node(self) -> str:
        newest = sa.select(nodes.c.id).where(nodes.c.tenant_id == TENANT)
        with self.store.database.read() as tx:
            return str(tx.execute(newest.order_by(nodes.c.seq.desc()).limit(1)).scalar_one())

    def _backfill(self) -> None:
        app = self.pages.app
        selection = choose_nodes(app, TENANT)
        estimate(app, selection)
        backfill = open_backfill(app.database, selection)
        dispatcher(app, backfill).dispatch()
        self._read(lambda tx: count_failed(tx, backfill.id))


@pytest.fixture
def installation(database: Database, tmp_path: Path) -> Iterator[Installation]:
    with ExitStack() as stack:
        store = FilledStore.make(database, TENANTS)
        pages = stack.enter_context(Pages(database, tmp_path / "home", tenant=TENANT))
        workplace = stack.enter_context(closing(Workplace(database, tmp_path / "work")))
        yield Installation(store, pages, workplace)


def test_no_statement_reads_a_large_table_whole_or_takes_the_square_of_it(
    installation: Installation,
) -> None:
    database = installation.store.database
    installation.store.grow(FEW)
    few = use(database, installation.things_to_do())
    installation.store.grow(MANY)
    installation.store.index_vectors()
    many = use(database, [*installation.things_to_do(), installation.maintenance()])
    too_much = {
        (what, table): statement
        for (what, table), statement in many.read_whole.items()
        if table in LARGE and what not in READS_ALL
    }
    assert too_much == {}
    assert grown(few, many) == {}


def test_a_page_of_jobs_does_not_go_through_all_that_wait(database: Database) -> None:
    store = FilledStore.make(database, tenants=2)
    store.grow(MANY)
    store.leave_waiting()
    watch = use(database, pages_of_jobs(database))
    small = SMALL_PAGE_STEPS if database.is_sqlite else SMALL_PAGE_COST
    assert {what: cost for what, cost in watch.costs.items() if cost > small} == {}
    assert LARGE.isdisjoint(table for _, table in watch.read_whole)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_complete_jobs_are_counted_without_reading_their_rows(database: Database) -> None:
    store = FilledStore.make(database, TENANTS)
    store.grow(MANY)
    with database.outside() as connection:
        # An index says nothing of rows that no vacuum has seen.
        connection.exec_driver_sql("VACUUM ANALYZE work_items")
    watch = use(database, [("count", partial(count_all, database))])
    assert "ix_work_items_complete" in watch.read_by_index_alone["count"]


def count_all(database: Database) -> None:
    with database.read() as tx:
        count_items(tx, tenant_id=TENANT)


def pages_of_jobs(database: Database) -> Iterator[Thing]:
    for status in (None, ItemStatus.PENDING, ItemStatus.COMPLETE, ItemStatus.CANCELLED):
        for stages in ((), (Stage.EMBED,)):
            wanted = JobFilter(TENANT, status=status, stages=stages)
            yield f"jobs {status} {stages}", partial(list_page, database, wanted)


def list_page(database: Database, wanted: JobFilter) -> None:
    with database.read() as tx:
        list_jobs(tx, wanted, limit=9)


def use(database: Database, things: Iterable[Thing]) -> Watch:
    watch = Watch(database)
    with watch.listening():
        for what, do in things:
            with watch.during(what):
                do()
    return watch


def grown(few: Watch, many: Watch) -> dict[str, float]:
    """What costs too much more on the larger store, and how many times as much."""
    small = SMALL_STEPS if many.database.is_sqlite else SMALL_COST
    growth = {what: many.costs[what] / max(cost, small) for what, cost in few.costs.items()}
    return {what: times for what, times in growth.items() if times > MOST_GROWTH}
