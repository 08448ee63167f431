"""What the text bench wants of the figures it takes."""

from dataclasses import replace

from bench.measure import Measured
from bench.pipeline import Target

OURS = "penstock"
POOL = "penstock-pool"


def rate(found: Measured) -> float:
    """Pages per second."""
    return float(found.figures["documents"]) / found.seconds


def judge_pdfs(best: dict[str, Measured]) -> list[Target]:
    """Ours against the library it is built on, and against the one it replaces."""
    rates = {name: rate(found) for name, found in best.items()}
    bare = rates["pypdfium2"]
    return [
        _ratio("PDF: ours over pdfplumber", rates[OURS] / rates["pdfplumber"], 20),
        _ratio("PDF: ours over bare pypdfium2, one process", rates[OURS] / bare, 0.9),
        _ratio("PDF: two children over bare pypdfium2", rates[POOL] / bare, 1.7),
    ]


def judge_pages(best: dict[str, Measured]) -> list[Target]:
    """Ours against the library with the best F1, on each half and in speed."""
    ours = best[OURS]
    others = {name: found for name, found in best.items() if name != OURS}
    targets = []
    for half in ("odd", "even"):
        name = _best_by(others, f"f1_{half}")
        least, reached = (_score(found, f"f1_{half}") for found in (others[name], ours))
        wanted, met = f"≥ {least:.4f} ({name})", reached >= least
        targets.append(Target(f"pages: F1, {half} half", wanted, f"{reached:.4f}", met))
    name = _best_by(others, "f1")
    return [*targets, _ratio(f"pages: speed over {name}", rate(ours) / rate(others[name]), 1)]


def _best_by(contenders: dict[str, Measured], key: str) -> str:
    """The name of the contender with the highest score; of equals, the quickest."""
    return max(contenders, key=lambda one: (_score(contenders[one], key), rate(contenders[one])))


def _score(found: Measured, key: str) -> float:
    return round(float(found.figures[key]), 4)


def _ratio(what: str, reached: float, least: float) -> Target:
    return Target(what, f"≥ {least:g} ×", f"{reached:.2f} ×", reached >= least)


def tell_only(targets: list[Target]) -> list[Target]:
    """The targets are for plain text: tables, for one, are read with more care than speed."""
    return [replace(one, what=f"given {one.what}", wanted="", met=True) for one in targets]


def judge_children(overhead: Measured, growth: Measured) -> list[Target]:
    """What isolation costs."""
    each_ms = float(overhead.figures["each_ms"])
    growth_mb = float(growth.figures["growth_mb"])
    count = growth.figures["documents"]
    return [
        Target("isolation, each small document", "< 1 ms", f"{each_ms:.2f} ms", each_ms < 1),
        Target(f"memory growth, {count:,} PDFs", "≤ 50 MB", f"{growth_mb:.0f} MB", growth_mb <= 50),
    ]
