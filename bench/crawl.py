"""The crawler against a bare httpx loop: `python -m bench.crawl`.

A loopback site in a process of its own answers every page after 20 ms. Both fetch with the same
number of threads, robots.txt has no rules and there is no delay; rounds alternate, each in a
process of its own, the best of each counts. Ours also compares, fingerprints, keeps raw bytes, and
records nodes and work items in SQLite.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bench.crawl_site import make_page
from bench.figures import Figure, add_options, report_figures
from bench.measure import Measured, measure
from penstock.crawl.simhash import simhash, visible_text

THREADS = 8
ROUNDS = 5
LATENCY_SECONDS = 0.02
# Memory that comes and goes without anything growing: a pool's arenas, SQLite's cache.
FLAT_MB = 5.0
SIMHASH_SECONDS = 2.0
OVER_BARE, SIMHASHES_PER_SECOND = 0.85, 3_000.0
console = Console(highlight=False, soft_wrap=True)


@contextmanager
def running_site(pages: int, latency_seconds: float) -> Iterator[str]:
    """The address of a site; it ends with the block."""
    command = [sys.executable, "-m", "bench.crawl_site", str(pages), str(latency_seconds)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.terminate()
        server.communicate()


def write_list(folder: Path, site: str, pages: int) -> Path:
    path = folder / f"urls-{pages}.txt"
    path.write_text("\n".join(f"{site}/page/{number}" for number in range(pages)))
    return path


def measure_speed(folder: Path, pages: int, rounds: int) -> list[Figure]:
    bare, ours = [], []
    with running_site(pages, LATENCY_SECONDS) as site:
        urls = write_list(folder, site, pages)
        for number in range(rounds):
            bare.append(_measured("bare", urls).rate)
            ours.append(_measured("ours", urls, str(folder / f"home-{number}")).rate)
    what = f"crawl over a bare httpx loop, {pages:,} pages, {THREADS} at once"
    return [Figure.ratio("crawl.over_bare", what, ours, bare, wanted=OVER_BARE, unit="pages/s")]


def measure_recheck(folder: Path, pages: int, rounds: int) -> list[Figure]:
    """Unchanged pages asked about again: a tenth of them first, then all, alternating."""
    small, large = pages // 10, pages
    with running_site(large, 0.0) as site:
        few_home, many_home = (
            _crawled(folder / name, site, count)
            for name, count in (("few", small), ("many", large))
        )
        found = [
            (_measured("ours", *few_home), _measured("ours", *many_home)) for _ in range(rounds)
        ]
        addresses_mb = _addresses_mb(site, large) - _addresses_mb(site, small)
    growths = [many.peak_mb - few.peak_mb for few, many in found]
    growth = statistics.median(growths)
    rates = [many.rate for _, many in found]
    return [
        Figure(
            "crawl.recheck",
            f"re-check of {large:,} unchanged pages by conditional GET",
            max(rates),
            "pages/s",
            detail=f"median {statistics.median(rates):,.0f}; {rounds} rounds",
        ),
        Figure(
            "crawl.recheck_memory",
            f"memory at {large:,} pages re-checked over {small:,}, without their addresses",
            growth - addresses_mb,
            "MB",
            FLAT_MB,
            lower_is_better=True,
            detail=f"median of {rounds} rounds, {min(growths) - addresses_mb:.1f} to "
            f"{max(growths) - addresses_mb:.1f}; with addresses {growth:.1f} MB, "
            f"{growth * 1024 / (large - small):.2f} kB a page",
        ),
    ]


def measure_simhash() -> list[Figure]:
    """Fingerprints of 5 kB of text, and of whole pages, on one core."""
    pages = [make_page(number) for number in range(200)]
    texts = [visible_text(page)[:5000] for page in pages]
    of_text = _rate(lambda number: simhash(texts[number % len(texts)]))
    of_page = _rate(lambda number: simhash(visible_text(pages[number % len(pages)])))
    what = "SimHash of 5 kB of text, one core"
    return [
        Figure("crawl.simhash", what, of_text, "pages/s", SIMHASHES_PER_SECOND),
        Figure("crawl.simhash_page", "the same from the page's HTML", of_page, "pages/s"),
    ]


def _rate(work: Callable[[int], object]) -> float:
    done, deadline = 0, time.perf_counter() + SIMHASH_SECONDS
    started = time.perf_counter()
    while time.perf_counter() < deadline:
        work(done)
        done += 1
    return done / (time.perf_counter() - started)


def _crawled(folder: Path, site: str, pages: int) -> tuple[Path, str]:
    """A list of pages, and a home that knows them."""
    folder.mkdir()
    urls, home = write_list(folder, site, pages), str(folder / "home")
    _measured("ours", urls, home)
    return urls, home


def _addresses_mb(site: str, pages: int) -> float:
    """What it takes to know which pages came by: the listing and the run remember them in a set
    each, which share the texts."""
    urls = {f"{site}/page/{number}" for number in range(pages)}
    return (2 * sys.getsizeof(urls) + sum(map(sys.getsizeof, urls))) / 1024**2


def _measured(side: str, urls: Path, *arguments: str) -> Measured:
    command = (side, str(urls), str(THREADS), *arguments)
    found = measure("bench.crawl_sides", *command, environment=dict(os.environ))
    console.print(
        f"{side} {urls.name}: {found.seconds:.2f} s, {found.rate:.0f} pages/s, "
        f"peak {found.peak_mb:.0f} MB"
    )
    return found


def main() -> int:
    """Run the whole bench; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--unchanged", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    add_options(parser)
    chosen = parser.parse_args()
    pages, unchanged = (50, 100) if chosen.quick else (chosen.pages, chosen.unchanged)
    rounds = 1 if chosen.quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="penstock-crawl-") as folder:
        figures = measure_speed(Path(folder), pages, rounds)
        figures += measure_recheck(Path(folder), unchanged, rounds)
        figures += measure_simhash()
    return report_figures(figures, chosen)


if __name__ == "__main__":
    sys.exit(main())
