"""The work queue beside other queues: `python -m bench.queue [--rounds 4] [--without-peers]`.

No-op jobs, enqueued in bulk and then processed by one worker, on a Postgres, a Valkey and SQLite
files that the bench starts and removes. Contenders take turns, each in a process of its own on an
empty store; the best round of each counts. Peers are rq, arq, procrastinate and huey, in
environments that the bench makes; the floor is the same claims as SQL written by hand.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.pipeline import Target
from bench.queue_assignment import Assignment
from bench.queue_contenders import OURS, PEERS, Contender, Kind, Store
from bench.queue_environments import default_cache, ensure_python
from bench.queue_intake import CLIENTS, load, serving
from bench.queue_servers import Servers, start_servers
from bench.queue_targets import Board, Result
from bench.text import print_targets

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


FULL = Sizes(4, 6_000, 1.0, 10_000)
QUICK = Sizes(1, 200, 0.05, 200)


_OURS_ON_POSTGRES = next(
    one for one in OURS if one.kind is Kind.OURS and one.store is Store.POSTGRES
)


class Session:
    """One bench on one set of servers."""

    def __init__(self, servers: Servers, sizes: Sizes, cache: Path) -> None:
        self._servers = servers
        self._sizes = sizes
        self._cache = cache

    def take_in(self) -> list[Target]:
        """`POST /nodes` by many clients at once, with the counters in the database and in Redis."""
        targets: list[Target] = []
        for name, redis_url in (("", None), (" with Redis", self._servers.redis_url)):
            with (
                tempfile.TemporaryDirectory(prefix="penstock-intake-") as home,
                self._servers.open_store(_OURS_ON_POSTGRES) as dsn,
                serving(dsn, redis_url, Path(home)) as address,
            ):
                found = load(address, dsn, self._sizes.intake)
            told = (
                f"{found.per_second:.0f} requests/s, p50 {1000 * found.quantile(0.5):.0f} ms, "
                f"p99 {1000 * found.quantile(0.99):.0f} ms"
            )
            targets.append(Target(f"POST /nodes{name}, {CLIENTS} clients", "", told, True))
            lost = found.lost + found.refused
            targets.append(Target("accepted and lost, or refused", "0", str(lost), lost == 0))
        return targets

    def race(self, contenders: Sequence[Contender]) -> Board:
        """Every contender once in each round."""
        rates: dict[tuple[Contender, str], list[float]] = {}
        for number in range(self._sizes.rounds):
            console.print(f"round {number + 1} of {self._sizes.rounds}")
            for contender in contenders:
                for figure, rate in self._measure(contender).items():
                    rates.setdefault((contender, figure), []).append(rate)
        return Board([Result(*key, tuple(taken)) for key, taken in rates.items()])

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
    table = Table("who", "what", "jobs/s, best round", "slowest round")
    for result in board.results:
        best, slowest = f"{result.best:,.0f}", f"{result.slowest:,.0f}"
        table.add_row(result.contender.name, result.figure, best, slowest)
    console.print(table)


def main() -> int:
    """Run the whole bench; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--rounds", type=int, help="more of them for a busy machine")
    parser.add_argument("--without-peers", action="store_true", help="only ours and the floor")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="peers' environments")
    chosen = parser.parse_args()
    sizes = QUICK if chosen.quick else FULL
    sizes = replace(sizes, rounds=chosen.rounds or sizes.rounds)
    contenders = OURS if chosen.without_peers else [*OURS, *PEERS]
    with start_servers() as servers:
        session = Session(servers, sizes, chosen.cache)
        board = session.race(contenders)
        intake = session.take_in()
    print_rates(board)
    if chosen.without_peers:
        console.print("NOT COMPARED with peers, as asked")
    targets = [*board.judge(), *intake]
    print_targets(targets)
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
