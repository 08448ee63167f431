"""Has a process use the servers of its home: those of `penstock up`, or a local Prefect server."""

import os
from collections.abc import Callable

from dotenv import dotenv_values

from penstock.errors import ConfigurationError
from penstock.local.installation import InstallationHome
from penstock.local.prefect_server import PrefectServer, is_same_api
from penstock.local.processes import Report
from penstock.local.state import Phase, SupervisorState
from penstock.settings import Settings, load_settings

OPEN_SERVER = (
    "an older version has started the Prefect server that runs here, and every account of this "
    "machine can run programs through it: run `penstock down`, then `penstock up`"
)


def join_installation(warn: Callable[[str], None] | None = None, *, prefect: bool = True) -> None:
    """Put the addresses of a running `penstock up` into the environment, unless it or `.env` names
    others. Without `prefect`, only those of the database and of Redis: the process has a Prefect
    server already. `warn` is called with what the user has to know."""
    try:
        settings = load_settings()
    except ConfigurationError:
        return  # the caller itself says it, if it needs settings at all
    if prefect:
        _apply_dotenv()
    found = installation_home(settings).find()
    # One that is starting does not know all of its servers yet.
    if found is None or found.phase is not Phase.READY:
        return
    if warn and _is_open(found):
        warn(OPEN_SERVER)
    for name, value in _wanted(settings, dict(found.environment)).items():
        # Credentials for another server are of no use for ours, and ours are sent to the very
        # address that we listen at: another account may have the same port of [::1].
        ours_alone = name in ("PREFECT_API_AUTH_STRING", "PREFECT_API_URL")
        if (prefect or "PREFECT_" not in name) and (ours_alone or not os.environ.get(name)):
            os.environ[name] = value


def find_or_start_prefect(settings: Settings, report: Report) -> str | None:
    """Have the environment name a Prefect server; its UI's address if it is the home's own one.

    A server that PREFECT_API_URL names is used as it is.
    """
    if named := os.environ.get("PREFECT_API_URL"):
        sign_in(settings, named)
        return None
    server = prefect_server(settings)
    address = server.ensure(report)
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


def installation_home(settings: Settings) -> InstallationHome:
    """The folder of this home's `penstock up`, running or not."""
    return InstallationHome(settings.home.resolve())


def prefect_server(settings: Settings) -> PrefectServer:
    """The server that belongs to this home."""
    return PrefectServer(settings.home, idle_seconds=settings.server_idle_seconds or None)


def _apply_dotenv() -> None:
    """Prefect reads `.env` itself, but whatever we put into the environment would win over it."""
    named = dotenv_values(".env")
    if named.get("PREFECT_API_URL") and not os.environ.get("PREFECT_API_URL"):
        for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"):
            os.environ.update({name: value} if (value := named.get(name)) else {})


def _is_open(found: SupervisorState) -> bool:
    ours = any(part.name == "prefect" and not part.given_by for part in found.parts)
    return ours and "PREFECT_API_AUTH_STRING" not in found.environment


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
