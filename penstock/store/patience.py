"""Waiting for a database that is away for a while: a restart, a failover, a full table of locks."""

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.errors import StoreUnavailable

log = logging.getLogger(__name__)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

RETRY_SECONDS = 2.0
PATIENCE_SECONDS = 120.0


def patient(act: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Do it again while the database is away, for two minutes at most.

    For what may be done twice: a commit whose answer was lost has happened all the same.
    """

    @functools.wraps(act)
    def act_patiently(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return until_back(lambda: act(*args, **kwargs))

    return act_patiently


def until_back(act: Callable[[], Result], wait: Callable[[float], object] = time.sleep) -> Result:
    """The same for a call of one's own. `wait` waits, and tells by True that there is no time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except StoreUnavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("trying again in %g s: %s", RETRY_SECONDS, error)
            if wait(RETRY_SECONDS) is True:
                raise
