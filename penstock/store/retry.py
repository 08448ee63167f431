"""Retrying while the database is unavailable: a restart, a failover, too many locks."""

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.errors import StoreConflict, StoreUnavailable

log = logging.getLogger(__name__)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

RETRY_SECONDS = 2.0
GIVE_UP_SECONDS = 120.0


def retry_while_unavailable(
    act: Callable[Parameters, Result],
    *,
    on: type[StoreUnavailable] = StoreUnavailable,
    wait: Callable[[float], object] = time.sleep,
) -> Callable[Parameters, Result]:
    """A function that calls `act` again while the database is unavailable, for two minutes at most.

    Only for what may be done twice: a commit whose answer was lost has happened all the same. After
    a deadlock nothing has happened, and `on=StoreConflict` retries nothing else. `wait` waits for
    so many seconds; when it returns True, as the `wait` of a set event does, the error is raised.
    """

    @functools.wraps(act)
    def act_again(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return act(*args, **kwargs)
            except on as error:
                if time.monotonic() > deadline:
                    raise
                # The other transaction of a deadlock has gone on: there is nothing to wait for.
                pause = 0.0 if isinstance(error, StoreConflict) else RETRY_SECONDS
                log.warning("trying again in %g s: %s", pause, error)
                if wait(pause) is True:
                    raise

    return act_again


retry_after_deadlock = functools.partial(retry_while_unavailable, on=StoreConflict)
