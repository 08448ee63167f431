"""Runs the command line as a person does: in a process of its own.

That process is a fork of one that has imported its libraries; a command that starts a Prefect
server is started anew, since prefect has to be imported after that.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.local.prefect_server import ServerAddress
from tests.preloaded import PRELOADED, Started

LIMIT_SECONDS = 400
_STARTS_PREFECT = {"ingest", "resume", "backfill", "demo", "up"}


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """`penstock` with a home, and perhaps a Prefect server, of its own."""

    home: Path
    prefect: ServerAddress | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str | Path) -> Done:
        return self.run_in(self.home.parent, *arguments)

    def run_in(self, folder: Path, *arguments: str | Path) -> Done:
        if self.prefect is None and _STARTS_PREFECT & set(map(str, arguments)):
            return self.run_anew(folder, *arguments)
        started = self.start(*arguments, folder=folder)
        out, err = started.communicate(timeout=LIMIT_SECONDS)
        return Done(started.wait(), out, err)

    def run_anew(self, folder: Path, *arguments: str | Path) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "entrypoints.cli.main", *map(str, arguments)],
            env=self.environment(),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str | Path, folder: Path | None = None) -> Started:
        return PRELOADED.start(
            "entrypoints.cli.main",
            *map(str, arguments),
            environment=self.environment(),
            folder=folder or self.home.parent,
        )

    def environment(self) -> dict[str, str]:
        foreign = ("PENSTOCK_", "PREFECT_", "EXTRACTION_", "EMBEDDING_", "GROQ_", "REDIS_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        own |= {"PENSTOCK_HOME": str(self.home), "COLUMNS": "160", **self.settings}
        if self.prefect is not None:
            own["PREFECT_API_URL"] = self.prefect.api_url
            own["PREFECT_API_AUTH_STRING"] = self.prefect.auth_string
        return own


def end(process: Started, number: signal.Signals = signal.SIGKILL) -> Done:
    """Send a signal and wait for the end."""
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    return Done(process.wait(), out, err)
