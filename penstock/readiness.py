"""Whether everything that the service depends on can be used now."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.store.migration import check as check_schema

if TYPE_CHECKING:
    from penstock.bootstrap import App


def check_readiness(app: "App") -> dict[str, dict[str, Any]]:
    """Each dependency, with what is wrong with it."""
    checks = {
        "database": lambda: _ask_database(app),
        "migrations": lambda: check_schema(app.database),
        "raw_store": lambda: app.raw.check(),
    }
    # Where it is not required, everything works without it.
    if app.redis is not None and app.settings.embedding.queue_require_redis:
        checks["redis"] = lambda: _ask_redis(app)
    return {name: _outcome(check) for name, check in checks.items()}


def _outcome(check: Callable[[], object]) -> dict[str, Any]:
    try:
        check()
    except PenstockError as error:
        return {"ok": False, "detail": str(error)}
    return {"ok": True}


def _ask_database(app: "App") -> None:
    with app.database.read():
        return


def _ask_redis(app: "App") -> None:
    from penstock.dispatch.connection import explained

    assert app.redis is not None
    with explained(app.redis):
        app.redis.ping()
