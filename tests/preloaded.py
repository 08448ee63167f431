"""Starts programs of ours as forks of a process that has imported their libraries once.

Importing takes most of the time of a short command. A fork has what was imported; what reads the
environment when it is imported, as flows and commands do, is imported anew in it.

The process is `python -m tests.preloaded DESCRIPTOR`: a socket that brings one request a message,
with the descriptors of the program's standard streams and of a socket for its id and its end.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
_ANEW = ("entrypoints", "flows", "tasks", "blocks", "deployments")
_LIBRARIES = (
    "entrypoints.cli.main",
    "entrypoints.api.app",
    "flows.ingest",
    "flows.backfill",
    "uvicorn",
    "prefect.client",
)
_LARGEST = 150_000


@dataclass(frozen=True)
class Program:
    """A module that is run as a program."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    log_path: str | None = None
    """Takes what it says instead of the pipes."""
    own_session: bool = False


class Started:
    """A program under way, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, news: socket.socket, stdin: int, stdout: int, stderr: int) -> None:
        self._news = news.makefile("r")
        news.close()
        self.pid = int(self._news.readline())
        self.returncode: int | None = None
        self.stdin: IO[str] = os.fdopen(stdin, "w")
        self.stdout: IO[str] = os.fdopen(stdout, errors="replace")
        self.stderr: IO[str] = os.fdopen(stderr, errors="replace")
        self._end = threading.Thread(target=self._wait, daemon=True)
        self._end.start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._end.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        said = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            said[number] = stream.read()

        streams = enumerate((self.stdout, self.stderr))
        readers = [threading.Thread(target=read, args=one, daemon=True) for one in streams]
        self.stdin.close()
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        self.close()
        return said[0], said[1]

    def close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def _wait(self) -> None:
        with self._news:
            self.returncode = int(self._news.readline() or -signal.SIGKILL)


class Preloaded:
    """The process that forks; it is started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def start(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        folder: Path,
        log_path: Path | None = None,
        own_session: bool = False,
    ) -> Started:
        log = None if log_path is None else str(log_path)
        program = Program(module, list(arguments), dict(environment), str(folder), log, own_session)
        ours, theirs = socket.socketpair()
        (stdin_read, stdin), (stdout, stdout_write), (stderr, stderr_write) = (
            os.pipe() for _ in range(3)
        )
        given = [theirs.detach(), stdin_read, stdout_write, stderr_write]
        with self._lock:
            requests = self._requests = self._requests or self._begin()
            socket.send_fds(requests, [json.dumps(asdict(program)).encode()], given)
        for descriptor in given:
            os.close(descriptor)
        return Started(ours, stdin, stdout, stderr)

    def stop(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait(timeout=60)
            self._process = self._requests = None

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return ours


PRELOADED = Preloaded()


def serve(requests: socket.socket) -> None:
    for name in _LIBRARIES:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in _ANEW]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    # Ended forks of this process (see _run_and_tell) leave no zombies behind.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _LARGEST, 4)
        if not message:
            return
        if not os.fork():
            requests.close()
            _run_and_tell(Program(**json.loads(message)), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _run_and_tell(program: Program, news: int, *streams: int) -> None:
    """Never returns; tells the program's id, and its exit code: -9 for one that was killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        os.close(news)
        _run(program, streams)
    for descriptor in streams:
        os.close(descriptor)
    os.write(news, f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    os.write(news, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(program: Program, streams: tuple[int, ...]) -> None:
    """Never returns."""
    code = 1
    try:
        _take_place(program, streams)
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _take_place(program: Program, streams: tuple[int, ...]) -> None:
    # Shells have their background jobs ignore it, and so would all that those start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if program.own_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(program.environment)
    os.chdir(program.folder)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    if program.log_path is not None:
        with Path(program.log_path).open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    sys.argv = ["penstock", *program.arguments]
    # As the command line does before it imports prefect, which has been imported here already.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    refresh_global_settings_context()
    setup_logging(incremental=False)


def _end(code: int) -> None:
    """As the interpreter ends: threads are waited for, exit handlers run, output is written."""
    import atexit

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as found:
        serve(found)
