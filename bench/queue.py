"""The work queue beside other queues: `python -m bench.queue [--rounds 5] [--without-peers]`.

No-op jobs, enqueued in bulk and then processed by one worker, on a Postgres, a Valkey and SQLite
files that the bench starts and removes. Contenders take turns, each in a process of its own on an
empty store; the best round of each counts. Peers are rq, arq, procrastinate and huey, in
environments that the bench makes; the floor is the same claims as SQL written by hand.

Then `POST /nodes` beside the same endpoint written bare, how long interrupted documents wait behind
a backlog, and sixteen worker processes beside four.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figure, add_options, report_figures
from bench.queue_assignment import Assignment
from bench.queue_contenders import OURS, PEERS, Contender, Kind
from bench.queue_environments import default_cache, ensure_python
from bench.queue_intake import measure_intake
from bench.queue_processes import measure_processes
from bench.queue_rescue import measure_rescue
from bench.queue_servers import Servers, start_servers
from bench.queue_targets import Board, Result

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 180
console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done."""

    rounds: int
    enqueue: int
    share: float
    """Of the jobs that each contender is given to process."""
    intake: int
    backlog: int
    """Before interrupted documents."""
    drained: int
    """By several processes."""


FULL = Sizes(5, 6_000, 1.0, 4_000, 20_000, 30_000)
QUICK = Sizes(1, 200, 0.05, 200, 500, 1_000)


class Session:
    """One bench on one set of servers."""

    def __init__(self, servers: Servers, sizes: Sizes, cache: Path) -> None:
        self._servers = servers
        self._sizes = sizes
        self._cache = cache

    def race(self, contenders: Sequence[Contender]) -> Board:
        """Every contender once in each round."""
        rates: dict[tuple[Contender, str], list[float]] = {}
        for number in range(self._sizes.rounds):
            console.print(f"round {number + 1} of {self._sizes.rounds}")
            for contender in contenders:
                for figure, rate in self._measure(contender).items():
                    rates.setdefault((contender, figure), []).append(rate)
        return Board([Result(*key, tuple(taken)) for key, taken in rates.items()])

    def measure_others(self) -> list[Figure]:
        """What only our queue is asked for."""
        rounds, sizes = self._sizes.rounds, self._sizes
        return [
            *measure_intake(self._servers, rounds=rounds, requests=sizes.intake),
            *measure_rescue(self._servers, rounds=rounds, backlog=sizes.backlog),
            *measure_processes(self._servers, rounds=rounds, jobs=sizes.drained),
        ]

    def _measure(self, contender: Contender) -> dict[str, float]:
        python = self._python(contender)
        with self._servers.open_store(contender) as address:
            found = _run(python, contender.module, self._assign(contender, address))
        told = "; ".join(f"{figure} {rate:,.0f}/s" for figure, rate in found.items())
        console.print(f"  {contender.name}: {told}")
        return found

    def _assign(self, contender: Contender, address: str) -> Assignment:
        jobs = round(contender.jobs * self._sizes.share)
        redis_url, way = self._servers.redis_url, contender.way
        return Assignment(address, self._sizes.enqueue, jobs, redis_url, way)

    def _python(self, contender: Contender) -> str:
        if contender.kind is not Kind.PEER:
            return sys.executable
        return str(ensure_python(self._cache, contender.requirements))


def _run(python: str, module: str, assignment: Assignment) -> dict[str, float]:
    done = subprocess.run(
        [python, "-m", module, assignment.write()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode:
        raise SystemExit(f"{module} failed:\n{done.stdout}{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def print_rates(board: Board) -> None:
    """Every figure that was taken."""
    table = Table("who", "what", "jobs/s, best round", "median", "slowest round")
    for result in board.results:
        shown = [f"{rate:,.0f}" for rate in (result.best, result.median, result.slowest)]
        table.add_row(result.contender.name, result.figure, *shown)
    console.print(table)


def main() -> int:
    """Run the whole bench; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--rounds", type=int, help="more of them for a busy machine")
    parser.add_argument("--without-peers", action="store_true", help="only ours and the floor")
    add_options(parser)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="peers' environments")
    chosen = parser.parse_args()
    sizes = QUICK if chosen.quick else FULL
    sizes = replace(sizes, rounds=chosen.rounds or sizes.rounds)
    contenders = OURS if chosen.without_peers else [*OURS, *PEERS]
    with start_servers() as servers:
        session = Session(servers, sizes, chosen.cache)
        board = session.race(contenders)
        others = session.measure_others()
    print_rates(board)
    if chosen.without_peers:
        console.print("NOT COMPARED with peers, as asked")
    return report_figures([*board.figures(), *others], chosen)


if __name__ == "__main__":
    sys.exit(main())
