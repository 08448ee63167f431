"""`penstock serve` as a process, for a browser; killed and started again when a test wants it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.local.processes import free_port
from tests.e2e.commands import CommandLine
from tests.e2e.test_serve import QUICK, Running


class Served:
    """A server on a port that stays the same."""

    def __init__(self, home: Path, **settings: str) -> None:
        self._command = CommandLine(home, settings=QUICK | settings)
        self.port = free_port()
        self._running: Running | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Start it, and come back before it answers."""
        arguments = ("serve", "--port", str(self.port))
        self._running = Running(self._command.start(*arguments))

    def await_answer(self) -> None:
        assert self._running is not None
        self._running.wait_for(r"running on (http://\S+)")

    def start(self) -> None:
        self.begin()
        self.await_answer()

    def kill(self) -> None:
        """As a power cut would."""
        if self._running is not None:
            self._running.process.kill()
            self._running.stop()
            self._running = None


@contextmanager
def serving(home: Path, **settings: str) -> Iterator[Served]:
    served = Served(home, **settings)
    try:
        served.begin()
        yield served
    finally:
        served.kill()
