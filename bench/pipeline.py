"""The pipeline against a bare loop over the same stage functions: `make bench`.

(a) a bare one-process loop with one bulk write, once with all the functions that `ingest` calls and
once lean, with text, extract and embed only, (b) the flow `ingest`. Both run in processes of
their own, alternating in one session, on the same pages. Times are of the work: (a) after its
imports and its model's loading, (b) from the flow's call to its return.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import Measured, measure
from bench.pages import write_pages
from entrypoints.local.prefect_server import PrefectServer

REPEATS = 3
console = Console()


@dataclass(frozen=True, slots=True)
class Target:
    """What must hold, and whether it did."""

    what: str
    wanted: str
    measured: str
    met: bool


class Session:
    """One bench, in a folder of its own, on one Prefect server."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment

    def write_pages(self, count: int, seed: int) -> Path:
        pages = self._folder / f"pages-{count}-{seed}"
        write_pages(pages, count, seed=seed)
        return pages

    def new_home(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="home-", dir=self._folder))

    def bare(self, pages: Path, *options: str) -> Measured:
        return self._measure("bench.bare", pages, self.new_home(), *options)

    def ingest(self, pages: Path, home: Path) -> Measured:
        return self._measure("bench.ingesting", pages, home)

    def _measure(self, module: str, pages: Path, home: Path, *options: str) -> Measured:
        environment = self._environment | {"PENSTOCK_HOME": str(home)}
        found = measure(module, str(pages), *options, environment=environment)
        rate = found.figures["documents"] / found.seconds
        console.print(
            f"{' '.join((module, *options))} on {pages.name}: "
            f"{found.seconds:.1f} s, {rate:.0f} documents/s, peak {found.peak_mb:.0f} MB",
            highlight=False,
        )
        return found


def run(session: Session, small: int, large: int) -> list[Target]:
    """Measure, and compare with what is wanted."""
    bare, lean, flow = [], [], []
    for repeat in range(REPEATS):
        # New pages each time: a batch the flow has seen is taken from its cache.
        pages = session.write_pages(small, seed=repeat)
        bare.append(session.bare(pages))
        lean.append(session.bare(pages, "--lean"))
        flow.append(session.ingest(pages, session.new_home()))
    pages, home = session.write_pages(large, seed=99), session.new_home()
    long, unchanged = session.ingest(pages, home), session.ingest(pages, home)
    return _targets(small, large, bare, lean, flow, long, unchanged)


def _targets(
    small: int,
    large: int,
    bare: list[Measured],
    lean: list[Measured],
    flow: list[Measured],
    long: Measured,
    unchanged: Measured,
) -> list[Target]:
    best_bare = min(one.seconds for one in bare)
    best_flow = min(one.seconds for one in flow)
    best_lean = min(one.seconds for one in lean)
    ratio, lean_ratio = best_bare / best_flow, best_lean / best_flow
    per_small, per_large = best_flow / small, long.seconds / large
    growth = long.peak_mb - max(one.peak_mb for one in flow)
    speedup = long.seconds / unchanged.seconds
    idle = unchanged.figures["extractions"] + unchanged.figures["embeddings"] == 0
    return [
        Target("bare loop", "", f"{small / best_bare:.0f} documents/s", True),
        Target("ingest", "", f"{small / best_flow:.0f} documents/s", True),
        Target("ingest over bare", "≥ 1.3", f"{ratio:.2f}", ratio >= 1.3),
        Target("ingest over lean bare", "≥ 1.3", f"{lean_ratio:.2f}", lean_ratio >= 1.3),
        Target(
            f"time a document at {large:,} over {small:,}",
            "≤ 1.15",
            f"{per_large / per_small:.2f}",
            per_large / per_small <= 1.15,
        ),
        Target(
            f"memory growth from {small:,} to {large:,}",
            "< 100 MB",
            f"{growth:.0f} MB",
            growth < 100,
        ),
        Target(
            f"unchanged second run of {large:,}",
            "≥ 10 ×, nothing extracted or embedded",
            f"{speedup:.1f} ×, {'nothing' if idle else 'SOMETHING'}",
            speedup >= 10 and idle,
        ),
    ]


def _print(targets: list[Target]) -> None:
    table = Table("what", "wanted", "measured", "")
    for target in targets:
        mark = "" if not target.wanted else "met" if target.met else "MISSED"
        table.add_row(target.what, target.wanted, target.measured, mark)
    console.print(table)


def main() -> int:
    """Run the whole bench; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=10_000)
    sizes = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server = PrefectServer(Path(folder) / "server")
        console.print("starting a Prefect server …")
        address = server.ensure()
        try:
            environment = dict(os.environ) | server.client_environment(address)
            targets = run(Session(Path(folder), environment), sizes.small, sizes.large)
        finally:
            server.stop()
    _print(targets)
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
