"""Runs all benches and writes docs/performance.json and the tables of docs/performance.md:
`python -m bench.report [--only NAME … [--with ARGUMENTS]] [--write-only] [--short]`.

An hour on an idle machine; with `--only`, the figures of the other benches stay, with their date.
A bench that fails to run is told of on the page and does not end the report. `--short` is
`make bench`: ten minutes of the figures that change most often. It writes nothing, because its
sizes are smaller. Ends with 1 when a target was missed or a bench failed.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console

from bench.figures import Figure
from bench.performance import (
    PAGE,
    QUIET_PERCENT,
    ROOT,
    Circumstances,
    Record,
    describe_circumstances,
    read_figures,
    read_record,
    render,
    write_record,
)

console = Console(highlight=False, soft_wrap=True)
LIMIT_SECONDS = 45 * 60
END_SECONDS = 60
QUIET_SECONDS, SAMPLE_SECONDS = 60.0, 5.0


@dataclass(frozen=True, slots=True)
class Bench:
    """`python -m bench.NAME`, and what it is given."""

    name: str
    arguments: tuple[str, ...] = ()
    short: tuple[str, ...] | None = None
    """For `--short`; None: not part of it."""


BENCHES = (
    # Those that mostly wait come first: what a loaded machine is left with disturbs them most.
    Bench("startup"),
    Bench("llm", short=("httpx",)),
    Bench("crawl"),
    Bench("text"),
    Bench("queue", short=("--without-peers", "--rounds", "2")),
    Bench("reads", short=("--documents", "10000", "--database", "sqlite")),
    Bench("pipeline", short=("--without-peers", "--rounds", "3", "--databases", "sqlite")),
    Bench("size"),
    Bench("dashboard"),
    Bench("scale"),
)


class BenchFailed(Exception):
    """A bench ended without figures."""


def run_bench(
    name: str, arguments: Sequence[str], limit_seconds: float = LIMIT_SECONDS
) -> list[Figure]:
    """Run it, show what it prints, and read its figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-report-") as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"bench.{name}", *arguments, "--json", str(path)]
        last = show_output(command, limit_seconds)
        if not path.exists():
            raise BenchFailed(_without_paths(last) or "it printed nothing")
        return read_figures(path)


def _without_paths(message: str) -> str:
    """Without folders of this machine, which are of no use to readers of the page."""
    for path, name in ((sys.executable, "python"), (f"{ROOT}/", ""), (tempfile.gettempdir(), "")):
        message = message.replace(path, name)
    return message


def show_output(command: Sequence[str], limit_seconds: float) -> str:
    """The last line that was printed."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(console.width)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        timer = threading.Timer(limit_seconds, _end, (process, limit_seconds))
        timer.daemon = True
        timer.start()
        assert process.stdout is not None
        lines: deque[str] = deque(maxlen=1)
        for line in process.stdout:
            console.print(line.rstrip(), markup=False)
            if line.strip():
                lines.append(line.strip())
        timer.cancel()
    return lines[0] if lines else ""


def _end(process: subprocess.Popen[str], limit_seconds: float) -> None:
    """Interrupt a bench as from a keyboard, so that it stops its servers; then end it."""
    console.print(f"it took longer than {limit_seconds / 60:.0f} minutes, and is interrupted")
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def measure_all(record: Record, benches: Sequence[Bench], taken: Circumstances) -> Record:
    """Run one after the other; the page is complete after each."""
    for bench in benches:
        started = time.monotonic()
        console.rule(f"bench.{bench.name}")
        busy_percent = wait_until_quiet()
        try:
            figures = run_bench(bench.name, bench.arguments)
        except BenchFailed as failure:
            console.print(f"bench.{bench.name} FAILED to run: {failure}", markup=False)
            record = record.with_failure(bench.name, str(failure), taken)
        else:
            record = record.with_figures(bench.name, figures, taken, busy_percent)
        console.print(f"bench.{bench.name} took {time.monotonic() - started:.0f} s")
        write(record)
    return record


def wait_until_quiet() -> float:
    """Give servers of the bench before time to end; how busy the machine still is after that."""
    busy_percent = 100.0
    deadline = time.monotonic() + QUIET_SECONDS
    while busy_percent > QUIET_PERCENT and time.monotonic() < deadline:
        busy_percent = psutil.cpu_percent(interval=SAMPLE_SECONDS)
    if busy_percent > QUIET_PERCENT:
        console.print(f"other programs use {busy_percent:.0f} % of the machine")
    return busy_percent


def write(record: Record) -> None:
    """The record, and the page made from it."""
    write_record(record)
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


def measure_short() -> int:
    """Nothing is written; 1 when a target was missed or a bench failed."""
    failed = missed = 0
    for bench in BENCHES:
        if bench.short is None:
            continue
        console.rule(f"bench.{bench.name} {' '.join(bench.short)}")
        try:
            missed += sum(one.met is False for one in run_bench(bench.name, bench.short))
        except BenchFailed as failure:
            failed += 1
            console.print(f"bench.{bench.name} FAILED to run: {failure}", markup=False)
    console.print(f"{missed} targets missed, {failed} benches failed")
    return 1 if failed or missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="run only these")
    parser.add_argument(
        "--with",
        dest="arguments",
        type=shlex.split,
        help="for the bench of --only: a part of it",
    )
    parser.add_argument("--write-only", action="store_true", help="the page, from what is recorded")
    parser.add_argument("--short", action="store_true", help="ten minutes of it; writes nothing")
    chosen = parser.parse_args()
    if chosen.short:
        return measure_short()
    record = read_record()
    if chosen.write_only:
        write(record)
        return 0
    taken = describe_circumstances(datetime.now(UTC).strftime("%Y-%m-%d %H:%M"))
    benches = [bench for bench in BENCHES if bench.name in chosen.only]
    if chosen.arguments:
        if len(benches) != 1:
            parser.error("--with needs --only and the name of one bench")
        benches = [replace(benches[0], arguments=tuple(chosen.arguments))]
    record = measure_all(record, benches, taken)
    return judge(record, [bench.name for bench in benches])


def judge(record: Record, names: Sequence[str]) -> int:
    """1 when one of these missed a target or failed to run."""
    sections = [record.sections[name] for name in names]
    missed = any(one.figure.met is False for section in sections for one in section.recorded)
    return 1 if missed or any(section.failure for section in sections) else 0


if __name__ == "__main__":
    sys.exit(main())
