"""The text stage against the libraries it is built from, and others: `python -m bench.text`.

(a) PDFs and (b) pages are read by one contender at a time, each in a process of its own, taking
turns in one session; the best round of each counts. (c) and (d) tell what child processes cost.
`--pages` takes a folder with `ground-truth.json` and `html/*.html.gz`, as the public
article-extraction-benchmark has them; without it, made-up pages are read.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from bench.figures import Figure, add_options, report_figures
from bench.measure import Measured, measure
from bench.pages import REAL_PAGES_VARIABLE, given_pages

OURS, POOL = "penstock", "penstock-pool"
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
OVER_PDFPLUMBER, OVER_PYPDFIUM2, POOL_OVER_PYPDFIUM2, OVER_BEST_LIBRARY = 20.0, 0.9, 1.7, 1.0
ISOLATION_MS, GROWTH_MB = 1.0, 50.0
Rounds = Mapping[str, Sequence[Measured]]
"""What every contender reported, in each round."""
console = Console(highlight=False, soft_wrap=True)


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

    def race_pdfs(self) -> Rounds:
        sizes = self._sizes
        return self._race_pdfs(self._folder / "pdfs", sizes.pdfs, sizes.slow_pdfs)

    def race_given_pdfs(self, folder: Path) -> Rounds:
        return self._race_pdfs(folder, sys.maxsize, sys.maxsize)

    def race_pages(self, folder: Path | None) -> Rounds:
        place = str(folder or self._folder / "pages")
        names = [OURS, *_installed(PAGE_LIBRARIES)]
        return self._race({name: ("bench.text_pages", name, place) for name in names})

    def overheads(self) -> list[Measured]:
        count = str(self._sizes.small_documents)
        rounds = range(self._sizes.rounds)
        return [self._measure("bench.text_pool", "overhead", count) for _ in rounds]

    def growth(self) -> Measured:
        counts = (self._sizes.many_pdfs, self._sizes.warm_pdfs)
        short = str(self._folder / "short")
        return self._measure("bench.text_pool", "growth", short, *map(str, counts))

    def _race_pdfs(self, folder: Path, most: int, most_slow: int) -> Rounds:
        names = [OURS, POOL, *_installed(PDF_LIBRARIES)]
        counts = {name: str(most_slow if name in SLOW else most) for name in names}
        return self._race(
            {name: ("bench.text_pdfs", name, str(folder), counts[name]) for name in names}
        )

    def _race(self, commands: Mapping[str, tuple[str, ...]]) -> Rounds:
        """Every contender once in each round."""
        found: dict[str, list[Measured]] = {}
        for _ in range(self._sizes.rounds):
            for name, command in commands.items():
                found.setdefault(name, []).append(self._measure(*command))
        for name, rounds in found.items():
            console.print(f"  {name}: {max(_rates(rounds)):.1f} pages/s")
        return found

    def _measure(self, module: str, *arguments: str) -> Measured:
        console.print(f"python -m {module} {' '.join(arguments)}", highlight=False, soft_wrap=True)
        return measure(module, *arguments, environment=dict(os.environ))


def _installed(libraries: dict[str, str]) -> list[str]:
    missing = sorted({module for module in libraries.values() if find_spec(module) is None})
    if missing:
        console.print(f"NOT COMPARED, not installed: {', '.join(missing)}. To install: {INSTALL}")
    return [name for name, module in libraries.items() if module not in missing]


def _rates(rounds: Sequence[Measured]) -> list[float]:
    return [one.rate for one in rounds]


def judge_pages(rounds: Rounds, what: str = "pages") -> list[Figure]:
    """Ours against the library with the best F1, on each half and in speed."""
    others = {name: found for name, found in rounds.items() if name != OURS}
    figures = [_judge_half(rounds[OURS], others, half, what) for half in ("odd", "even")]
    name = _best_by(others, "f1")
    speed = Figure.ratio(
        "text.pages.over_best_library",
        f"{what}: speed over the library with the best F1, {name}",
        _rates(rounds[OURS]),
        _rates(others[name]),
        wanted=OVER_BEST_LIBRARY,
        unit="pages/s",
    )
    return [*figures, speed, *(_tell_library(*one) for one in others.items())]


def _judge_half(ours: Sequence[Measured], others: Rounds, half: str, what: str) -> Figure:
    key = f"f1_{half}"
    name = _best_by(others, key)
    reached, least = _score(ours, key), _score(others[name], key)
    return Figure(
        f"text.pages.{key}",
        f"{what}: F1 of the article, {half} half; wanted is that of {name}",
        reached,
        unit="",
        wanted=least,
        detail=f"{reached:.4f} against {least:.4f}",
    )


def _tell_library(name: str, rounds: Sequence[Measured]) -> Figure:
    odd, even = _score(rounds, "f1_odd"), _score(rounds, "f1_even")
    detail = f"F1 {odd:.4f} and {even:.4f} (odd and even half)"
    rate = max(_rates(rounds))
    return Figure(f"text.pages.{name}", f"pages: {name} alone", rate, "pages/s", detail=detail)


def _best_by(contenders: Rounds, key: str) -> str:
    """The name of the contender with the highest score; of equals, the quickest."""
    return max(
        contenders, key=lambda one: (_score(contenders[one], key), max(_rates(contenders[one])))
    )


def _score(rounds: Sequence[Measured], key: str) -> float:
    """The same in each round."""
    return round(float(rounds[0].figures[key]), 4)


def judge_pdfs(rounds: Rounds) -> list[Figure]:
    """Ours against the library it is built on, and against the one it replaces."""
    rates = {name: _rates(found) for name, found in rounds.items()}
    wanted = (
        ("over_pdfplumber", "ours over pdfplumber", OURS, "pdfplumber", OVER_PDFPLUMBER),
        (
            "over_pypdfium2",
            "ours over bare pypdfium2, one process",
            OURS,
            "pypdfium2",
            OVER_PYPDFIUM2,
        ),
        (
            "pool_over_pypdfium2",
            "two children over bare pypdfium2",
            POOL,
            "pypdfium2",
            POOL_OVER_PYPDFIUM2,
        ),
    )
    return [
        Figure.ratio(
            f"text.pdf.{key}",
            f"PDF: {what}",
            rates[ours],
            rates[other],
            wanted=least,
            unit="pages/s",
        )
        for key, what, ours, other, least in wanted
    ]


def tell_only(figures: Sequence[Figure]) -> list[Figure]:
    """The targets are for plain text: tables, for one, are read with more care than speed."""
    return [
        replace(one, key=f"{one.key}.given", what=f"given {one.what}", wanted=None)
        for one in figures
    ]


def judge_children(overheads: Sequence[Measured], growth: Measured) -> list[Figure]:
    """What isolation costs."""
    each_ms = [float(one.figures["each_ms"]) for one in overheads]
    return [
        Figure(
            "text.isolation",
            "parsing in a child, for each small document",
            min(each_ms),
            "ms",
            ISOLATION_MS,
            lower_is_better=True,
            detail=f"median {statistics.median(each_ms):.2f} ms; {len(each_ms)} rounds",
        ),
        Figure(
            "text.memory_growth",
            f"memory growth over {growth.figures['documents']:,} PDFs, worker and children",
            float(growth.figures["growth_mb"]),
            "MB",
            GROWTH_MB,
            lower_is_better=True,
            detail=f"peak {growth.peak_mb:.0f} MB",
        ),
    ]


def main() -> int:
    """Run the whole bench; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pages",
        type=Path,
        default=given_pages(),
        help=f"a folder of pages whose text is known; default: ${REAL_PAGES_VARIABLE}",
    )
    parser.add_argument("--pdfs", type=Path, help="a folder of PDFs to read besides made-up ones")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    add_options(parser)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        session = Session(Path(folder), QUICK if chosen.quick else FULL)
        session.make_documents()
        what = "real pages" if chosen.pages else "generated pages"
        figures = judge_pages(session.race_pages(chosen.pages), what)
        figures += judge_pdfs(session.race_pdfs())
        figures += judge_children(session.overheads(), session.growth())
        if chosen.pdfs:
            figures += tell_only(judge_pdfs(session.race_given_pdfs(chosen.pdfs)))
    return report_figures(figures, chosen)


if __name__ == "__main__":
    sys.exit(main())
