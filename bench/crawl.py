"""The crawler against a bare httpx loop: `python -m bench.crawl`.

A loopback site in a process of its own answers every page after 20 ms. Both fetch with the same
number of threads, robots.txt has no rules and there is no delay; rounds alternate, each in a
process of its own, the best of each counts. Ours also compares, fingerprints, keeps raw bytes, and
records nodes and work items in SQLite.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.crawl_site import make_page
from bench.measure import Measured, measure
from bench.pipeline import Target, console
from bench.text import print_targets
from penstock.crawl.simhash import simhash, visible_text

THREADS = 8
ROUNDS = 3
LATENCY_SECONDS = 0.02
# Memory that comes and goes without anything growing: a pool's arenas, SQLite's cache.
FLAT_MB = 5.0
SIMHASH_SECONDS = 2.0


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


def judge_speed(folder: Path, pages: int) -> list[Target]:
    bare, ours = [], []
    with running_site(pages, LATENCY_SECONDS) as site:
        urls = write_list(folder, site, pages)
        for number in range(ROUNDS):
            bare.append(_measured("bench.crawl_bare", urls, str(THREADS)))
            home = folder / f"home-{number}"
            ours.append(_measured("bench.crawl_ours", urls, str(home), str(THREADS)))
    best_bare = min(one.seconds for one in bare)
    best_ours = min(one.seconds for one in ours)
    ratio = best_bare / best_ours
    return [
        Target("bare httpx", "", f"{pages / best_bare:.0f} pages/s", True),
        Target("crawl", "", f"{pages / best_ours:.0f} pages/s", True),
        Target("crawl over bare httpx", "≥ 0.85 ×", f"{ratio:.2f} ×", ratio >= 0.85),
    ]


def judge_recheck(folder: Path, pages: int) -> list[Target]:
    """Unchanged pages asked about again: a tenth of them first, then all, each twice."""
    small, large = pages // 10, pages
    with running_site(large, 0.0) as site:
        few = _recheck(folder / "few", site, small)
        many = _recheck(folder / "many", site, large)
    growth = many.peak_mb - few.peak_mb
    of_a_page = growth * 1024 / (large - small)
    besides = growth - (_addresses_mb(site, large) - _addresses_mb(site, small))
    what = f"memory at {large} pages re-checked over {small}"
    return [
        Target("re-check by conditional GET", "", f"{large / many.seconds:.0f} pages/s", True),
        Target(what, "", f"{growth:.1f} MB, {of_a_page:.2f} kB a page", True),
        Target(
            "the same without their addresses",
            f"≤ {FLAT_MB:.0f} MB",
            f"{besides:.1f} MB",
            besides <= FLAT_MB,
        ),
    ]


def judge_simhash() -> list[Target]:
    """Fingerprints of 5 kB of text, and of whole pages, on one core."""
    pages = [make_page(number) for number in range(200)]
    texts = [visible_text(page)[:5000] for page in pages]
    of_text = _rate(lambda number: simhash(texts[number % len(texts)]))
    of_page = _rate(lambda number: simhash(visible_text(pages[number % len(pages)])))
    return [
        Target("SimHash of 5 kB of text", "≥ 3,000 pages/s", f"{of_text:.0f}", of_text >= 3000),
        Target("the same from the page's HTML", "", f"{of_page:.0f} pages/s", True),
    ]


def _rate(work: Callable[[int], object]) -> float:
    done, deadline = 0, time.perf_counter() + SIMHASH_SECONDS
    started = time.perf_counter()
    while time.perf_counter() < deadline:
        work(done)
        done += 1
    return done / (time.perf_counter() - started)


def _recheck(folder: Path, site: str, pages: int) -> Measured:
    folder.mkdir()
    urls = write_list(folder, site, pages)
    _measured("bench.crawl_ours", urls, str(folder / "home"), str(THREADS))
    return _measured("bench.crawl_ours", urls, str(folder / "home"), str(THREADS))


def _addresses_mb(site: str, pages: int) -> float:
    """What it takes to know which pages came by: the listing and the run remember them in a set
    each, which share the texts."""
    urls = {f"{site}/page/{number}" for number in range(pages)}
    return (2 * sys.getsizeof(urls) + sum(map(sys.getsizeof, urls))) / 1024**2


def _measured(module: str, urls: Path, *arguments: str) -> Measured:
    found = measure(module, str(urls), *arguments, environment=dict(os.environ))
    rate = found.figures["pages"] / found.seconds
    console.print(
        f"{module} {urls.name}: {found.seconds:.2f} s, {rate:.0f} pages/s, "
        f"peak {found.peak_mb:.0f} MB",
        highlight=False,
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--unchanged", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-crawl-") as folder:
        targets = judge_speed(Path(folder), chosen.pages)
        targets += judge_recheck(Path(folder), chosen.unchanged)
        targets += judge_simhash()
    print_targets(targets)
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
