"""Commands use the servers of `penstock up`, unless the environment names others."""

import os
from pathlib import Path

import pytest

from entrypoints.cli.joining import join_installation
from penstock.errors import ConfigurationError
from penstock.launcher.installation_state import InstallationState, write_installation
from penstock.launcher.processes import ProcessIdentity
from penstock.launcher.state import Phase
from penstock.settings import load_settings, masked

OFFERED = {
    "PENSTOCK_DSN": "postgresql+psycopg://postgres@127.0.0.1:1/penstock",
    "REDIS_URL": "redis://127.0.0.1:2/0",
    "PREFECT_API_URL": "http://127.0.0.1:3/api",
    "PREFECT_HOME": "/home/prefect",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    for name in OFFERED:  # so that what is joined is forgotten after the test
        monkeypatch.setenv(name, "")
    return tmp_path


def be_up(
    home: Path, supervisor: ProcessIdentity | None = None, phase: Phase = Phase.READY
) -> None:
    state = InstallationState(
        id="cafe",
        supervisor=supervisor or ProcessIdentity.of(os.getpid()),
        started_at="2026-01-01T00:00:00+00:00",
        phase=phase,
        step="ready",
        environment=OFFERED,
        parts=(),
        notes=(),
    )
    write_installation(home / "up.json", state)


def joined() -> dict[str, str]:
    join_installation()
    return {name: os.environ[name] for name in OFFERED if os.environ[name]}


def test_nothing_is_joined_where_nothing_is_up(home: Path) -> None:
    assert joined() == {}
    be_up(home, ProcessIdentity(os.getpid(), 1.0))
    assert joined() == {}


def test_everything_is_joined_that_the_environment_does_not_name(home: Path) -> None:
    be_up(home)
    assert joined() == OFFERED


def test_another_database_is_not_mixed_with_our_redis(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_up(home)
    monkeypatch.setenv("PENSTOCK_DSN", "sqlite:///other.db")
    found = joined()
    assert found["PENSTOCK_DSN"] == "sqlite:///other.db"
    assert "REDIS_URL" not in found
    assert found["PREFECT_API_URL"] == OFFERED["PREFECT_API_URL"]


def test_the_same_database_goes_with_our_redis(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_up(home)
    monkeypatch.setenv("PENSTOCK_DSN", OFFERED["PENSTOCK_DSN"])
    assert joined() == OFFERED


def test_another_redis_and_another_prefect_stay(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_up(home)
    own = {"REDIS_URL": "redis://elsewhere/0", "PREFECT_API_URL": "http://elsewhere/api"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert joined() == {"PENSTOCK_DSN": OFFERED["PENSTOCK_DSN"], **own}


def test_another_prefect_may_be_named_in_a_file_that_prefect_reads_itself(home: Path) -> None:
    be_up(home)
    Path(".env").write_text("PREFECT_API_URL=http://elsewhere/api\n")
    found = joined()
    assert found["PREFECT_API_URL"] == "http://elsewhere/api"
    assert "PREFECT_HOME" not in found
    assert found["PENSTOCK_DSN"] == OFFERED["PENSTOCK_DSN"]


@pytest.mark.usefixtures("home")
def test_that_file_counts_where_nothing_is_up_but_less_than_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("PREFECT_API_URL=http://elsewhere/api\n")
    assert joined() == {"PREFECT_API_URL": "http://elsewhere/api"}
    monkeypatch.setenv("PREFECT_API_URL", "http://here/api")
    assert joined() == {"PREFECT_API_URL": "http://here/api"}


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.STOPPING])
def test_one_that_is_not_ready_is_not_joined(home: Path, phase: Phase) -> None:
    be_up(home, phase=phase)
    assert joined() == {}


def test_wrong_settings_are_left_to_the_command(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_up(home)
    monkeypatch.setenv("PENSTOCK_BATCH_SIZE", "many")
    assert joined() == {}


def test_no_empty_sqlite_is_used_beside_data_in_a_postgres_that_does_not_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "postgres").mkdir()
    settings = load_settings()
    with pytest.raises(ConfigurationError, match="run `penstock up`"):
        settings.database_url  # noqa: B018
    assert masked(settings)["dsn"].endswith("not running (penstock up)")
    monkeypatch.setenv("PENSTOCK_DSN", "sqlite:///other.db")
    assert load_settings().database_url == "sqlite:///other.db"
