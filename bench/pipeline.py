"""The flow `ingest` against bare loops and LlamaIndex: `python -m bench.pipeline [PART …]`.

Parts: `pages`, generated web pages of the size of real ones, against a bare loop over the same
stage functions in one process and in two; `texts`, short texts, against the loop in one process;
`real`, copies of real pages that differ in a paragraph, against a bare loop of trafilatura in two
processes and against LlamaIndex's ingestion pipeline, which runs in an environment of its own.
Sides alternate on the same documents, each in a process of its own with an empty database. The
time of a bare loop is without its imports and the loading of its model; that of `ingest` is from
the flow's call to its return, with its Prefect server running beside it.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from bench.databases import DATABASES, POSTGRES, SHOWN, SQLITE, Databases, open_databases
from bench.figures import Figure, add_options, report_figures
from bench.measure import Measured, measure
from bench.pages import (
    REAL_PAGES_VARIABLE,
    given_pages,
    read_real_pages,
    write_copies,
    write_pages,
    write_texts,
)
from bench.queue_environments import default_cache, ensure_python
from penstock.local.prefect_server import PrefectServer

console = Console(highlight=False, soft_wrap=True)
HASHED = {"EMBEDDING_BACKEND": "hash"}
LLAMAINDEX = "requirements-llamaindex.txt"
INGEST, LEAN, LEAN_TWO, TRAFILATURA_TWO = "ingest", "lean", "lean, two processes", "trafilatura"
LOOPS = {
    LEAN: (),
    LEAN_TWO: ("--processes", "2"),
    TRAFILATURA_TWO: ("--text", "trafilatura", "--processes", "2"),
}
OVER_LEAN, OVER_LEAN_TWO, OVER_LEAN_TEXTS = 1.6, 0.85, 1.0
OVER_TRAFILATURA, OVER_LLAMAINDEX, OF_LLAMAINDEX_MEMORY = 1.0, 2.5, 0.25


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is ingested, and how often."""

    rounds: int
    documents: int


FULL = Sizes(5, 1_000)
QUICK = Sizes(1, 40)


@dataclass(slots=True)
class Session:
    """One bench, in a folder of its own, on one Prefect server.

    Nothing in it is deleted before the end: ext4 does not use the inode of a deleted file again for
    minutes, and looks through all of these for each new file.
    """

    folder: Path
    databases: Databases
    environment: dict[str, str]
    sizes: Sizes
    python_of_llamaindex: str | None = None
    _seed: Iterator[int] = field(default_factory=lambda: iter(range(sys.maxsize)))

    def documents(self, write: Callable[..., None]) -> Path:
        """New ones each time: a batch that the flow has seen is taken from its cache."""
        seed = next(self._seed)
        folder = self.folder / f"documents-{seed}"
        write(folder, self.sizes.documents, seed=seed)
        return folder

    def ingest(
        self, folder: Path, database: str, *options: str, settings: dict[str, str] | None = None
    ) -> Measured:
        home = self.databases.new_home(database)
        return self.ingest_into(home | (settings or {}), folder, *options)

    def ingest_into(self, settings: dict[str, str], folder: Path, *options: str) -> Measured:
        # The profile of the bare loops: by default, a text that is no page is read as a résumé.
        same_work = {"EXTRACTION_PROFILE": "document"} | settings
        found = self._measure("bench.ingesting", str(folder), *options, settings=same_work)
        if failed := found.figures["counts"]["error"]:
            console.print(f"  {failed} of {found.figures['documents']} documents failed")
        return found

    def bare(
        self, side: str, folder: Path, database: str, settings: dict[str, str] | None = None
    ) -> Measured:
        home = self.databases.new_home(database)
        arguments = (str(folder), *LOOPS[side])
        return self._measure("bench.bare", *arguments, settings=home | (settings or {}))

    def llamaindex(self, folder: Path, workers: int, *options: str) -> Measured:
        output = tempfile.mkdtemp(prefix="llamaindex-", dir=self.folder)
        arguments = (str(folder), output, str(workers), *options)
        python = self.python_of_llamaindex
        assert python is not None
        return self._measure("bench.peers.llamaindex", *arguments, settings={}, python=python)

    def _measure(
        self, module: str, *arguments: str, settings: dict[str, str], python: str = sys.executable
    ) -> Measured:
        environment = self.environment | settings
        found = measure(module, *arguments, environment=environment, python=python)
        where = "Postgres" if "PENSTOCK_DSN" in settings else ""
        options = " ".join(one for one in arguments if not one.startswith("/"))
        peak = f", peak {found.peak_mb:.0f} MB" if found.peak_mb else ""
        console.print(
            f"  {module} {options} {where}: {found.seconds:.2f} s, "
            f"{found.rate:.0f} documents/s{peak}"
        )
        return found


Rates = dict[str, list[float]]


def _rounds(session: Session, name: str, play: Callable[[], dict[str, Measured]]) -> Rates:
    """Every side once in each round; the rates of each."""
    rates: Rates = {}
    for number in range(session.sizes.rounds):
        console.print(f"{name}: round {number + 1} of {session.sizes.rounds}")
        for side, found in play().items():
            rates.setdefault(side, []).append(found.rate)
    return rates


def measure_pages(session: Session, database: str) -> list[Figure]:
    """Generated pages, against a loop over the same functions."""

    def play() -> dict[str, Measured]:
        folder = session.documents(write_pages)
        found = {side: session.bare(side, folder, database) for side in (LEAN, LEAN_TWO)}
        return found | {INGEST: session.ingest(folder, database)}

    rates = _rounds(session, f"pages, {SHOWN[database]}", play)
    where = f"{session.sizes.documents:,} pages, {SHOWN[database]}"
    return [
        Figure.ratio(
            f"pipeline.pages.over_lean.{database}",
            f"`ingest` over the bare loop, one process; {where}",
            rates[INGEST],
            rates[LEAN],
            wanted=OVER_LEAN,
        ),
        Figure.ratio(
            f"pipeline.pages.over_lean_two.{database}",
            f"`ingest` over the bare loop, two processes; {where}",
            rates[INGEST],
            rates[LEAN_TWO],
            wanted=OVER_LEAN_TWO,
        ),
    ]


def measure_texts(session: Session, database: str) -> list[Figure]:
    """Short texts: what the pipeline does for each document outside the stages counts most."""

    def play() -> dict[str, Measured]:
        folder = session.documents(write_texts)
        found = {LEAN: session.bare(LEAN, folder, database)}
        return found | {INGEST: session.ingest(folder, database)}

    rates = _rounds(session, f"texts, {SHOWN[database]}", play)
    where = f"{session.sizes.documents:,} texts of 2 kB, {SHOWN[database]}"
    return [
        Figure.ratio(
            f"pipeline.texts.over_lean.{database}",
            f"`ingest` over the bare loop, one process; {where}",
            rates[INGEST],
            rates[LEAN],
            wanted=OVER_LEAN_TEXTS,
        )
    ]


def measure_real(session: Session, given: Path | None) -> list[Figure]:
    """Real pages with hashed vectors, against trafilatura by hand and in LlamaIndex."""
    if given is None:
        console.print(f"no real pages given (--pages or {REAL_PAGES_VARIABLE}): generated ones")
    write = _copies_of(given) if given else write_pages
    workers = _best_workers(session, write) if session.python_of_llamaindex else 0

    def play() -> dict[str, Measured]:
        folder = session.documents(write)
        found = {TRAFILATURA_TWO: session.bare(TRAFILATURA_TWO, folder, SQLITE, HASHED)}
        found[INGEST] = session.ingest(folder, SQLITE, settings=HASHED)
        if workers:
            found["llamaindex"] = session.llamaindex(folder, workers)
        return found

    rates = _rounds(session, "real pages" if given else "generated pages for real ones", play)
    what = f"{session.sizes.documents:,} {'real' if given else 'GENERATED, not real'} pages"
    figures = [
        Figure.ratio(
            "pipeline.real.over_trafilatura",
            f"`ingest` over a bare loop of trafilatura, two processes; {what}",
            rates[INGEST],
            rates[TRAFILATURA_TWO],
            wanted=OVER_TRAFILATURA,
        )
    ]
    if not workers:
        console.print("NOT COMPARED with LlamaIndex, as asked")
        return figures
    speed = Figure.ratio(
        "pipeline.real.over_llamaindex",
        f"`ingest` over LlamaIndex's IngestionPipeline; {what}",
        rates[INGEST],
        rates["llamaindex"],
        wanted=OVER_LLAMAINDEX,
    )
    processes = "one process" if workers == 1 else f"num_workers={workers}"
    speed = replace(speed, detail=f"{speed.detail}; LlamaIndex quickest with {processes}")
    return [*figures, speed, _memory(session, session.documents(write), workers, what)]


def _copies_of(given: Path) -> Callable[..., None]:
    pages = read_real_pages(given)

    def write(folder: Path, count: int, *, seed: int) -> None:
        write_copies(folder, pages, count, seed=seed)

    return write


def _best_workers(session: Session, write: Callable[..., None]) -> int:
    """Its own choice of processes: the quicker one takes part."""
    console.print("LlamaIndex with one process, and with two")
    folder = session.documents(write)
    return min((1, 2), key=lambda workers: session.llamaindex(folder, workers).seconds)


def _memory(session: Session, folder: Path, workers: int, what: str) -> Figure:
    """In runs of their own: to ask the kernel for proportional memory takes time."""
    ours = session.ingest(folder, SQLITE, "--memory", settings=HASHED).peak_mb
    theirs = session.llamaindex(folder, workers, "--memory").peak_mb
    return Figure(
        "pipeline.real.memory_of_llamaindex",
        f"peak memory of `ingest` over LlamaIndex's; {what}",
        ours / theirs,
        wanted=OF_LLAMAINDEX_MEMORY,
        lower_is_better=True,
        detail=f"{ours:,.0f} against {theirs:,.0f} MB; proportional memory of the process and its "
        "children, without the Prefect server",
    )


@contextmanager
def open_session(sizes: Sizes, databases: Sequence[str]) -> Iterator[Session]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        server = PrefectServer(folder / "server")
        console.print("starting a Prefect server …")
        environment = dict(os.environ) | server.client_environment(server.ensure())
        try:
            with open_databases(folder, with_postgres=POSTGRES in databases) as opened:
                yield Session(folder, opened, environment, sizes)
        finally:
            server.stop()


def main() -> int:
    """Run the parts asked for; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="pages, texts, real; default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--rounds", type=int, help=f"default: {FULL.rounds}")
    parser.add_argument("--documents", type=int, help=f"in each round; default: {FULL.documents:,}")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    parser.add_argument(
        "--pages",
        type=Path,
        default=given_pages(),
        help=f"a folder of real pages, .html or .html.gz; default: ${REAL_PAGES_VARIABLE}, or "
        "generated pages",
    )
    parser.add_argument("--without-peers", action="store_true", help="not LlamaIndex")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="peers' environments")
    add_options(parser)
    chosen = parser.parse_args()
    parts = chosen.parts or ["pages", "texts", "real"]
    if unknown := set(parts) - {"pages", "texts", "real"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    sizes = QUICK if chosen.quick else FULL
    sizes = Sizes(chosen.rounds or sizes.rounds, chosen.documents or sizes.documents)
    figures: list[Figure] = []
    with open_session(sizes, chosen.databases) as session:
        if "real" in parts and not chosen.without_peers:
            session.python_of_llamaindex = str(ensure_python(chosen.cache, LLAMAINDEX))
        for part, measured in (("pages", measure_pages), ("texts", measure_texts)):
            if part in parts:
                for database in chosen.databases:
                    figures += measured(session, database)
        if "real" in parts:
            figures += measure_real(session, chosen.pages)
    return report_figures(figures, chosen)


if __name__ == "__main__":
    sys.exit(main())
