"""A server stops when it is told to, also while somebody looks at a run."""

import signal
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.dashboard.browser.house import open_database
from tests.dashboard.furnishing import Workshop
from tests.e2e.commands import CommandLine
from tests.e2e.test_serve import QUICK, running

pytestmark = pytest.mark.full_suite


def test_a_server_stops_although_somebody_looks_at_a_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with (
        closing(open_database(home)) as database,
        closing(Workshop(database, home, "default")) as shop,
        running(CommandLine(home, settings=QUICK), "serve", "--port", "0") as server,
    ):
        run_id = shop.open().run.id
        address = server.wait_for(r"running on (http://\S+)")
        path = f"{address}/ui/runs/{run_id}/events"
        with httpx.stream("GET", path, timeout=60) as response:
            assert response.status_code == 200
            next(response.iter_lines())
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(timeout=60)
