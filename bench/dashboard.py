"""`python -m bench.dashboard`: a run's page with 50,000 documents and 100,000 log lines, a tab that
stays open for ten minutes of 200 lines a second, and fifty who look at once."""

import argparse
import sys

from bench.viewing.crowd import Crowded, look
from bench.viewing.opening import Opened, open_page
from bench.viewing.scene import open_scene
from bench.viewing.staying import LINES_PER_SECOND, Stayed, stay
from tests.browser import open_browser

# A tab keeps the pages of the log that were looked at last; what comes after is not growth.
MOST_GROWTH_MB = 5.0
MOST_DRAWN = 200
# Fifty viewers share one look at the database: so many times what one costs, at most.
MOST_TIMES_THE_QUERIES = 1.5
# Of a core, for all of them with all that their pages ask.
MOST_CPU = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["open", "stay", "crowd", []], default=[])
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    wanted = parser.parse_args()
    parts = wanted.parts or ["open", "stay", "crowd"]
    verdicts: list[tuple[str, bool]] = []
    with open_scene(wanted.documents, wanted.lines) as scene:
        if "open" in parts:
            with open_browser() as browser:
                opened = open_page(scene, browser, wanted.rounds)
            verdicts += judge_opening(opened, wanted.documents, wanted.lines)
        if "stay" in parts:
            with open_browser() as browser:
                stayed = stay(scene, browser, wanted.minutes, first=1_000_000)
            verdicts += judge_staying(stayed)
        if "crowd" in parts:
            alone = look(scene, 1, wanted.seconds, first=2_000_000)
            crowd = look(scene, wanted.viewers, wanted.seconds, first=3_000_000)
            tables = look(scene, wanted.viewers, wanted.seconds, first=4_000_000, tables=True)
            verdicts += judge_crowd(alone, crowd, tables)
    for line, met in verdicts:
        print(f"{'met   ' if met else 'MISSED'}  {line}")  # noqa: T201 - this is a command
    sys.exit(0 if all(met for _, met in verdicts) else 1)


def judge_opening(found: Opened, documents: int, lines: int) -> list[tuple[str, bool]]:
    told = (
        f"run page, {documents} documents, {lines} lines: first byte {found.first_byte:.2f} s, "
        f"shown {found.shown:.2f} s, usable {found.interactive:.2f} s"
    )
    return [
        (told, True),
        (f"line elements: {found.drawn}, at most {MOST_DRAWN}", found.drawn <= MOST_DRAWN),
    ]


def judge_staying(found: Stayed) -> list[tuple[str, bool]]:
    heap = ", ".join(f"{one:.1f}" for one in found.heap_mb)
    told = (
        f"tab over {found.lines} lines at {LINES_PER_SECOND}/s: {heap} MB, "
        f"{found.growth_mb:+.1f} MB, at most {MOST_GROWTH_MB:+.1f}"
    )
    return [(told, found.growth_mb <= MOST_GROWTH_MB)]


def judge_crowd(alone: Crowded, crowd: Crowded, tables: Crowded) -> list[tuple[str, bool]]:
    times = crowd.transactions_per_second / max(alone.transactions_per_second, 0.01)
    return [
        (_tell(alone), True),
        (_tell(crowd), True),
        (f"{_tell(tables)}, at most {MOST_CPU:.0%}", tables.cpu_share <= MOST_CPU),
        (
            f"{crowd.viewers} viewers ask {times:.2f} times as much as one, "
            f"at most {MOST_TIMES_THE_QUERIES}",
            times <= MOST_TIMES_THE_QUERIES,
        ),
    ]


def _tell(found: Crowded) -> str:
    asking = " that also ask for documents every 5 s" if found.tables else ""
    return (
        f"{found.viewers} viewers{asking}: {found.cpu_share:.1%} of a core, "
        f"{found.transactions_per_second:.1f} transactions/s, {found.lines_each} lines each"
    )


if __name__ == "__main__":
    main()
