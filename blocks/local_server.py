"""Gives programs that use Prefect without naming a server the one of this machine."""

import os
from subprocess import Popen
from typing import TYPE_CHECKING, Any, cast

import psutil
from prefect.context import refresh_global_settings_context
from prefect.logging import get_logger
from prefect.settings import get_current_settings

from penstock.local.joining import find_or_start_prefect, join_installation
from penstock.settings import load_settings

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer


def use_local_server() -> None:
    """Where Prefect would start a temporary server, for a process in which no address is set, have
    it use the server of `penstock up`, or else start that of the home, as commands do."""
    settings = get_current_settings()
    if not settings.api.url and settings.server.ephemeral.enabled:
        # Prefect keeps one for each process: the first that is made.
        _server_class()()


def _server_class() -> "type[SubprocessASGIServer]":
    # Workers and commands name a server, and are spared this import: it takes seconds.
    from prefect.server.api.server import SubprocessASGIServer

    class LocalServer(SubprocessASGIServer):
        """Outlives this process, and is shared with others."""

        def start(self, timeout: int | None = None) -> None:
            del timeout
            if not self.running:
                _connect()
                # Prefect looks whether it has one.
                self.server_process = cast("Popen[Any]", psutil.Process())
                self.running = True

        @property
        def api_url(self) -> str:
            return os.environ["PREFECT_API_URL"]

        def stop(self) -> None:
            """Not ours to stop."""

    return LocalServer


def _connect() -> None:
    log = get_logger("penstock")
    join_installation(log.warning)
    said: set[str] = set()

    def report(phrase: str, _seconds: float) -> None:
        if phrase not in said:
            said.add(phrase)
            log.info("%s …", phrase)

    find_or_start_prefect(load_settings(), report)
    refresh_global_settings_context()
