"""Parts are started, looked after, and ended the other way round with all they have started."""

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import ServiceError
from penstock.launcher.installation import Installation
from penstock.launcher.installation_home import InstallationHome
from penstock.launcher.installation_state import InstallationState
from penstock.launcher.marks import find_marked
from penstock.launcher.parts import PostgresPart, ProcessPart
from penstock.launcher.processes import ProcessIdentity, wait_until

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
        self.installation = Installation(self.home.state_path, self.said.append)

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
            watching.join(timeout=30)

    def state(self) -> InstallationState:
        found = self.home.read()
        assert found is not None
        return found

    def heard(self, words: str) -> bool:
        return wait_until(lambda: any(words in line for line in [*self.said]), 20)


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
    assert wait_until(lambda: len(find_marked(scene.installation.id)) == 8, 20)
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
    assert wait_until(lambda: "open" in part.log_path.read_text(), 10)
    with scene.watched():
        os.kill(first.pid, signal.SIGKILL)
        assert scene.heard("worker-1 ended by itself and is started again in 1 s")
        assert scene.heard("the gate is open")
        assert scene.heard("worker-1 runs again")
        second = part.process()
        assert second is not None
        assert second != first
        assert scene.state().parts[0].process == second


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
    assert wait_until(lambda: len(find_marked(scene.installation.id)) == 2, 20)
    data = json.loads(scene.home.state_path.read_text())
    data["supervisor"]["create_time"] -= 3600
    scene.home.state_path.write_text(json.dumps(data))
    assert scene.home.find() is None
    assert scene.home.stop() is True
    assert not find_marked(scene.installation.id)
    assert scene.home.stop() is False


def test_only_one_at_a_time_looks_after_a_home(scene: Scene) -> None:
    with scene.home.hold(), pytest.raises(ServiceError, match="another command"):
        scene.home.stop()


def test_a_postgres_that_was_killed_comes_back_on_its_port_with_its_data() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-up-test-") as name:
        Path(name).chmod(0o755)
        part = PostgresPart(Path(name) / "postgres")
        try:
            part.start()
            dsn = part.server.ensure_database("kept")
            process = part.process()
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            assert wait_until(lambda: part.process() is None, 10)
            assert wait_until(lambda: starts(part), 30)
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
