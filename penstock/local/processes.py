"""Processes that outlive the command that started them, their ports, deadlines and passwords."""

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


# The kernel derives creation times from the boot time, which shifts a little with the clock.
_CLOCK_TOLERANCE_SECONDS = 1.5
_KILL_SECONDS = 5.0
# A log may be huge.
_LOG_END_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid that cannot be mistaken for a later process with the same number."""

    pid: int
    create_time: float

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity":
        import psutil

        return cls(pid, psutil.Process(pid).create_time())

    def is_alive(self) -> bool:
        return self.find() is not None

    def find(self) -> "psutil.Process | None":
        """The living process, or None when it ended or its pid belongs to another one now."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) < _CLOCK_TOLERANCE_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def run_detached(
    command: Sequence[str], log_path: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a command that goes to the background by itself, tied to nothing of the caller.

    Its output is appended to the log; the root folder is its working folder, so that neither a
    settings file of the caller's folder is read nor that folder kept busy.
    """
    with log_path.open("ab") as log:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
            check=False,
        )


def go_to_background() -> Callable[[], None]:
    """Continue in a child process; calling the answer there lets the foreground process end.

    A child that dies before that call shows as exit code 1.
    """
    done, tell_done = os.pipe()
    if os.fork():
        os.close(tell_done)
        os._exit(0 if os.read(done, 1) else 1)
    os.close(done)

    def let_go() -> None:
        os.write(tell_done, b"1")
        os.close(tell_done)

    return let_go


def stop_tree(identity: ProcessIdentity, timeout_seconds: float) -> bool:
    """Ask a process to end, then end it and what it started by force. False: it was not there."""
    import psutil

    root = identity.find()
    if root is None:
        return False
    try:
        tree = [root, *root.children(recursive=True)]
        root.terminate()
    except psutil.NoSuchProcess:
        return True
    wait_until(lambda: not identity.is_alive(), timeout_seconds)
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    # Not psutil's own wait: that one waits for dead processes that init has not collected yet.
    wait_until(lambda: not identity.is_alive(), _KILL_SECONDS)
    return True


def ask_children_to_end(pid: int, timeout_seconds: float) -> bool:
    """Ask what a process has started, also meanwhile, to end; False when some did not."""
    import psutil

    asked: set[psutil.Process] = set()

    def are_gone() -> bool:
        with suppress(psutil.NoSuchProcess):
            children = set(psutil.Process(pid).children())
            for child in children - asked:
                with suppress(psutil.NoSuchProcess):
                    child.terminate()
            asked.update(children)
            return not children
        return True

    return wait_until(are_gone, timeout_seconds)


def stop_alone(identity: ProcessIdentity, timeout_seconds: float) -> bool:
    """The same for a process whose children are seen to by others."""
    import psutil

    process = identity.find()
    if process is None:
        return False
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        if not wait_until(lambda: not identity.is_alive(), timeout_seconds):
            process.kill()
            wait_until(lambda: not identity.is_alive(), _KILL_SECONDS)
    return True


def wait_until(
    condition: Callable[[], bool], timeout_seconds: float, interval_seconds: float = 0.05
) -> bool:
    """Poll until the condition holds; False when the time is up first."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_seconds)
    return True


def last_lines(path: Path, count: int = 20) -> str:
    """The end of a log file, for an error message."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_END_BYTES))
            text = log.read(_LOG_END_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return "(no log was written)"
    return "\n".join(text.strip().splitlines()[-count:]) or "(the log is empty)"


_VARIABLE = "UNDER_PENSTOCK_UP"
_LOOK_SECONDS = 0.2


def mark_of(installation_id: str, part: str) -> str:
    """What the processes of one part carry."""
    return f"{installation_id}:{part};"


def marked_environment(mark: str) -> dict[str, str]:
    """This process's environment, for a child that carries the mark."""
    return {**os.environ, _VARIABLE: mark}


def find_marked(mark: str) -> "list[psutil.Process]":
    """Living processes, other than this one, whose mark begins like this."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            carries = process.environ().get(_VARIABLE, "").startswith(mark)
            other = process.pid != os.getpid()
            if carries and other and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_marked(mark: str, grace_seconds: float) -> bool:
    """Ask all of them to end, then end them by force. False: there were none."""
    import psutil

    found = find_marked(mark)
    _each(found, psutil.Process.terminate)
    if found and not wait_until(lambda: not find_marked(mark), grace_seconds, _LOOK_SECONDS):
        _each(find_marked(mark), psutil.Process.kill)
        wait_until(lambda: not find_marked(mark), _KILL_SECONDS, _LOOK_SECONDS)
    return bool(found)


def _each(processes: "list[psutil.Process]", action: "Callable[[psutil.Process], None]") -> None:
    import psutil

    for process in processes:
        with suppress(psutil.NoSuchProcess):
            action(process)


LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that is free right now; it may be taken before it is used."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
        return False


def answers_ok(port: int, path: str, timeout_seconds: float) -> bool:
    """Whether an HTTP server on this port answers 200 to a GET.

    Spoken by hand: no proxy setting of the caller gets in between, and the command line is
    spared the import of an HTTP client.
    """
    request = f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}\r\n\r\n".encode()
    try:
        with socket.create_connection((LOOPBACK, port), timeout_seconds) as connection:
            connection.sendall(request)
            return connection.recv(16).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


Report = Callable[[str, float], None]
"""Called repeatedly with a short phrase and the seconds waited so far: for a spinner."""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Deadline:
    """One caller's wait, from its first moment to its deadline."""

    timeout_seconds: float
    report: Report | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        return self.started + self.timeout_seconds - time.monotonic()

    def say(self, phrase: str) -> None:
        if self.report is not None:
            self.report(phrase, time.monotonic() - self.started)

    def pause(self, phrase: str) -> None:
        """Wait a moment; TimeoutError when the time is up."""
        if self.seconds_left <= 0:
            raise TimeoutError(phrase)
        self.say(phrase)
        time.sleep(_POLL_SECONDS)


def read_secret(path: Path) -> str | None:
    """What the file holds; None, when there is none or it is empty."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def ensure_secret(path: Path, user: str | None = None) -> str:
    """The password in this file, which is made when there is none.

    With a `user`, in the form `user:password`. The caller holds a lock against concurrent calls.
    """
    found = read_secret(path)
    if found is None:
        found = f"{user}:{new_password()}" if user else new_password()
        write_secret(path, found)
    return found


def new_password() -> str:
    """Letters and digits alone: it stands in addresses and in configuration files."""
    return secrets.token_hex(24)


def write_secret(path: Path, text: str) -> None:
    """Replace the file in one step; it is never open to others, and never half written."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
