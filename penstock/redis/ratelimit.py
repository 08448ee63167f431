"""The rate limit of model calls shared by several processes through Redis.

Key: `{prefix}{model}`, a hash with the numbers of one allowance; it expires an hour after use.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.llm.ratelimit import CallGate, Grant, LocalGate, RateHeaders
from penstock.redis.client import RedisBreaker, run_script

if TYPE_CHECKING:
    from redis import Redis

PREFIX = "extraction:rate:"
RETRY_SECONDS = 30.0
_NO_GRANT = (None, None, None, None)

T = TypeVar("T")


class SharedGrant(Grant):
    """Counted in Redis, so that it means nothing to a LocalGate."""


class RedisCallGate:
    """The limits of all models, for all processes that use the same Redis and prefix; by the clock
    of the Redis server unless another is given."""

    def __init__(
        self, client: "Redis", prefix: str = PREFIX, clock: Callable[[], float] | None = None
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._clock = clock

    def attempt(self, model: str, tokens: int) -> SharedGrant | float:
        wait, at, starts, spent = self._run("attempt", model, tokens)
        if float(wait) > 0:
            return float(wait)
        return SharedGrant(float(at), tokens, int(starts), int(spent))

    def observe(self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        limits = (*headers.requests, *headers.tokens)
        self._run("observe", model, *(grant or _NO_GRANT), tokens, *limits)

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        self._run("hold", model, *(grant or _NO_GRANT), seconds)

    def _run(self, name: str, model: str, *values: float | None) -> Any:
        now = self._clock() if self._clock else None
        arguments = ["" if value is None else repr(value) for value in (now, *values)]
        key = self._prefix + model
        return run_script(self._client, name, arguments, library="allowance", keys=[key])


class FallbackCallGate:
    """The gate in Redis, or a local one for as long as Redis does not answer."""

    def __init__(
        self, client: "Redis", shared: CallGate, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared = shared
        self._local = LocalGate()
        consequence = "until it can, each process keeps the rate limit of models for itself"
        self._breaker = RedisBreaker(client, consequence, clock, open_seconds=RETRY_SECONDS)

    def attempt(self, model: str, tokens: int) -> Grant | float:
        return self._call(lambda gate: gate.attempt(model, tokens))

    def observe(self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        self._call(lambda gate: gate.observe(model, self._own(grant, gate), headers, tokens))

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        self._call(lambda gate: gate.hold(model, self._own(grant, gate), seconds))

    def _own(self, grant: Grant | None, gate: CallGate) -> Grant | None:
        return grant if isinstance(grant, SharedGrant) == (gate is self._shared) else None

    def _call(self, operation: Callable[[CallGate], T]) -> T:
        from redis.exceptions import RedisError

        if self._breaker.allows_call():
            try:
                result = operation(self._shared)
            except RedisError as error:
                self._breaker.failed(error)
            else:
                self._breaker.succeeded()
                return result
        return operation(self._local)
