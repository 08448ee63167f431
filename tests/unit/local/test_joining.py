"""Commands use the servers of `penstock up`, unless the environment names others."""

import json
import os
from pathlib import Path

import pytest

from entrypoints.cli import doctor
from penstock.errors import ConfigurationError
from penstock.local.joining import join_installation, sign_in
from penstock.local.prefect_server import PrefectServer, ServerAddress
from penstock.local.processes import ProcessIdentity
from penstock.local.state import PartState, Phase, SupervisorState, write_state
from penstock.settings import load_settings, masked

OFFERED = {
    "PENSTOCK_DSN": "postgresql+psycopg://postgres@127.0.0.1:1/penstock",
    "REDIS_URL": "redis://127.0.0.1:2/0",
    "PREFECT_API_URL": "http://127.0.0.1:3/api",
    "PREFECT_HOME": "/home/prefect",
    "PREFECT_API_AUTH_STRING": "penstock:ours",
}

SAME = [
    "http://127.0.0.1:3/api",
    "http://127.0.0.1:3/api/",
    "http://localhost:3/api",
    "HTTP://LocalHost:3/api//",
    "http://[::1]:3/api",
]
DIFFERENT = [
    "https://127.0.0.1:3/api",
    "http://127.0.0.1:4/api",
    "http://127.0.0.1/api",
    "http://127.0.0.1:3/",
    "http://127.0.0.1:3/api/v2",
    "http://127.0.0.1:many/api",
    "http://127.0.0.1.elsewhere:3/api",
    "http://127.0.0.1:3@elsewhere:3/api",
    "http://[::1:3/api",
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    for name in OFFERED:  # so that what is joined is forgotten after the test
        monkeypatch.setenv(name, "")
    return tmp_path


def be_up(
    home: Path, supervisor: ProcessIdentity | None = None, phase: Phase = Phase.READY
) -> None:
    state = SupervisorState(
        id="cafe",
        supervisor=supervisor or ProcessIdentity.of(os.getpid()),
        started_at="2026-01-01T00:00:00+00:00",
        phase=phase,
        step="ready",
        environment=OFFERED,
        parts=(PartState("prefect", "http://127.0.0.1:3", None, None),),
        notes=(),
    )
    write_state(home / "up.json", state)


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


def test_whoever_names_our_prefect_server_is_let_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_up(home)
    monkeypatch.setenv("PREFECT_API_URL", OFFERED["PREFECT_API_URL"])
    assert joined() == OFFERED


@pytest.mark.parametrize("named", SAME)
def test_our_prefect_server_is_known_however_it_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    be_up(home)
    monkeypatch.setenv("PREFECT_API_URL", named)
    # Another account's program may listen at the same port of another address of this machine.
    assert joined() == OFFERED


@pytest.mark.parametrize("named", DIFFERENT)
def test_a_server_that_only_looks_like_ours_gets_no_credentials(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    be_up(home)
    monkeypatch.setenv("PREFECT_API_URL", named)
    found = joined()
    assert found["PREFECT_API_URL"] == named
    assert "PREFECT_API_AUTH_STRING" not in found


@pytest.mark.parametrize("named", [*SAME, *DIFFERENT])
def test_a_command_signs_in_at_the_server_of_its_home_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    ours = OFFERED["PREFECT_API_URL"]
    address = ServerAddress(ours, "http://127.0.0.1:3", 1, 3, "penstock:ours")
    monkeypatch.setattr(PrefectServer, "find", lambda _: address)
    monkeypatch.setenv("PREFECT_API_URL", named)

    sign_in(load_settings(home=home), named)

    same = named in SAME
    assert os.environ["PREFECT_API_URL"] == (ours if same else named)
    assert os.environ["PREFECT_API_AUTH_STRING"] == ("penstock:ours" if same else "")


def test_the_doctor_shows_our_credentials_to_our_address_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = OFFERED["PREFECT_API_URL"]
    address = ServerAddress(ours, "http://127.0.0.1:3", 1, 3, "penstock:ours")
    monkeypatch.setattr(PrefectServer, "find", lambda _: address)
    monkeypatch.setenv("PREFECT_API_URL", "http://localhost:3/api/")
    asked: list[str] = []
    monkeypatch.setattr(doctor, "_ask", asked.append)

    doctor._check_prefect(load_settings(home=home))

    assert asked == [ours]


def test_credentials_for_another_server_are_not_sent_to_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_up(home)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "somebody:else")
    assert joined() == OFFERED


def test_credentials_for_another_server_stay_with_it(home: Path) -> None:
    be_up(home)
    Path(".env").write_text(
        "PREFECT_API_URL=http://elsewhere/api\nPREFECT_API_AUTH_STRING=somebody:else\n"
    )
    found = joined()
    assert found["PREFECT_API_URL"] == "http://elsewhere/api"
    assert found["PREFECT_API_AUTH_STRING"] == "somebody:else"


def test_an_open_prefect_server_of_an_older_version_is_told_of(
    home: Path,
) -> None:
    be_up(home)
    told: list[str] = []
    join_installation(told.append)
    assert told == []
    path = home / "up.json"
    state = json.loads(path.read_text())
    del state["environment"]["PREFECT_API_AUTH_STRING"]
    path.write_text(json.dumps(state))
    join_installation(told.append)
    (line,) = told
    assert "run `penstock down`, then `penstock up`" in line


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
