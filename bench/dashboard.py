"""The page of a run under load: `python -m bench.dashboard [open] [stay] [crowd]`.

A run with 50,000 documents and 100,000 lines of log, on Postgres, in Chromium. `open`: how soon its
page can be used; `stay`: a tab that stays open for ten minutes of 200 lines a second; `crowd`: what
fifty viewers cost the server and the database.
"""

import argparse
import sys

from bench.figures import Figure, add_options, report_figures
from bench.viewing.crowd import Crowded, look
from bench.viewing.opening import Opened, open_page
from bench.viewing.scene import Scene, open_scene
from bench.viewing.staying import LINES_PER_SECOND, Stayed, stay
from tests.browser import open_browser

PARTS = ("open", "stay", "crowd")
# A tab keeps the pages of the log that were looked at last; what comes after is not growth.
MOST_GROWTH_MB = 5.0
MOST_DRAWN = 200
# Viewers share one look at the database: so many times what one costs, at most.
MOST_TIMES_THE_QUERIES = 1.5
# Per cent of a core, for all of them with all that their pages ask.
MOST_CPU_PERCENT = 25.0


def main() -> int:
    """Run the parts asked for; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    add_options(parser)
    wanted = parser.parse_args()
    if wanted.quick:
        wanted.documents, wanted.lines, wanted.rounds = 500, 1_000, 1
        wanted.minutes, wanted.viewers, wanted.seconds = 0.1, 3, 3
    figures: list[Figure] = []
    with open_scene(wanted.documents, wanted.lines) as scene:
        for part in wanted.parts or PARTS:
            figures += MEASURES[part](scene, wanted)
    return report_figures(figures, wanted)


def measure_opening(scene: Scene, wanted: argparse.Namespace) -> list[Figure]:
    with open_browser() as browser:
        opened = open_page(scene, browser, wanted.rounds)
    return judge_opening(opened, wanted.documents, wanted.lines, wanted.rounds)


def measure_staying(scene: Scene, wanted: argparse.Namespace) -> list[Figure]:
    with open_browser() as browser:
        return judge_staying(stay(scene, browser, wanted.minutes, first=1_000_000), wanted.minutes)


def measure_crowd(scene: Scene, wanted: argparse.Namespace) -> list[Figure]:
    alone = look(scene, 1, wanted.seconds, first=2_000_000)
    crowd = look(scene, wanted.viewers, wanted.seconds, first=3_000_000)
    tables = look(scene, wanted.viewers, wanted.seconds, first=4_000_000, tables=True)
    return judge_crowd(alone, crowd, tables)


MEASURES = {"open": measure_opening, "stay": measure_staying, "crowd": measure_crowd}


def judge_opening(found: Opened, documents: int, lines: int, rounds: int) -> list[Figure]:
    what = f"page of a run of {documents:,} documents and {lines:,} lines of log, usable"
    return [
        Figure(
            "dashboard.usable",
            what,
            found.interactive,
            "s",
            lower_is_better=True,
            detail=f"median of {rounds}; first byte {found.first_byte:.2f} s, "
            f"shown {found.shown:.2f} s",
        ),
        Figure(
            "dashboard.drawn",
            f"elements for lines, of {lines:,}",
            found.drawn,
            "elements",
            MOST_DRAWN,
            lower_is_better=True,
        ),
    ]


def judge_staying(found: Stayed, minutes: float) -> list[Figure]:
    heap = ", ".join(f"{one:.1f}" for one in found.heap_mb)
    return [
        Figure(
            "dashboard.tab_growth",
            f"growth of a tab in {minutes:g} minutes at {LINES_PER_SECOND} lines/s",
            found.growth_mb,
            "MB",
            MOST_GROWTH_MB,
            lower_is_better=True,
            detail=f"{found.lines:,} lines; MB in use every 30 s: {heap}",
        )
    ]


def judge_crowd(alone: Crowded, crowd: Crowded, tables: Crowded) -> list[Figure]:
    times = crowd.transactions_per_second / max(alone.transactions_per_second, 0.01)
    return [
        _tell_cost("one_viewer", alone),
        _tell_cost("viewers", crowd),
        _tell_cost("viewers_with_tables", tables, MOST_CPU_PERCENT),
        Figure(
            "dashboard.viewers_queries",
            f"database reads of {crowd.viewers} viewers over those of one",
            times,
            wanted=MOST_TIMES_THE_QUERIES,
            lower_is_better=True,
        ),
    ]


def _tell_cost(key: str, found: Crowded, most_percent: float | None = None) -> Figure:
    asking = " that also load the table of documents every 5 s" if found.tables else ""
    viewers = "1 viewer" if found.viewers == 1 else f"{found.viewers} viewers"
    return Figure(
        f"dashboard.{key}",
        f"{viewers}{asking}, of a core",
        100 * found.cpu_share,
        "%",
        most_percent,
        lower_is_better=True,
        detail=f"{found.transactions_per_second:.1f} transactions/s, {found.lines_each} lines each",
    )


if __name__ == "__main__":
    sys.exit(main())
