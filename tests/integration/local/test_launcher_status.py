"""`penstock status` tells of the servers above all when the database does not answer."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrypoints.cli.main import app
from penstock.local.processes import ProcessIdentity, free_port
from penstock.local.state import PartState, Phase, SupervisorState, write_state


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose Postgres is being started again."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    for name in ("PENSTOCK_DSN", "PGCONNECT_TIMEOUT"):  # so that they are forgotten afterwards
        monkeypatch.setenv(name, "")
    dsn = f"postgresql+psycopg://postgres:secret@127.0.0.1:{free_port()}/penstock"
    here = ProcessIdentity.of(os.getpid())
    parts = (PartState("postgres", dsn, "log", None), PartState("worker-1", None, "log", here))
    offered = {"PENSTOCK_DSN": dsn}
    state = SupervisorState("cafe", here, "", Phase.READY, "ready", offered, parts, ())
    write_state(tmp_path / "up.json", state)


def test_people_see_what_runs_and_why_there_is_no_more() -> None:
    shown = CliRunner().invoke(app, ["status"])
    assert shown.exit_code == 1
    assert "worker-1" in shown.output
    assert "not running" in shown.output
    assert "cannot be used" in shown.output.replace("\n", " ")
    assert "secret" not in shown.output


def test_programs_are_told_the_same() -> None:
    shown = CliRunner().invoke(app, ["status", "--json"])
    assert shown.exit_code == 1
    told = json.loads(shown.stdout)
    assert {part["name"]: part["running"] for part in told["parts"]} == {
        "postgres": False,
        "worker-1": True,
    }
    assert "cannot be used" in told["error"]
