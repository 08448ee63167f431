"""How commands show the servers of their home, and what they say when these fail."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from entrypoints.cli.output import errors
from penstock.home import open_private
from penstock.local.joining import find_or_start_prefect
from penstock.local.prefect_server import REFUSED_STATUSES, describe_refusal
from penstock.settings import Settings, mask_url


def warn(message: str) -> None:
    """Say what does not stop the command."""
    errors.print(f"warning: {message}", markup=False, highlight=False, soft_wrap=True)


def connect_prefect(settings: Settings) -> str | None:
    """Have this process's flows report to a server; its UI's address if it is the local one.

    Must be called before prefect is imported.
    """
    _silence_prefect_console()
    with errors.status("looking for the local Prefect server …") as spinner:
        said: set[str] = set()

        def report(phrase: str, seconds: float) -> None:
            spinner.update(f"{phrase} … {seconds:.0f} s")
            if not errors.is_terminal and phrase not in said:
                said.add(phrase)
                errors.print(f"{phrase} …", highlight=False)

        ui_url = find_or_start_prefect(settings, report)
    # Prefect itself imports this only when the first flow run has begun.
    import_module("fastapi.encoders")
    return ui_url


def explain_refusal(settings: Settings, error: Exception) -> str | None:
    """What to do if Prefect refused our credentials; None if the error is another one."""
    from prefect.exceptions import PrefectHTTPStatusError

    # Other servers, such as those of models, answer with the same status.
    if isinstance(error, PrefectHTTPStatusError) and error.response.status_code in REFUSED_STATUSES:
        return describe_refusal(settings.home.absolute())
    return None


def explain_crash(home: Path, what: str, error: Exception) -> str:
    """The message for an unexpected error; its traceback goes to a file."""
    log = home / "penstock.log"
    with open(log, "a", encoding="utf-8", opener=open_private) as lines:
        traceback.print_exception(error, file=lines)
    # Runs keep this, and the address of Prefect's API may hold a password.
    return (
        f"{what} stopped: {type(error).__name__}: {mask_url(str(error))} (details in {log}). "
        "The same command resumes it."
    )


@contextmanager
def without_heartbeats() -> Iterator[None]:
    """Run flows without heartbeats, which serve to find dead workers.

    Prefect's heartbeat thread would delay the end of the command by a second.
    """
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _silence_prefect_console() -> None:
    """Prefect's log lines go to its server, where they can be found; the screen shows progress."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
