"""Command lines to try things with."""

from pathlib import Path

import pytest

from penstock.local.prefect_server import ServerAddress
from tests.e2e.commands import CommandLine


@pytest.fixture
def penstock(tmp_path: Path, prefect_server: ServerAddress) -> CommandLine:
    """A home of this test alone, on the tests' Prefect server."""
    return CommandLine(tmp_path / "home", prefect_server)
