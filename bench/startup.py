"""How long a person waits for a command: `python -m bench.startup`.

The demo on an empty home, which starts a Prefect server, and again; then commands that read, on
what the demo has left, each the median of several calls. Bytecode is compiled, as by `make setup`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.figures import Figure, add_options, report_figures
from penstock.local.prefect_server import PrefectServer

CALLS, QUICK_CALLS = 7, 1
FIRST_DEMO_SECONDS = 90.0
console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed, and how long it may take."""

    key: str
    arguments: tuple[str, ...]
    wanted_seconds: float

    @property
    def shown(self) -> str:
        return f"`penstock {' '.join(self.arguments)}`"


COMMANDS = (
    Command("help", ("--help",), 1.5),
    Command("status", ("status",), 1.5),
    Command("search_text", ("search", "engineer", "--mode", "text"), 1.5),
    Command("search_vector", ("search", "engineer", "--mode", "vector"), 2.5),
)


def time_command(home: Path, *arguments: str) -> float:
    """Seconds until a command has ended."""
    command = [str(Path(sys.executable).with_name("penstock")), *arguments]
    environment = os.environ | {"PENSTOCK_HOME": str(home)}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"penstock {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    console.print(f"  penstock {' '.join(arguments)}: {seconds:.2f} s")
    return seconds


def measure_demo(home: Path) -> list[Figure]:
    first, second = time_command(home, "demo"), time_command(home, "demo")
    what = "first `penstock demo`, with the start of a Prefect server"
    return [
        Figure("startup.demo", what, first, "s", FIRST_DEMO_SECONDS, lower_is_better=True),
        Figure("startup.demo_again", "second `penstock demo`", second, "s", lower_is_better=True),
    ]


def measure_command(home: Path, command: Command, calls: int) -> Figure:
    seconds = [time_command(home, *command.arguments) for _ in range(calls)]
    return Figure(
        f"startup.{command.key}",
        command.shown,
        statistics.median(seconds),
        "s",
        command.wanted_seconds,
        lower_is_better=True,
        detail=f"median of {calls} calls, {min(seconds):.2f} to {max(seconds):.2f} s",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each command once")
    add_options(parser)
    chosen = parser.parse_args()
    calls = QUICK_CALLS if chosen.quick else CALLS
    with tempfile.TemporaryDirectory(prefix="penstock-startup-") as folder:
        home = Path(folder) / "home"
        try:
            figures = measure_demo(home)
        finally:
            PrefectServer(home).stop()
        figures += [measure_command(home, command, calls) for command in COMMANDS]
    return report_figures(figures, chosen)


if __name__ == "__main__":
    sys.exit(main())
