"""Has a command use the servers that `penstock up` runs for its home."""

import os

from dotenv import dotenv_values

from penstock.errors import ConfigurationError
from penstock.launcher.installation_home import InstallationHome
from penstock.launcher.state import Phase
from penstock.settings import Settings, load_settings


def join_installation() -> None:
    """What the environment or `.env` names stays as it is. Call it before prefect is imported."""
    try:
        settings = load_settings()
    except ConfigurationError:
        return  # the command itself says it, if it needs settings at all
    _heed_dotenv()
    found = installation_home(settings).find()
    # One that is starting does not know all of its servers yet.
    if found is not None and found.phase is Phase.READY:
        for name, value in _wanted(settings, dict(found.environment)).items():
            os.environ[name] = os.environ.get(name) or value


def installation_home(settings: Settings) -> InstallationHome:
    return InstallationHome(settings.home.resolve())


def _heed_dotenv() -> None:
    """Prefect reads `.env` itself, but whatever we put into the environment would win over it."""
    named = dotenv_values(".env").get("PREFECT_API_URL")
    if named and not os.environ.get("PREFECT_API_URL"):
        os.environ["PREFECT_API_URL"] = named


def _wanted(settings: Settings, offered: dict[str, str]) -> dict[str, str]:
    """Redis goes with its database, and Prefect's folder with its server."""
    named = settings.dsn.get_secret_value() if settings.dsn else None
    if named not in (None, offered.get("PENSTOCK_DSN")):
        offered.pop("PENSTOCK_DSN", None)
        offered.pop("REDIS_URL", None)
    if settings.redis_url is not None:
        offered.pop("REDIS_URL", None)
    if os.environ.get("PREFECT_API_URL"):
        offered = {name: value for name, value in offered.items() if "PREFECT_" not in name}
    return offered
