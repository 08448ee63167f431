"""How long reads take on a large store: search, commands, pages, routes of the API.

`python -m bench.reads [--documents 100000] [--database sqlite|postgres] [--quick] [--json FILE]`.
Everything is called in this process; a figure is the 95th percentile of 50 calls after a warm-up.
The store is filled first, which takes minutes; with `--store FOLDER` it is kept there and used
again.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from rich.console import Console
from typer.testing import CliRunner

from bench.figures import Figure, add_options, report_figures
from bench.reads_store import (
    COMMON,
    COMMON_PHRASE,
    EVERYWHERE,
    PHRASE,
    RARE,
    SENIORITIES,
    SKILLS,
    SMALL_TENANT,
    fill,
)
from entrypoints.cli.main import app as commands
from penstock.events import LogFilter, page_log, read_log
from penstock.local.postgres import PostgresServer
from penstock.search.query import Filters, Mode, Scope
from penstock.search.vectors import active_identity, search_vectors
from penstock.store.database import Database
from penstock.store.migration import migrate
from penstock.store.schema import embeddings, nodes, runs, work_items
from tests.contract.api.routes import routes_of
from tests.dashboard.pages import Pages
from tests.factories import TENANT

TEXT_MS, VECTOR_MS, HYBRID_MS, VIEW_MS = 100.0, 100.0, 200.0, 300.0
CALLS, QUICK_CALLS = 50, 10
QUERIES = 50
LEAST_RECALL = 0.98
_SHOWN = 10
# They hand out a whole log, or follow it until the run ends.
STREAMS = {"/runs/{run_id}/events", "/ui/runs/{run_id}/events", "/ui/runs/{run_id}/log.txt"}
Call = Callable[[], object]


@dataclass(frozen=True)
class Reads:
    """Everything that is read, on one store."""

    database: Database
    pages: Pages

    @cached_property
    def _ids(self) -> tuple[int, str, int]:
        """The largest run, and a node and a job of it."""
        with self.database.read() as tx:
            largest = sa.select(runs.c.id).where(runs.c.tenant_id == TENANT)
            run_id = tx.execute(largest.order_by(runs.c.ready.desc()).limit(1)).scalar_one()
            job = tx.execute(sa.select(work_items).where(work_items.c.run_id == run_id).limit(1))
            row = job.one()
            return run_id, row.node_id, row.id

    def text(self) -> Iterator[tuple[str, Call]]:
        words = " ".join((EVERYWHERE, *COMMON[:1], RARE))
        asked = {
            "a rare word": RARE,
            "a common word": COMMON[0],
            "a word in every document": EVERYWHERE,
            "three words": words,
            "three common words": " ".join(COMMON),
            "a phrase": f'"{PHRASE}"',
            "a phrase in every document": f'"{COMMON_PHRASE}"',
            "any of two words": f"{EVERYWHERE} nowherex",
        }
        for name, query in asked.items():
            yield name, self._search(query, "text")
        yield (
            "a word in every document, of a small tenant",
            self._search(EVERYWHERE, "text", Filters(SMALL_TENANT)),
        )

    def vectors(self) -> Iterator[tuple[str, Call]]:
        yield "vectors", self._search("repair of a turbine bearing", "vector")
        yield (
            "vectors, of a small tenant",
            self._search("repair of a turbine bearing", "vector", Filters(SMALL_TENANT)),
        )

    def hybrid(self) -> Iterator[tuple[str, Call]]:
        own = Filters(TENANT)
        filters = {
            "": own,
            ", one of four": replace(own, fields={"seniority": SENIORITIES[2]}),
            ", one of 200": replace(own, fields={"primary_skills": SKILLS[-1]}),
            ", at least": replace(own, at_least={"years_experience_total": 25.0}),
            ", profile": replace(own, profile="job_posting"),
            ", part of a value": replace(own, holding=[(("primary_skills", "skills"), "cob")]),
        }
        queries = {"rare": RARE, "common": COMMON[0], "everywhere": EVERYWHERE}
        for which, query in queries.items():
            for name, chosen in filters.items():
                yield f"{which} word{name}", self._search(query, "hybrid", chosen)

    def views(self) -> Iterator[tuple[str, Call]]:
        run_id, node_id, _ = self._ids
        said = {
            "status": ["status"],
            "runs": ["runs"],
            "run N": ["run", str(run_id)],
            "nodes": ["nodes", "--limit", "50"],
            "nodes of a run": ["nodes", "--run", str(run_id), "--limit", "50"],
            "show": ["show", node_id],
            "jobs list": ["jobs", "list"],
            "jobs list of a run": ["jobs", "list", "--run", str(run_id)],
            "logs N, errors": ["logs", str(run_id), "--level", "ERROR"],
            "backfill, dry": ["backfill", "--dry-run"],
        }
        for name, words in said.items():
            yield f"penstock {name}", partial(self._command, words)
        yield "penstock logs N, a page", partial(self._log_page, run_id)
        yield "the last lines of a log", partial(self._last_lines, run_id)
        for path in sorted(self._paths() - STREAMS):
            yield f"GET {path}", partial(self._get, path)

    def recall(self) -> tuple[float, int]:
        """The share of the exact ten nearest that search finds, over many queries."""
        random = np.random.default_rng(5)
        with self.database.read() as tx:
            identity, scope = str(active_identity(tx)), Scope.look(tx, Filters(TENANT))
            own = sa.select(embeddings.c.seq, embeddings.c.vector).join(
                nodes, nodes.c.seq == embeddings.c.seq
            )
            rows = tx.execute(own.where(nodes.c.tenant_id == TENANT)).all()
            seqs = np.array([row.seq for row in rows])
            matrix = np.frombuffer(b"".join(row.vector for row in rows), "<f4")
            matrix = matrix.reshape(len(seqs), -1)
            found = 0
            for one in random.integers(0, len(seqs), QUERIES):
                noise = random.normal(size=matrix.shape[1]) / matrix.shape[1] ** 0.5
                query = (matrix[one] + 0.4 * noise).astype("<f4")
                query /= np.linalg.norm(query)
                nearest = seqs[np.argsort(-(matrix @ query))].tolist()
                exact = [*dict.fromkeys(nearest)][:_SHOWN]
                given = search_vectors(tx, query.tobytes(), identity, scope, _SHOWN)
                found += len({one.seq for one in given} & set(exact))
        return found / (QUERIES * _SHOWN), QUERIES

    def _search(self, query: str, mode: Mode, filters: Filters | None = None) -> Call:
        searcher = self.pages.app.searcher
        chosen = filters or Filters(TENANT)

        def search() -> None:
            assert searcher.search(query, chosen, mode, _SHOWN), query

        return search

    def _command(self, words: list[str]) -> None:
        told = CliRunner().invoke(commands, words)
        assert told.exit_code == 0, (words, told.output, told.exception)

    def _log_page(self, run_id: int) -> None:
        with self.database.read() as tx:
            assert read_log(tx, run_id)

    def _last_lines(self, run_id: int) -> None:
        self._got(f"/ui/runs/{run_id}/lines")
        with self.database.read() as tx:
            page_log(tx, run_id, LogFilter(level="ERROR"), offset=0, limit=200)

    def _paths(self) -> set[str]:
        shown = self.pages.routes("GET")
        own = (one.split(" ") for one in routes_of(self.pages.web))
        return shown | {path for verb, path in own if verb == "GET"}

    def _get(self, path: str) -> None:
        run_id, node_id, job_id = self._ids
        named = {
            "run_id": run_id,
            "node_id": node_id,
            "job_id": job_id,
            "stage": "extraction",
            "queue": "extraction",
        }
        self._got(path.format(**named))

    def _got(self, path: str) -> None:
        answer = self.pages.http.get(path, params={"q": COMMON[0]})
        assert answer.status_code < 500, (path, answer.text)


def measure(call: Call, calls: int) -> list[float]:
    """Milliseconds of each call, sorted."""
    for _ in range(2):
        call()
    took = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - begun))
    return sorted(took)


def figures_of(reads: Reads, calls: int, only: str) -> Iterator[Figure]:
    groups = {
        "text": (reads.text, TEXT_MS),
        "vector": (reads.vectors, VECTOR_MS),
        "hybrid": (reads.hybrid, HYBRID_MS),
        "view": (reads.views, VIEW_MS),
    }
    kind = "sqlite" if reads.database.is_sqlite else "postgres"
    for group, (things, wanted) in groups.items():
        for name, call in things():
            if only not in f"{group}: {name}":
                continue
            took = measure(call, calls)
            yield Figure(
                f"reads.{kind}.{group}.{name}",
                f"{kind} {group}: {name}",
                took[int(0.95 * len(took))],
                unit="ms",
                wanted=wanted,
                lower_is_better=True,
                detail=f"median {statistics.median(took):.1f} ms of {len(took)}",
            )
    if only in "vector: recall":
        share, queries = reads.recall()
        yield Figure(
            f"reads.{kind}.recall",
            f"{kind} vector: recall of the exact {_SHOWN} nearest",
            share,
            unit="",
            wanted=LEAST_RECALL,
            detail=f"{queries} queries",
        )


@contextmanager
def open_store(kind: str, folder: Path, documents: int) -> Iterator[Database]:
    """A filled store in this folder; it is filled unless it has been."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = f"sqlite:///{folder / 'reads.db'}"
        if kind == "postgres":
            server = stack.enter_context(PostgresServer(folder / "postgres", durable=False))
            url = server.ensure_database("reads")
        database = Database(url)
        stack.callback(database.close)
        migrate(database)
        with database.read() as tx:
            filled = tx.execute(sa.select(runs.c.id).limit(1)).first() is not None
        if not filled:
            fill(database, documents)
        yield database


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--quick", action="store_true", help="few documents and few calls")
    parser.add_argument("--store", type=Path, help="keep the filled stores here, and use them")
    parser.add_argument("--only", default="", help="only what has this in its name")
    add_options(parser)
    options = parser.parse_args()
    documents = 2_000 if options.quick else options.documents
    calls = QUICK_CALLS if options.quick else CALLS
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="penstock-reads-") as temporary:
        # Postgres as root runs as another account, which must be able to enter its folder.
        Path(temporary).chmod(0o755)
        for kind in options.database or ("sqlite", "postgres"):
            folder = (options.store or Path(temporary)) / kind
            with (
                open_store(kind, folder, documents) as database,
                _environment(database, Path(temporary)),
                Pages(
                    database,
                    Path(temporary) / "home",
                    tenant=TENANT,
                    embedding={"backend": "wordllama"},
                ) as pages,
            ):
                for figure in figures_of(Reads(database, pages), calls, options.only):
                    Console(stderr=True).print(figure.what, figure.shown_value, figure.verdict)
                    figures.append(figure)
    return report_figures(figures, options)


@contextmanager
def _environment(database: Database, home: Path) -> Iterator[None]:
    """What commands read."""
    given = {"PENSTOCK_DSN": database.url, "PENSTOCK_HOME": str(home / "home")}
    given["PENSTOCK_TENANT"] = TENANT
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    sys.exit(main())
