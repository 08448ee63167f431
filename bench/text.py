"""The text stage against the libraries it is built from, and others: `python -m bench.text`.

(a) PDFs and (b) pages are read by one contender at a time, each in a process of its own, taking
turns in one session; the best round of each counts. (c) and (d) tell what child processes cost.
`--pages` takes a folder with `ground-truth.json` and `html/*.html.gz`, as the public
article-extraction-benchmark has them; without it, made-up pages are read.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import Measured, measure
from bench.pipeline import Target
from bench.text_targets import (
    OURS,
    POOL,
    judge_children,
    judge_pages,
    judge_pdfs,
    rate,
    tell_only,
)

INSTALL = "uv sync --group bench"
PAGE_LIBRARIES = {
    "trafilatura": "trafilatura",
    "trafilatura-fast": "trafilatura",
    "readability": "readability",
    "resiliparse": "resiliparse",
}
PDF_LIBRARIES = {"pypdfium2": "pypdfium2", "pdfplumber": "pdfplumber", "pypdf": "pypdf"}
# Pages per second of these are a small part of the others', so a part of the files is enough.
SLOW = frozenset({"pdfplumber", "pypdf"})
console = Console()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is read."""

    rounds: int
    pdfs: int
    pdf_pages: int
    slow_pdfs: int
    known_pages: int
    small_documents: int
    many_pdfs: int
    warm_pdfs: int
    short_pdfs: int = 50


FULL = Sizes(5, 120, 8, 12, 100, 4_000, 5_000, 500)
QUICK = Sizes(1, 4, 2, 1, 4, 200, 100, 50, short_pdfs=10)


class Session:
    """One bench, on documents in a folder of its own or in those given."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self._folder = folder
        self._sizes = sizes

    def make_documents(self) -> None:
        sizes = self._sizes
        counts = (sizes.pdfs, sizes.pdf_pages, sizes.short_pdfs, sizes.known_pages)
        self._measure("bench.text_corpus", str(self._folder), *map(str, counts))

    def race_pdfs(self) -> dict[str, Measured]:
        sizes = self._sizes
        return self._race_pdfs(self._folder / "pdfs", sizes.pdfs, sizes.slow_pdfs)

    def race_given_pdfs(self, folder: Path) -> dict[str, Measured]:
        return self._race_pdfs(folder, sys.maxsize, sys.maxsize)

    def race_pages(self, folder: Path | None) -> dict[str, Measured]:
        place = str(folder or self._folder / "pages")
        names = [OURS, *_installed(PAGE_LIBRARIES)]
        return self._race({name: ("bench.text_pages", name, place) for name in names})

    def overhead(self) -> Measured:
        return self._measure("bench.text_pool", "overhead", str(self._sizes.small_documents))

    def growth(self) -> Measured:
        counts = (self._sizes.many_pdfs, self._sizes.warm_pdfs)
        short = str(self._folder / "short")
        return self._measure("bench.text_pool", "growth", short, *map(str, counts))

    def _race_pdfs(self, folder: Path, most: int, most_slow: int) -> dict[str, Measured]:
        names = [OURS, POOL, *_installed(PDF_LIBRARIES)]
        counts = {name: str(most_slow if name in SLOW else most) for name in names}
        return self._race(
            {name: ("bench.text_pdfs", name, str(folder), counts[name]) for name in names}
        )

    def _race(self, commands: Mapping[str, tuple[str, ...]]) -> dict[str, Measured]:
        """Every contender once in each round; the quickest round of each."""
        best: dict[str, Measured] = {}
        for _ in range(self._sizes.rounds):
            for name, command in commands.items():
                found = self._measure(*command)
                if name not in best or found.seconds < best[name].seconds:
                    best[name] = found
        for name, found in best.items():
            console.print(f"  {name}: {rate(found):.1f} pages/s, peak {found.peak_mb:.0f} MB")
        return best

    def _measure(self, module: str, *arguments: str) -> Measured:
        console.print(f"python -m {module} {' '.join(arguments)}", highlight=False, soft_wrap=True)
        return measure(module, *arguments, environment=dict(os.environ))


def _installed(libraries: dict[str, str]) -> list[str]:
    missing = sorted({module for module in libraries.values() if find_spec(module) is None})
    if missing:
        console.print(f"NOT COMPARED, not installed: {', '.join(missing)}. To install: {INSTALL}")
    return [name for name, module in libraries.items() if module not in missing]


def print_scores(best: dict[str, Measured]) -> None:
    """Quality and speed of every way of reading pages."""
    table = Table("pages", "F1", "odd half", "even half", "pages/s")
    for name, found in best.items():
        scores = (f"{found.figures[key]:.4f}" for key in ("f1", "f1_odd", "f1_even"))
        table.add_row(name, *scores, f"{rate(found):.0f}")
    console.print(table)


def print_targets(targets: list[Target]) -> None:
    """What was wanted, and what came out."""
    table = Table("what", "wanted", "measured", "")
    for target in targets:
        mark = "" if not target.wanted else "MET" if target.met else "MISSED"
        table.add_row(target.what, target.wanted, target.measured, mark)
    console.print(table)


def main() -> int:
    """Run the whole bench; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, help="a folder of pages whose text is known")
    parser.add_argument("--pdfs", type=Path, help="a folder of PDFs to read besides made-up ones")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        session = Session(Path(folder), QUICK if chosen.quick else FULL)
        session.make_documents()
        pages = session.race_pages(chosen.pages)
        print_scores(pages)
        targets = [*judge_pages(pages), *judge_pdfs(session.race_pdfs())]
        targets += judge_children(session.overhead(), session.growth())
        if chosen.pdfs:
            targets += tell_only(judge_pdfs(session.race_given_pdfs(chosen.pdfs)))
    print_targets(targets)
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
