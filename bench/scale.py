"""`python -m bench.scale [workers|overhead|calls|costs]`: how far it scales, and at what cost.

An installation of its own: Postgres, a Prefect server on another Postgres, Redis, all deployments,
and a stand-in for the models with 50 ms of latency, each in processes of their own. (workers) one,
two and four workers on one run; (overhead) from `prefect deployment run` to the first document;
(calls) requests to Prefect's API; (costs) what one document costs each part. All of it by default.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from bench.figures import Figure, add_options, report_figures
from bench.scaling import calls, costs, overhead, throughput
from bench.scaling.crews import FLOW, WORKER
from bench.scaling.installation import Installation, open_installation

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    documents: int
    rounds: int
    concurrency: int
    flows: bool


def measure_workers(place: Installation, sizes: Sizes) -> list[Figure]:
    """Crews take turns in every round, so that a busy machine is busy for all of them."""
    worked = []
    for _ in range(sizes.rounds):
        for crew in throughput.CREWS:
            worked.append(throughput.work(place, WORKER, crew, sizes.documents, sizes.concurrency))
            console.print(str(worked[-1]))
    if sizes.flows:
        tell_flows(place, sizes)
    return throughput.judge(worked)


def tell_flows(place: Installation, sizes: Sizes) -> None:
    """Flow runs of `process` instead. Not judged: their tasks exhaust two cores."""
    for crew in throughput.CREWS:
        found = throughput.work(place, FLOW, crew, sizes.documents, sizes.concurrency)
        console.print(str(found))


def measure_overhead(place: Installation, sizes: Sizes) -> list[Figure]:
    started = []
    for poll_seconds in (overhead.QUICK_POLL_SECONDS, overhead.DEFAULT_POLL_SECONDS):
        started += overhead.measure_overhead(place, poll_seconds, sizes.rounds + 1)
    for one in started:
        console.print(str(one))
    return overhead.tell(started)


def count_calls(place: Installation, sizes: Sizes) -> list[Figure]:
    called = calls.count_calls(place, min(sizes.documents, calls.DOCUMENTS))
    for line in calls.describe(called):
        console.print(line)
    return calls.judge(called)


def weigh_costs(place: Installation, sizes: Sizes) -> list[Figure]:
    found = costs.weigh(place, sizes.documents)
    for line in costs.describe(found):
        console.print(line)
    return costs.tell(found)


PARTS: dict[str, Callable[[Installation, Sizes], list[Figure]]] = {
    "workers": measure_workers,
    "overhead": measure_overhead,
    "calls": count_calls,
    "costs": weigh_costs,
}


def main() -> int:
    """Run the parts that are named; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; none: all")
    parser.add_argument("--quick", action="store_true", help="one round of 400 documents")
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=1, help="calls at once of one worker")
    parser.add_argument("--flows", action="store_true", help="crews of flow runs too")
    add_options(parser)
    wanted = parser.parse_args()
    unknown = set(wanted.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    # A supervisor's stop, too, goes through the blocks that end the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    documents, rounds = (400, 1) if wanted.quick else (wanted.documents, wanted.rounds)
    sizes = Sizes(documents, rounds, wanted.concurrency, wanted.flows)
    console.print("starting servers and installing deployments …")
    with open_installation() as place:
        figures = [figure for part in wanted.parts or PARTS for figure in PARTS[part](place, sizes)]
    return report_figures(figures, wanted)


if __name__ == "__main__":
    sys.exit(main())
