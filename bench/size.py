"""What a hundred times as many documents change: `python -m bench.size [--large 100000]`.

The flow `ingest` on plain texts of 2 kB: a few times on a small folder, each on an empty database,
then once on a large one, and once more on the large one without any change. Told are the time for
each document, the end of the run, the memory, and the speed of the unchanged run.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from bench.databases import DATABASES, SHOWN
from bench.figures import Figure, add_options, report_figures
from bench.measure import Measured
from bench.pages import write_texts
from bench.pipeline import Session, Sizes, console, open_session
from penstock.crawl.files import SETTLED_SECONDS
from penstock.store.database import Database
from penstock.store.schema import run_documents

ROUNDS = 5
PROGRESS_SECONDS = 10
TIME_RATIO, END_SECONDS, GROWTH_MB, UNCHANGED_PER_SECOND = 1.1, 2.0, 100.0, 3_000.0


def measure_database(session: Session, database: str, small: int, large: int) -> list[Figure]:
    """All figures on one database."""
    few = []
    for number in range(session.sizes.rounds):
        folder = _write_texts(session, small, seed=number)
        few.append(_ingest(session, folder, session.databases.new_home(database), small))
    folder = _write_texts(session, large, seed=ROUNDS + DATABASES.index(database))
    home = session.databases.new_home(database)
    many = _ingest(session, folder, home, large)
    unchanged = _ingest(session, folder, home, large)
    return judge(database, few, many, unchanged)


def judge(database: str, few: list[Measured], many: Measured, unchanged: Measured) -> list[Figure]:
    small, large = few[0].figures["documents"], many.figures["documents"]
    where = SHOWN[database]
    best, growth = max(one.rate for one in few), _growth_mb(few, many)
    again = unchanged.figures["extractions"] + unchanged.figures["embeddings"]
    tenths = many.figures["last_over_second_tenth"]
    figures = [
        Figure(
            f"size.time_ratio.{database}",
            f"time a document at {large:,} over {small:,}; {where}",
            best / many.rate,
            wanted=TIME_RATIO,
            lower_is_better=True,
            detail=f"{1000 / many.rate:.2f} against {1000 / best:.2f} ms, the best of "
            f"{len(few)} small runs; texts of 2 kB",
        ),
        Figure(
            f"size.end.{database}",
            f"from the last document's commit to the flow's return, {large:,}; {where}",
            many.figures["end_seconds"],
            unit="s",
            wanted=END_SECONDS,
            lower_is_better=True,
            detail=f"of {many.seconds:.0f} s; {_end(few):.1f} s with {small:,} documents",
        ),
        Figure(
            f"size.memory.{database}",
            f"peak memory at {large:,} less that at {small:,}; {where}",
            growth,
            unit="MB",
            wanted=GROWTH_MB,
            lower_is_better=True,
            detail=f"{many.peak_mb:.0f} MB at {large:,}; proportional memory of the process and "
            "its children, without the Prefect server",
        ),
        Figure(
            f"size.unchanged.{database}",
            f"unchanged second run of {large:,}; {where}",
            unchanged.rate,
            unit="documents/s",
            wanted=UNCHANGED_PER_SECOND,
            detail=f"{unchanged.seconds:.1f} s; end of the run "
            f"{unchanged.figures['end_seconds']:.1f} s",
        ),
        Figure(
            f"size.unchanged_work.{database}",
            f"extracted or embedded in that unchanged run; {where}",
            again,
            unit="documents",
            wanted=0,
            lower_is_better=True,
        ),
    ]
    if tenths is not None:
        figures.append(
            Figure(
                f"size.last_tenth.{database}",
                f"time of the last tenth of {large:,} over that of the second; {where}",
                tenths,
                lower_is_better=True,
                detail="within one run, so without what every run costs once",
            )
        )
    return figures


def _growth_mb(few: list[Measured], many: Measured) -> float:
    return many.peak_mb - statistics.median(one.peak_mb for one in few)


def _end(few: list[Measured]) -> float:
    return statistics.median(float(one.figures["end_seconds"]) for one in few)


def _write_texts(session: Session, count: int, seed: int) -> Path:
    """A folder of texts that is old enough for its files to be known by their times."""
    console.print(f"writing {count:,} texts …")
    folder = Path(tempfile.mkdtemp(prefix="texts-", dir=session.folder)) / "texts"
    write_texts(folder, count, seed=seed)
    time.sleep(SETTLED_SECONDS)
    return folder


def _ingest(session: Session, folder: Path, home: dict[str, str], documents: int) -> Measured:
    with _progress(home, documents):
        return session.ingest_into(home, folder, "--memory")


@contextmanager
def _progress(home: dict[str, str], documents: int) -> Iterator[None]:
    """Tell now and then how many documents of the newest run are settled."""
    url = home.get("PENSTOCK_DSN") or f"sqlite:///{home['PENSTOCK_HOME']}/penstock.db"
    over = threading.Event()

    def tell() -> None:
        while not over.wait(PROGRESS_SECONDS):
            with suppress(sa.exc.SQLAlchemyError):
                console.print(f"    {_settled(url):,} of {documents:,}")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _settled(url: str) -> int:
    newest = sa.select(sa.func.max(run_documents.c.run_id)).scalar_subquery()
    counted = sa.select(sa.func.count()).where(
        run_documents.c.run_id == newest, run_documents.c.status != "pending"
    )
    database = Database(url)
    try:
        with database.read() as tx:
            return int(tx.execute(counted).scalar_one())
    finally:
        database.close()


def main() -> int:
    """Run on the databases asked for; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--database", choices=DATABASES, help="default: both")
    add_options(parser)
    chosen = parser.parse_args()
    small, large, rounds = (50, 200, 1) if chosen.quick else (chosen.small, chosen.large, ROUNDS)
    databases = [chosen.database] if chosen.database else list(DATABASES)
    figures: list[Figure] = []
    with open_session(Sizes(rounds, small), databases) as session:
        for database in databases:
            figures += measure_database(session, database, small, large)
    return report_figures(figures, chosen)


if __name__ == "__main__":
    sys.exit(main())
