"""`penstock up`: a whole installation on this machine, in one command."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from dotenv import dotenv_values

from entrypoints.cli.board import describe, print_board
from entrypoints.cli.joining import installation_home
from entrypoints.cli.output import Json, errors, print_json
from penstock.errors import ServiceError, UsageError
from penstock.launcher.installation import Installation
from penstock.launcher.installation_home import InstallationHome
from penstock.launcher.installation_state import InstallationState
from penstock.launcher.ports import is_taken
from penstock.launcher.processes import last_lines
from penstock.launcher.state import Phase
from penstock.settings import Settings, load_settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_SECONDS = 0.2


def up(
    workers: Annotated[
        int, typer.Option(min=1, help="Prefect workers; each runs several flow runs at once.")
    ] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the HTTP API; 0: any free one.")
    ] = 8000,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running in the background.")
    ] = False,
    json: Json = False,
) -> None:
    """Run Postgres, Valkey, a Prefect server, workers and the HTTP API until stopped.

    PENSTOCK_DSN, REDIS_URL or PREFECT_API_URL name ones of your own, which are used instead.
    """
    settings = load_settings()
    home = installation_home(settings)
    if running := home.find():
        _show_running(home, running, json)
    elif port and is_taken(port):
        raise UsageError(f"port {port} is taken: name another one, or `--port 0` for any free one")
    elif detach:
        _run_in_background(home, workers, port, json)
    else:
        _run(home, settings, workers, port, json)


def _show_running(home: InstallationHome, state: InstallationState, json: bool) -> None:
    if state.phase is not Phase.READY:
        raise ServiceError(f"process {state.supervisor.pid} is {state.phase} {home.folder} already")
    _say("already up; to have it otherwise: `penstock down`, then `penstock up`")
    _show(home, state, json)


def _run(home: InstallationHome, settings: Settings, workers: int, port: int, json: bool) -> None:
    home.logs.mkdir(parents=True, exist_ok=True)
    _take_along(settings)
    with home.hold(), _stopped_by_signals():
        if home.end_leftovers():
            _say("ended what was still running")
        _set_aside_logs(home)
        installation = Installation(home.state_path, _say)
        try:
            installation.be_guarded()
            _start(installation, home, settings, workers, port)
            _show(home, installation.state, json)
            installation.watch()
        except KeyboardInterrupt:
            pass
        finally:
            _ignore_signals()
            installation.stop()
            _say(f"stopped; the data stay in {home.folder}")


def _start(
    installation: Installation, home: InstallationHome, settings: Settings, workers: int, port: int
) -> None:
    from entrypoints.cli.startup import Startup

    @contextmanager
    def step(title: str) -> Iterator[None]:
        installation.enter(title)
        began = time.monotonic()
        with errors.status(f"starting: {title} …"):
            yield
        _say(f"✓ {title} ({time.monotonic() - began:.1f} s)")

    Startup(installation, home, settings, step).run(workers, port)
    installation.become_ready()


def _run_in_background(home: InstallationHome, workers: int, port: int, json: bool) -> None:
    home.logs.mkdir(parents=True, exist_ok=True)
    log_path = home.logs / "up.log"
    command = [sys.executable, "-m", "entrypoints.cli.main", "up"]
    with log_path.open("wb") as log:
        started = subprocess.Popen(
            [*command, "--workers", str(workers), "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        state = _await_ready(home, started)
    except KeyboardInterrupt:
        started.terminate()
        started.wait()
        raise
    if state is None:
        raise ServiceError(f"it ended while it was starting. {last_lines(log_path)}")
    _show(home, state, json)


def _await_ready(
    home: InstallationHome, started: "subprocess.Popen[bytes]"
) -> InstallationState | None:
    with errors.status("starting …") as spinner:
        while started.poll() is None:
            state = home.read()
            if state is not None and state.supervisor.pid == started.pid:
                if state.phase is Phase.READY:
                    return state
                spinner.update(f"starting: {state.step} …")
            time.sleep(_POLL_SECONDS)
    return None


def _take_along(settings: Settings) -> None:
    """Workers run in another folder, where neither `.env` nor relative paths mean the same."""
    for name, value in dotenv_values(".env").items():
        if value and not os.environ.get(name):
            os.environ[name] = value
    os.environ["PENSTOCK_HOME"] = str(settings.home.resolve())


def _set_aside_logs(home: InstallationHome) -> None:
    for path in home.logs.glob("*.log"):
        # That of `--detach` is being written.
        if path.name != "up.log" and not path.name.endswith(".previous.log"):
            path.replace(path.with_suffix(".previous.log"))


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    """The end has begun, and takes a bounded time."""
    for number in _SIGNALS:
        # A function, since children would inherit SIG_IGN.
        signal.signal(number, lambda _number, _frame: None)


def _show(home: InstallationHome, state: InstallationState, json: bool) -> None:
    if json:
        print_json(describe(home, state))
    else:
        print_board(home, state)


def _say(line: str) -> None:
    # Whoever reads may have gone, with the terminal; what runs is ended in good order all the same.
    with suppress(OSError):
        errors.print(line, markup=False, highlight=False, soft_wrap=True)
