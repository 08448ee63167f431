"""`penstock up` and `penstock down`: a whole installation on this machine, in one command."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from dotenv import dotenv_values

from entrypoints.cli.output import Json, console, errors, print_json, print_pairs
from penstock.errors import ServiceError, UsageError
from penstock.home import make_private_folder
from penstock.local.installation import InstallationHome
from penstock.local.joining import installation_home
from penstock.local.processes import is_taken, last_lines
from penstock.local.state import Phase, SupervisorState
from penstock.local.supervisor import Supervisor, stopped_by_signals
from penstock.settings import Settings, load_settings, mask_url

_POLL_SECONDS = 0.2


def up(
    workers: Annotated[
        int, typer.Option(min=1, help="Prefect workers; each runs several flow runs at once.")
    ] = 1,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the HTTP API; 0: any free one. Default: as at the last start, else 8000.",
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
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


def down(json: Json = False) -> None:
    """Stop `penstock up`, or the local Prefect server of this home. Data is kept."""
    home = installation_home(load_settings())
    was_up = home.read() is not None
    with errors.status("stopping …"):
        stopped = home.stop()
    if json:
        print_json({"stopped": stopped})
    elif not stopped:
        console.print("nothing was running")
    else:
        console.print("penstock is down" if was_up else "the local Prefect server is stopped")


def _show_running(home: InstallationHome, state: SupervisorState, json: bool) -> None:
    if state.phase is not Phase.READY:
        raise ServiceError(f"process {state.supervisor.pid} is {state.phase} {home.folder} already")
    _say("already running; to change options: `penstock down`, then `penstock up`")
    _show(home, state, json)


def _run(
    home: InstallationHome, settings: Settings, workers: int, port: int | None, json: bool
) -> None:
    make_private_folder(home.logs)
    _take_along(settings)
    supervisor = Supervisor(home.state_path, _say)

    def stop() -> None:
        supervisor.stop()
        _say(f"stopped; the data is kept in {home.folder}")

    with home.hold(), stopped_by_signals(stop):
        if home.end_leftovers():
            _say("ended leftover processes of an earlier start")
        _set_aside_logs(home)
        supervisor.start_guard()
        _start(supervisor, home, settings, workers, port)
        _show(home, supervisor.state, json, in_foreground=True)
        supervisor.watch()


def _start(
    supervisor: Supervisor,
    home: InstallationHome,
    settings: Settings,
    workers: int,
    port: int | None,
) -> None:
    from entrypoints.cli.startup import Startup

    @contextmanager
    def step(title: str) -> Iterator[None]:
        supervisor.enter(title)
        began = time.monotonic()
        with errors.status(f"starting: {title} …"):
            yield
        _say(f"✓ {title} ({time.monotonic() - began:.1f} s)")

    Startup(supervisor, home, settings, step).run(workers, port)
    supervisor.become_ready()


def _run_in_background(home: InstallationHome, workers: int, port: int | None, json: bool) -> None:
    make_private_folder(home.logs)
    log_path = home.logs / "up.log"
    command = [sys.executable, "-m", "entrypoints.cli.main", "up", "--workers", str(workers)]
    if port is not None:
        command += ["--port", str(port)]
    with log_path.open("wb") as log:
        started = subprocess.Popen(
            command,
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
        raise ServiceError(f"it ended during start. {last_lines(log_path)}")
    _show(home, state, json)


def _await_ready(
    home: InstallationHome, started: "subprocess.Popen[bytes]"
) -> SupervisorState | None:
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


def _show(
    home: InstallationHome, state: SupervisorState, json: bool, *, in_foreground: bool = False
) -> None:
    if json:
        print_json(describe(home, state))
    else:
        print_board(home, state, in_foreground=in_foreground)


def describe(home: InstallationHome, state: SupervisorState) -> dict[str, Any]:
    """The board for programs; passwords in addresses are hidden."""
    found = {part.name: part for part in state.parts}
    api = found["api"].address
    prefect = found["prefect"]
    return {
        "home": str(home.folder),
        "prefect_ui_url": None if prefect.given_by else prefect.address,
        "prefect_auth_file": None if prefect.given_by else str(home.prefect_auth),
        "prefect_api_url": mask_url(state.environment["PREFECT_API_URL"]),
        "api_url": api,
        "docs_url": f"{api}/docs",
        "pages_url": f"{api}/ui",
        "database": mask_url(state.environment["PENSTOCK_DSN"]),
        "redis": mask_url(state.environment["REDIS_URL"]),
        "workers": sum(name.startswith("worker-") for name in found),
        "standby_workers": int("standby" in found),
        "logs": str(home.logs),
        "notes": list(state.notes),
    }


def print_board(
    home: InstallationHome, state: SupervisorState, *, in_foreground: bool = False
) -> None:
    """The board for people, with what to type next."""
    board = describe(home, state)
    ours = board["prefect_auth_file"] is not None
    console.print("\n[bold green]Penstock is up[/]", markup=True)
    print_pairs(
        [
            ("Prefect UI", board["prefect_ui_url"] or f"of {board['prefect_api_url']}"),
            *([("Prefect password", f"in {board['prefect_auth_file']}")] if ours else []),
            ("HTTP API", board["docs_url"]),
            ("dashboard", board["pages_url"]),
            ("database", board["database"]),
            ("Redis", board["redis"]),
            ("workers", f"{board['workers']} of Prefect, {board['standby_workers']} standby"),
            ("home", board["home"]),
            ("logs", board["logs"]),
        ]
    )
    for note in board["notes"]:
        _print(f"note: {note}")
    if in_foreground:
        _print("\nStop it with Ctrl-C, or `penstock down` elsewhere. Next, in another terminal:")
    else:
        _print("\nStop it with `penstock down`. Next:")
    _print("  penstock ingest FOLDER            process your own documents")
    _print('  penstock search "…"               search them; penstock status shows what is running')
    # The one of a given server is known, and its password is hidden here.
    if ours:
        # Not the password itself, which would stay on the screen and in `up.log`.
        _print(f"  export PREFECT_API_URL={board['prefect_api_url']}")
        file = shlex.quote(board["prefect_auth_file"])
        _print(f'  export PREFECT_API_AUTH_STRING="$(cat {file})"')
    _print("  prefect deployment run 'ingest/ingest' -p source=FOLDER      run by a worker")


def _print(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _say(line: str) -> None:
    # The terminal may be closed; the servers are stopped in order all the same.
    with suppress(OSError):
        errors.print(line, markup=False, highlight=False, soft_wrap=True)
