"""A Prefect server that starts in no time, for everything that is not about Prefect itself."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.local.prefect_server import PrefectServer

FAKE = Path(__file__).with_name("fake_prefect.py")

MakeServer = Callable[..., PrefectServer]


class FakePrefectServer(PrefectServer):
    def __init__(
        self,
        home: Path,
        *,
        mode: str = "well",
        installed: str = "1.0",
        idle_seconds: float | None = 60,
    ) -> None:
        super().__init__(home, idle_seconds=idle_seconds)
        self._home = home
        self._mode = mode
        self._installed = installed

    def command(self, port: int) -> list[str]:
        child = [sys.executable, "-m", "penstock.local.child"]
        return [*child, str(FAKE), str(port), self._mode, str(self._home)]

    def version(self) -> str:
        return self._installed


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def make_server(home: Path) -> Iterator[MakeServer]:
    def make(**options: object) -> PrefectServer:
        return FakePrefectServer(home, **options)  # type: ignore[arg-type]

    yield make
    make().stop()
