"""Worker processes on one Postgres: does the claim become the limit when there are many?

Run as a module, it is one of the processes: for each line it reads, it drains the queue.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.figures import Figure
from bench.queue_assignment import Assignment, check_done, read_assignment
from bench.queue_contenders import OURS, Kind, Store
from bench.queue_penstock import Bench, refresh_statistics
from bench.queue_servers import Servers
from penstock.documents import Stage
from penstock.queue.items import ItemStatus
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.store.database import Database

ROOT = Path(__file__).parents[1]
CLAIMS = 50
FEW, MANY = 4, 16


def measure_processes(servers: Servers, *, rounds: int, jobs: int) -> list[Figure]:
    """Jobs per second of all processes together."""
    contender = next(one for one in OURS if one.kind is Kind.OURS and one.store is Store.POSTGRES)
    rates: dict[int, list[float]] = {FEW: [], MANY: []}
    with servers.open_store(contender) as address, _processes(address) as processes:
        for _ in range(rounds):
            for number, found in rates.items():
                found.append(_drain(address, processes[:number], jobs))
    return [
        Figure.ratio(
            "queue.processes",
            f"{MANY} worker processes on one Postgres, claims of {CLAIMS}, over {FEW}",
            rates[MANY],
            rates[FEW],
            wanted=1.0,
            unit="jobs/s",
        )
    ]


@contextmanager
def _processes(address: str) -> Iterator[list["subprocess.Popen[str]"]]:
    given = Assignment(address, 0, 0, "").write()
    command = [sys.executable, "-m", "bench.queue_processes", given]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(MANY)
    ]
    try:
        for process in started:
            _read_line(process)
        yield started
    finally:
        for process in started:
            process.terminate()
            process.wait()


def _drain(address: str, processes: Sequence["subprocess.Popen[str]"], jobs: int) -> float:
    with closing(Database(address)) as database:
        bench = Bench(database, WorkQueue(default_rules()))
        done = bench.count(ItemStatus.COMPLETE)
        bench.enqueue(jobs, Stage.TEXT)
        refresh_statistics(database)
        began = time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("drain\n")
            process.stdin.flush()
        for process in processes:
            _read_line(process)
        seconds = time.perf_counter() - began
        check_done(bench.count(ItemStatus.COMPLETE) - done, jobs)
    return jobs / seconds


def _read_line(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit(f"a worker process ended with {process.wait()}")


def main(given: Assignment) -> None:
    with closing(Database(given.address)) as database:
        bench = Bench(database, WorkQueue(default_rules()))
        # A worker compiles its statements once in its life.
        bench.enqueue(2 * CLAIMS, Stage.TEXT)
        bench.work(CLAIMS, 1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            bench.work(CLAIMS, 1)
            sys.stdout.write("done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(read_assignment())
