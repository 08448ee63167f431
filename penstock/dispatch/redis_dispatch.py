"""Mirrors the moves of work items in Redis and wakes waiting workers; the work goes on without."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.dispatch.connection import read_address, read_timeout
from penstock.dispatch.jobs import Job, flatten, job_of_move
from penstock.dispatch.outage import Outage
from penstock.dispatch.patience import call_within
from penstock.dispatch.scripts import run_script
from penstock.work.moves import Move

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

# So that no script keeps Redis from its other clients for more than some milliseconds.
_JOBS_AT_ONCE = 500


class RedisDispatch:
    """Hears of committed moves. It never raises, and never takes longer than the client's timeout.

    What Redis did not hear while it was away, the reconciler tells it.
    """

    def __init__(
        self,
        client: "Redis",
        *,
        rest_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._seconds = read_timeout(client)
        self._outage = Outage(
            "until it can, workers look for work by themselves and the queues in Redis stand still",
            read_address(client),
            rest_seconds=rest_seconds,
            clock=clock,
        )

    def moved(self, moves: Sequence[Move]) -> None:
        if not moves or not self._outage.may_try():
            return
        try:
            jobs = [job_of_move(move) for move in moves]
            dropped = call_within(self._seconds, partial(self._send, jobs))
        except Exception as error:
            # The moves are committed: whatever is wrong here is nobody's failure but Redis's.
            self._outage.begin(error)
            return
        self._outage.end()
        for key in dropped:
            log.warning("%s in Redis held a value of another kind: it was removed", key)

    def _send(self, jobs: list[Job]) -> list[str]:
        dropped: list[str] = []
        for first in range(0, len(jobs), _JOBS_AT_ONCE):
            some = jobs[first : first + _JOBS_AT_ONCE]
            dropped += run_script(self._client, "moved", flatten(some))
        return dropped
