"""Finds, or starts, the Prefect server that flows report to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from entrypoints.cli.output import errors
from penstock.launcher.prefect_server import PrefectServer, ServerAddress
from penstock.settings import Settings


def prefect_server(settings: Settings) -> PrefectServer:
    """The server that belongs to this home."""
    return PrefectServer(settings.home, idle_seconds=settings.server_idle_seconds or None)


def connect_prefect(settings: Settings) -> str | None:
    """Have this process's flows report to a server; its UI's address if it is the local one.

    A server named in PREFECT_API_URL is used as it is. Must be called before prefect is imported.
    """
    _keep_the_screen_quiet()
    if os.environ.get("PREFECT_API_URL"):
        return None
    server = prefect_server(settings)
    address = _ensure(server)
    os.environ.update(server.client_environment(address))
    return address.ui_url


@contextmanager
def watched_by_a_person() -> Iterator[None]:
    """Flow runs without heartbeats: whoever typed the command sees it end.

    Prefect's heartbeat thread, made for finding dead workers, would hold up the end by a second.
    """
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _ensure(server: PrefectServer) -> ServerAddress:
    with errors.status("looking for the local Prefect server …") as spinner:
        said: set[str] = set()

        def report(phrase: str, seconds: float) -> None:
            spinner.update(f"{phrase} … {seconds:.0f} s")
            if not errors.is_terminal and phrase not in said:
                said.add(phrase)
                errors.print(f"{phrase} …", highlight=False)

        return server.ensure(report)


def _keep_the_screen_quiet() -> None:
    """Prefect's log lines go to its server, where they can be found; the screen shows progress."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
