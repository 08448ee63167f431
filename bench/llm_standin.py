"""The stand-in for Groq in a process of its own, so that it takes no time from who is measured."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Self

from penstock.testing import GroqServer, Reply

_ANSWER = {
    "primary_skills": ["Python", "PostgreSQL", "hydraulics", "PLC", "inspection", "budgets"],
    "recent_job_titles": ["Controls engineer", "Plant operator"],
    "years_experience_total": 14,
    "certifications": None,
    "industries": ["Energy"],
    "confidence": 0.9,
}


@dataclass(frozen=True, slots=True)
class Served:
    """What the stand-in saw since it was last set; times are of the machine's monotonic clock."""

    answered: int
    refused: int
    peak: int
    first_at: float
    last_at: float
    """When the last request came that was answered."""

    @property
    def refused_share(self) -> float:
        return self.refused / (self.answered + self.refused)


class Standin:
    """Starts the process, tells it what to do, and asks it what it saw."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.llm_standin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = str(self._read()["url"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The process ends when its standard input is closed."""
        self._process.communicate()

    def set(self, latency_seconds: float, per_second: float | None = None) -> None:
        """Forget what was, and answer like this from now on."""
        self._say({"latency_seconds": latency_seconds, "per_second": per_second})

    def look(self) -> Served:
        return Served(**self._say({}))

    def _say(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the stand-in ended with {self._process.wait()}; see its error above")
        said: dict[str, Any] = json.loads(line)
        return said


def _obey(server: GroqServer, command: dict[str, Any]) -> dict[str, Any]:
    if not command:
        return _report(server)
    server.reset()
    server.always(None, Reply(_ANSWER).after(command["latency_seconds"]))
    if command["per_second"]:
        server.limit_requests(per_second=command["per_second"])
    return {}


def _report(server: GroqServer) -> dict[str, Any]:
    requests = server.requests
    answered = [request for request in requests if request.status == 200]
    return {
        "answered": len(answered),
        "refused": server.count(status=429),
        "peak": server.peak_concurrency,
        "first_at": min((request.at for request in requests), default=0.0),
        "last_at": max((request.at for request in answered), default=0.0),
    }


def main() -> None:
    """One command a line comes in, one answer a line goes out, until there are no more."""
    with GroqServer() as server:
        _write({"url": server.base_url})
        for line in sys.stdin:
            _write(_obey(server, json.loads(line)))


def _write(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
