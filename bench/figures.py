"""The figures of a bench: what was measured, what is wanted, and whether it was met.

Every bench is a command, `python -m bench.NAME [--json FILE]`: it prints a table of its figures,
writes them to FILE for `bench.report`, and exits 1 when a target was missed.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    key: str
    """Its name over all reports, such as `pipeline.over_lean`."""
    what: str
    value: float
    unit: str = "×"
    wanted: float | None = None
    """The target; none for a figure that only informs."""
    lower_is_better: bool = False
    detail: str = ""
    """What the number was made from: both sides of a ratio, medians, rounds."""

    @classmethod
    def ratio(
        cls,
        key: str,
        what: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        *,
        wanted: float | None = None,
        unit: str = "documents/s",
    ) -> Self:
        """Best over best of two alternating series of rates, with the medians in the detail."""
        best = max(ours) / max(theirs)
        median = statistics.median(ours) / statistics.median(theirs)
        rates = f"{max(ours):,.0f} against {max(theirs):,.0f} {unit}"
        detail = f"{rates}; medians {median:.2f}; {len(ours)} rounds"
        return cls(key, what, best, wanted=wanted, detail=detail)

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without one."""
        if self.wanted is None:
            return None
        if self.lower_is_better:
            return self.value <= self.wanted
        return self.value >= self.wanted

    @property
    def shown_wanted(self) -> str:
        if self.wanted is None:
            return ""
        sign = "≤" if self.lower_is_better else "≥"
        return f"{sign} {show_number(self.wanted)} {self.unit}".rstrip()

    @property
    def shown_value(self) -> str:
        return f"{show_number(self.value)} {self.unit}".rstrip()

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "**missed**"}[self.met]


def show_number(number: float) -> str:
    """Three digits, and thousands apart."""
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 1 else f"{number:.2f}".rstrip("0").rstrip(".")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="also write the figures to this file")


def report_figures(figures: Sequence[Figure], options: argparse.Namespace) -> int:
    """Print the figures, and write them if asked to; 1 when a target was missed."""
    table = Table("what", "wanted", "measured", "", "from")
    for one in figures:
        table.add_row(one.what, one.shown_wanted, one.shown_value, one.verdict, one.detail)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in figures], indent=1))
    return 1 if any(one.met is False for one in figures) else 0
