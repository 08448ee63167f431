"""Runs one measurement in a process of its own and tells its time and memory."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one process reported about itself."""

    seconds: float
    peak_mb: float
    figures: dict[str, Any]

    @property
    def rate(self) -> float:
        """Documents a second."""
        return float(self.figures["documents"]) / self.seconds


def measure(
    module: str, *arguments: str, environment: dict[str, str], python: str = sys.executable
) -> Measured:
    """Run `python -m module …`, whose last line of output is a JSON object."""
    done = subprocess.run(
        [python, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    return Measured(figures.pop("seconds"), figures.pop("peak_mb"), figures)
