"""Parts are started, looked after, and ended the other way round with all they have started."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ServiceError
from penstock.local import supervisor as supervisor_module
from penstock.local.installation import InstallationHome, PostgresPart, PrefectPart
from penstock.local.prefect_server import PrefectServer, ServerAddress
from penstock.local.processes import (
    ProcessIdentity,
    find_marked,
    free_port,
    mark_of,
    wait_until,
)
from penstock.local.state import PartState, Phase, SupervisorState, write_state
from penstock.local.supervisor import ProcessPart, Supervisor

SLEEP = "import time; time.sleep(600)"
HAS_CHILD = (
    "import subprocess, sys; "
    f"subprocess.run([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
)


class Scene:
    """An installation over small parts; what it says is kept."""

    def __init__(self, folder: Path) -> None:
        self.home = InstallationHome(folder)
        self.home.logs.mkdir()
        self.said: list[str] = []
        self.installation = Supervisor(self.home.state_path, self.said.append)

    def part(self, name: str, code: str = SLEEP) -> ProcessPart:
        command = [sys.executable, "-c", code]
        return ProcessPart(name, command, self.home.logs, self.installation.id, grace_seconds=5)

    @contextmanager
    def watched(self) -> Iterator[None]:
        watching = threading.Thread(target=self.installation.watch)
        watching.start()
        try:
            yield
        finally:
            self.home.state_path.unlink(missing_ok=True)
            watching.join(timeout=60)

    def state(self) -> SupervisorState:
        found = self.home.read()
        assert found is not None
        return found

    def heard(self, words: str) -> bool:
        return wait_until(lambda: any(words in line for line in [*self.said]), 60)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.installation.stop()
    assert not find_marked(scene.installation.id)


def test_the_last_part_is_ended_first_and_those_of_a_kind_together(scene: Scene) -> None:
    for name in ("valkey", "worker-1", "worker-2", "api"):
        scene.installation.start(scene.part(name, HAS_CHILD))
    assert [part.is_running for part in scene.state().parts] == [True] * 4
    assert wait_until(lambda: len(find_marked(scene.installation.id)) == 8, 60)
    scene.installation.stop()
    assert scene.said == ["stopping api", "stopping 2 workers", "stopping valkey"]
    assert not find_marked(scene.installation.id)
    assert scene.home.read() is None


def test_a_part_that_dies_is_started_again_and_the_end_of_its_log_is_shown(scene: Scene) -> None:
    code = f"import sys; print('the gate is open', flush=True); {SLEEP}"
    part = scene.part("worker-1", code)
    scene.installation.start(part)
    first = part.process()
    assert first is not None
    assert wait_until(lambda: "open" in part.log_path.read_text(), 60)
    with scene.watched():
        os.kill(first.pid, signal.SIGKILL)
        assert scene.heard("worker-1 ended by itself and is started again in 1 s")
        assert scene.heard("the gate is open")
        assert scene.heard("worker-1 runs again")
        second = part.process()
        assert second is not None
        assert second != first
        # It is written down a moment after it is said.
        assert wait_until(lambda: scene.state().parts[0].process == second, 60)


def test_a_part_that_cannot_start_says_why(scene: Scene) -> None:
    part = ProcessPart(
        "api",
        [sys.executable, "-c", "exit('the port is taken')"],
        scene.home.logs,
        scene.installation.id,
        is_ready=lambda: False,
    )
    with pytest.raises(ServiceError, match="the port is taken"):
        scene.installation.start(part)


def test_it_ends_when_its_state_file_is_gone(scene: Scene) -> None:
    scene.installation.start(scene.part("api"))
    with scene.watched():
        scene.home.state_path.unlink()
        assert scene.heard("is gone: stopping")


def test_what_a_killed_supervisor_left_is_found_and_ended(scene: Scene) -> None:
    scene.installation.start(scene.part("worker-1", HAS_CHILD))
    assert wait_until(lambda: len(find_marked(scene.installation.id)) == 2, 60)
    data = json.loads(scene.home.state_path.read_text())
    data["supervisor"]["create_time"] -= 3600
    scene.home.state_path.write_text(json.dumps(data))
    assert scene.home.find() is None
    assert scene.home.stop() is True
    assert not find_marked(scene.installation.id)
    assert scene.home.stop() is False


class Stubborn(ProcessPart):
    """One that fails in ways nobody foresaw."""

    def start(self) -> None:
        if self.log_path.exists():
            raise RuntimeError("the sluice is stuck")
        super().start()

    def stop(self) -> None:
        super().stop()
        raise RuntimeError("the sluice is stuck")


def make_stubborn(scene: Scene) -> Stubborn:
    command = [sys.executable, "-c", SLEEP]
    return Stubborn("prefect", command, scene.home.logs, scene.installation.id)


def test_a_part_that_cannot_be_stopped_does_not_keep_the_others_running(scene: Scene) -> None:
    for part in (scene.part("valkey"), make_stubborn(scene), scene.part("api")):
        scene.installation.start(part)
    scene.installation.stop()
    assert [line for line in scene.said if "not stopped" in line] == [
        "prefect was not stopped: RuntimeError('the sluice is stuck')"
    ]
    assert "stopping valkey" in scene.said
    assert not find_marked(scene.installation.id)


def test_all_are_ended_on_a_full_disk_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    scene.installation.start(scene.part("api"))
    monkeypatch.setattr(supervisor_module, "write_state", fail)
    scene.installation.stop()
    assert scene.heard("no space left on device")
    assert not find_marked(scene.installation.id)


def test_a_restart_that_fails_unforeseen_is_tried_again(scene: Scene) -> None:
    part = make_stubborn(scene)
    scene.installation.start(part)
    process = part.process()
    assert process is not None
    with scene.watched():
        os.kill(process.pid, signal.SIGKILL)
        assert scene.heard("the sluice is stuck')\nprefect is tried again in 2 s")


def test_a_prefect_server_that_dies_right_after_its_start_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    address = ServerAddress("http://127.0.0.1:1/api", "http://127.0.0.1:1", ended.pid, 1, "a:b")
    monkeypatch.setattr(PrefectServer, "ensure", lambda _server: address)
    part = PrefectPart(PrefectServer(tmp_path))
    with pytest.raises(ServiceError, match="right after its start"):
        part.start()
    assert part.process() is None


OWNER = """
import sys, time
from pathlib import Path
from penstock.local.supervisor import Supervisor
from penstock.local.installation import InstallationHome
from penstock.local.valkey import ValkeyPart

home = InstallationHome(Path(sys.argv[1]))
home.logs.mkdir()
installation = Supervisor(home.state_path, print)
installation.start_guard()
installation.start(ValkeyPart(home.valkey, home.logs, installation.id))
installation.become_ready()
time.sleep(600)
"""


def test_nothing_runs_on_when_its_supervisor_was_killed_and_its_home_removed(
    tmp_path: Path,
) -> None:
    home = InstallationHome(tmp_path)
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)]) as owner:
        ready = wait_until(lambda: is_ready(home), 60)
        owner.kill()
    assert ready
    state = home.read()
    assert state is not None
    # With its home in place, it waits for the next `up` or `down`.
    assert not wait_until(lambda: not find_marked(mark_of(state.id, "valkey")), 1)
    home.state_path.unlink()
    assert wait_until(lambda: not find_marked(state.id), 60)


def is_ready(home: InstallationHome) -> bool:
    state = home.read()
    return state is not None and state.phase is Phase.READY


def test_one_that_lost_its_mark_is_ended_as_well(scene: Scene) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as process:
        identity = ProcessIdentity.of(process.pid)
        scene.installation.announce()
        part = PartState("valkey", None, None, identity)
        write_state(scene.home.state_path, replace(scene.state(), parts=(part,)))
        assert scene.home.end_leftovers() is True
        assert not identity.is_alive()


def test_only_one_at_a_time_looks_after_a_home(scene: Scene) -> None:
    with scene.home.hold(), pytest.raises(ServiceError, match="another command"):
        scene.home.stop()


def test_a_postgres_that_was_killed_comes_back_on_its_port_with_its_data() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-up-test-") as name:
        Path(name).chmod(0o755)
        part = PostgresPart(Path(name) / "postgres", Path(name) / "postgres.password", free_port())
        try:
            part.start()
            dsn = part.server.ensure_database("kept")
            process = part.process()
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            assert wait_until(lambda: part.process() is None, 60)
            assert wait_until(lambda: starts(part), 60)
            assert part.server.ensure_database("kept") == dsn
            assert isinstance(part.process(), ProcessIdentity)
        finally:
            part.stop()


def starts(part: PostgresPart) -> bool:
    """Not while what the killed one has started still ends."""
    try:
        part.start()
    except ServiceError:
        return False
    return True
