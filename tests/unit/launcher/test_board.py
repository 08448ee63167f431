"""What `penstock up` shows when all runs."""

from pathlib import Path

import pytest

from entrypoints.cli.board import print_board
from penstock.launcher.installation import Installation
from penstock.launcher.installation_home import InstallationHome
from penstock.launcher.parts import ProcessPart

ENVIRONMENT = {
    "PENSTOCK_DSN": "sqlite:///penstock.db",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "PREFECT_API_URL": "http://user:secret@elsewhere/api",
}


def test_a_given_address_with_a_hidden_password_is_not_shown_to_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessPart, "start", lambda _part: None)
    home = InstallationHome(tmp_path)
    installation = Installation(home.state_path, print)
    installation.add_environment(ENVIRONMENT)
    installation.add_given("prefect", "http://elsewhere/api", "PREFECT_API_URL")
    api = ProcessPart("api", [], tmp_path, installation.id, address="http://127.0.0.1:2")
    installation.start(api)
    print_board(home, installation.state)
    shown = capsys.readouterr().out
    assert "prefect deployment run" in shown
    assert "secret" not in shown
    assert "export" not in shown
