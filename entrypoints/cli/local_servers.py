"""Has a command use the servers of its home: those of `penstock up`, or a local Prefect server."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from dotenv import dotenv_values

from entrypoints.cli.output import errors
from penstock.errors import ConfigurationError
from penstock.home import open_private
from penstock.local.installation import InstallationHome
from penstock.local.prefect_server import (
    REFUSED_STATUSES,
    PrefectServer,
    ServerAddress,
    describe_refusal,
    is_same_api,
)
from penstock.local.state import Phase, SupervisorState
from penstock.settings import Settings, load_settings, mask_url


def join_installation() -> None:
    """Put the addresses of a running `penstock up` into the environment, unless it or `.env` names
    others. Must be called before prefect is imported."""
    try:
        settings = load_settings()
    except ConfigurationError:
        return  # the command itself says it, if it needs settings at all
    _apply_dotenv()
    found = installation_home(settings).find()
    # One that is starting does not know all of its servers yet.
    if found is not None and found.phase is Phase.READY:
        _warn_of_open_server(found)
        for name, value in _wanted(settings, dict(found.environment)).items():
            # Credentials for another server are of no use for ours, and ours are sent to the very
            # address that we listen at: another account may have the same port of [::1].
            if name in ("PREFECT_API_AUTH_STRING", "PREFECT_API_URL") or not os.environ.get(name):
                os.environ[name] = value


def installation_home(settings: Settings) -> InstallationHome:
    return InstallationHome(settings.home.resolve())


def _apply_dotenv() -> None:
    """Prefect reads `.env` itself, but whatever we put into the environment would win over it."""
    named = dotenv_values(".env")
    if named.get("PREFECT_API_URL") and not os.environ.get("PREFECT_API_URL"):
        for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"):
            os.environ.update({name: value} if (value := named.get(name)) else {})


def _warn_of_open_server(found: SupervisorState) -> None:
    ours = any(part.name == "prefect" and not part.given_by for part in found.parts)
    if ours and "PREFECT_API_AUTH_STRING" not in found.environment:
        errors.print(
            "warning: an older version has started the Prefect server that runs here, and every "
            "account of this machine can run programs through it: run `penstock down`, then "
            "`penstock up`",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _wanted(settings: Settings, offered: dict[str, str]) -> dict[str, str]:
    """Redis goes with its database, and Prefect's folder and credentials with its server."""
    named = settings.dsn.get_secret_value() if settings.dsn else None
    if named not in (None, offered.get("PENSTOCK_DSN")):
        offered.pop("PENSTOCK_DSN", None)
        offered.pop("REDIS_URL", None)
    if settings.redis_url is not None:
        offered.pop("REDIS_URL", None)
    server = os.environ.get("PREFECT_API_URL")
    if server and not is_same_api(server, offered.get("PREFECT_API_URL", "")):
        offered = {name: value for name, value in offered.items() if "PREFECT_" not in name}
    return offered


def prefect_server(settings: Settings) -> PrefectServer:
    """The server that belongs to this home."""
    return PrefectServer(settings.home, idle_seconds=settings.server_idle_seconds or None)


def connect_prefect(settings: Settings) -> str | None:
    """Have this process's flows report to a server; its UI's address if it is the local one.

    A server named in PREFECT_API_URL is used as it is. Must be called before prefect is imported.
    """
    _silence_prefect_console()
    ui_url = _find_or_start(settings)
    # Prefect itself imports this only when the first flow run has begun.
    import_module("fastapi.encoders")
    return ui_url


def _find_or_start(settings: Settings) -> str | None:
    if named := os.environ.get("PREFECT_API_URL"):
        sign_in(settings, named)
        return None
    server = prefect_server(settings)
    address = _ensure(server)
    os.environ.update(server.client_environment(address))
    return address.ui_url


def sign_in(settings: Settings, api_url: str) -> None:
    """Set the credentials of this process, if the address is that of the home's own server."""
    address = prefect_server(settings).find()
    if address is not None and is_same_api(address.api_url, api_url):
        # As we write it: at the same port of `localhost` or [::1] may listen another account's
        # program, which must not get the string.
        os.environ["PREFECT_API_URL"] = address.api_url
        os.environ["PREFECT_API_AUTH_STRING"] = address.auth_string


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


def _ensure(server: PrefectServer) -> ServerAddress:
    with errors.status("looking for the local Prefect server …") as spinner:
        said: set[str] = set()

        def report(phrase: str, seconds: float) -> None:
            spinner.update(f"{phrase} … {seconds:.0f} s")
            if not errors.is_terminal and phrase not in said:
                said.add(phrase)
                errors.print(f"{phrase} …", highlight=False)

        return server.ensure(report)


def _silence_prefect_console() -> None:
    """Prefect's log lines go to its server, where they can be found; the screen shows progress."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
