"""What `penstock up` shows when all runs."""

from pathlib import Path

import pytest

from entrypoints.cli.up import print_board
from penstock.local.installation import InstallationHome
from penstock.local.supervisor import ProcessPart, Supervisor

ENVIRONMENT = {
    "PENSTOCK_DSN": "sqlite:///penstock.db",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "PREFECT_API_URL": "http://user:secret@elsewhere/api",
}


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    monkeypatch.setattr(ProcessPart, "start", lambda _part: None)
    found = Supervisor(InstallationHome(tmp_path).state_path, print)
    found.add_environment(ENVIRONMENT)
    found.start(ProcessPart("api", [], tmp_path, found.id, address="http://127.0.0.1:2"))
    return found


def test_a_given_address_with_a_hidden_password_is_not_shown_to_be_typed(
    tmp_path: Path, installation: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    installation.add_given("prefect", "http://elsewhere/api", "PREFECT_API_URL")
    print_board(InstallationHome(tmp_path), installation.state)
    shown = capsys.readouterr().out
    assert "prefect deployment run" in shown
    assert "secret" not in shown
    assert "export" not in shown


def test_how_to_sign_in_is_shown_and_what_is_asked_for_is_not(
    tmp_path: Path, installation: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    home = InstallationHome(tmp_path / "the mill")
    url = {"PREFECT_API_URL": "http://127.0.0.1:3/api", "PREFECT_API_AUTH_STRING": "us:secret"}
    installation.add_environment(url)
    address = "http://127.0.0.1:3"
    installation.start(ProcessPart("prefect", [], tmp_path, installation.id, address=address))
    print_board(home, installation.state)
    shown = capsys.readouterr().out
    assert "Ctrl-C" not in shown, "it may run in the background"
    assert "secret" not in shown
    assert "export PREFECT_API_URL=http://127.0.0.1:3/api\n" in shown
    file = home.folder / "prefect.auth"
    assert f"export PREFECT_API_AUTH_STRING=\"$(cat '{file}')\"\n" in shown
    assert "Prefect password  in " in shown
