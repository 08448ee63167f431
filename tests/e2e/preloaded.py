"""Runs commands in forks of a process that has imported their libraries once.

Importing takes most of the time of a short command. A fork has what was imported; everything of
this project is imported anew in it, with the environment of the command.

Usage: python -m tests.e2e.preloaded, with one request as JSON on each line of standard input.
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_OURS = ("penstock", "entrypoints", "flows", "tasks", "blocks", "deployments")
_LIBRARIES = ("entrypoints.cli.main", "flows.ingest", "flows.backfill", "uvicorn", "prefect.client")


@dataclass(frozen=True)
class Request:
    """One command, and the files that take its output."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    out: str
    err: str


class Preloaded:
    """This process's end: one command at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, request: Request) -> int:
        """The exit code; -9 and so on for one that a signal has ended."""
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(asdict(request)) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.communicate()
            self._process = None

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.preloaded"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def serve() -> None:
    for name in _LIBRARIES:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = Request(**json.loads(line))
        child = os.fork()
        if not child:
            _run(request)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


def _run(request: Request) -> None:
    """Never returns."""
    code = 1
    try:
        _take_place(request)
        from entrypoints.cli.main import main

        main()
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


def _take_place(request: Request) -> None:
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    for descriptor, path in ((0, os.devnull), (1, request.out), (2, request.err)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["penstock", *request.arguments]
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
    serve()
