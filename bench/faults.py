"""`python -m bench.faults [scenario …]`: every fault at its full length and number of repetitions.

Ends with 1 when anything was lost, done twice, miscounted or left behind.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from tests.faults.scenarios import (
    clocks,
    kills,
    models,
    orchestrator,
    pauses,
    poison,
    races,
    redis_outages,
    stores,
)


class Result(Protocol):
    """What became of one scenario; its text is its figures."""

    @property
    def problems(self) -> list[str]: ...


SCENARIOS: dict[str, Callable[[], Iterator[Result]]] = {
    "kills": kills.endure_all,
    "pauses": pauses.endure_all,
    "stores": stores.endure_all,
    "redis": redis_outages.endure_all,
    "models": models.endure_all,
    "orchestrator": orchestrator.endure_all,
    "clocks": clocks.endure_all,
    "races": races.endure_all,
    "poison": poison.endure_all,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; default: all")
    chosen = parser.parse_args().scenarios or list(SCENARIOS)
    unknown = set(chosen) - set(SCENARIOS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    failed = sum(_run(name) for name in chosen)
    sys.exit(1 if failed else 0)


def _run(name: str) -> int:
    """How many of its results show a problem."""
    failed, began = 0, time.monotonic()
    for result in SCENARIOS[name]():
        failed += bool(result.problems)
        verdict = "FAILED" if result.problems else "ok"
        print(f"{verdict:6} {name}: {result}", flush=True)  # noqa: T201 - this is a command
    took = f"       {name} took {time.monotonic() - began:.0f} s"
    print(took, flush=True)  # noqa: T201 - this is a command
    return failed


if __name__ == "__main__":
    main()
