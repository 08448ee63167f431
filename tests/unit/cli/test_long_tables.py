"""Tables of many documents: a screenful on the screen, everything for programs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from entrypoints.cli.main import app
from entrypoints.cli.output import ON_SCREEN
from penstock.store.database import Database
from tests.factories import TENANT
from tests.filled import FilledStore

DOCUMENTS = ON_SCREEN + 20


@pytest.fixture
def run_id(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run with more documents than are shown."""
    store = FilledStore.make(database, 1)
    store.grow(DOCUMENTS)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_DSN", database.url)
    monkeypatch.setenv("PENSTOCK_TENANT", TENANT)
    # Wide enough that no cell is folded.
    monkeypatch.setattr("entrypoints.cli.output.console._width", 400)
    return str(store.run_id)


def call(*words: str) -> Result:
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    return told


@pytest.mark.parametrize("command", [("run",), ("nodes", "--run")])
def test_a_long_table_is_cut_and_says_how_to_see_the_rest(
    command: tuple[str, ...], run_id: str
) -> None:
    told = call(*command, run_id)
    assert told.output.count(".txt") == ON_SCREEN
    assert f"showing the first {ON_SCREEN}; for all: penstock {command[0]}" in told.output
    assert call(*command, run_id, "--limit", str(DOCUMENTS)).output.count(".txt") == DOCUMENTS


def test_programs_get_everything(run_id: str) -> None:
    assert len(json.loads(call("nodes", "--run", run_id, "--json").output)) == DOCUMENTS
    assert len(json.loads(call("run", run_id, "--json").output)["documents"]) == DOCUMENTS
