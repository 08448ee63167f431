"""The rate limit of several processes: they share the allowances through Redis.

Key: `{prefix}{model}`, a hash with the numbers of one allowance; it expires an hour after use.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.llm.allowance import Grant
from penstock.llm.buckets import LocalGate
from penstock.llm.ratelimit import RateHeaders
from penstock.llm.turns import Gate, GatedRateLimit

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedGrant(Grant):
    """Counted in Redis: it means nothing to the allowances of one process."""


class RedisGate:
    """The allowances in Redis. Its clock is the one they all go by, unless another is given."""

    def __init__(
        self, client: "Redis", prefix: str, clock: Callable[[], float] | None = None
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
        self._run(
            "observe",
            model,
            *_write_grant(grant),
            tokens,
            headers.limit_requests,
            headers.remaining_requests,
            headers.reset_requests_seconds,
            headers.limit_tokens,
            headers.remaining_tokens,
            headers.reset_tokens_seconds,
        )

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        self._run("hold", model, *_write_grant(grant), seconds)

    def _run(self, name: str, model: str, *values: float | None) -> Any:
        now = self._clock() if self._clock else None
        told = ["" if value is None else repr(value) for value in (now, *values)]
        script = self._client.register_script(_read_script(name))
        return script(keys=[self._prefix + model], args=told)


class FallbackGate:
    """Redis, or this process alone for as long as Redis does not answer."""

    def __init__(self, shared: Gate, clock: Callable[[], float] = time.monotonic) -> None:
        self._shared = shared
        self._local = LocalGate()
        self._clock = clock
        self._lock = threading.Lock()
        self._down = False
        self._retry_at = 0.0

    def attempt(self, model: str, tokens: int) -> Grant | float:
        return self._ask(lambda gate: gate.attempt(model, tokens))

    def observe(self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        self._ask(lambda gate: gate.observe(model, self._own(grant, gate), headers, tokens))

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        self._ask(lambda gate: gate.hold(model, self._own(grant, gate), seconds))

    def _own(self, grant: Grant | None, gate: Gate) -> Grant | None:
        return grant if isinstance(grant, SharedGrant) == (gate is self._shared) else None

    def _ask(self, question: Callable[[Gate], T]) -> T:
        from redis.exceptions import RedisError

        if self._is_due():
            try:
                answer = question(self._shared)
            except RedisError as error:
                self._note_failure(error)
            else:
                self._note_success()
                return answer
        return question(self._local)

    def _is_due(self) -> bool:
        """While Redis is down, one thread at a time looks whether it is back."""
        with self._lock:
            now = self._clock()
            due = not self._down or now >= self._retry_at
            if self._down and due:
                self._retry_at = now + RETRY_SECONDS
            return due

    def _note_failure(self, error: Exception) -> None:
        with self._lock:
            known, self._down = self._down, True
            self._retry_at = self._clock() + RETRY_SECONDS
        if not known:
            log.warning(
                "the shared rate limit cannot use Redis (%s): until it can, each process keeps "
                "the limit for itself; check REDIS_URL and the server",
                error,
            )

    def _note_success(self) -> None:
        with self._lock:
            known, self._down = self._down, False
        if known:
            log.info("the shared rate limit uses Redis again")


class SharedRateLimit(GatedRateLimit):
    """For all processes that use the same Redis and prefix."""

    def __init__(self, redis_client: "Redis", prefix: str = "extraction:rate:") -> None:
        super().__init__(FallbackGate(RedisGate(redis_client, prefix)))


@cache
def _read_script(name: str) -> str:
    folder = files(__package__).joinpath("lua")
    parts = (folder.joinpath(f"{part}.lua") for part in ("allowance", name))
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def _write_grant(grant: Grant | None) -> tuple[float | None, ...]:
    if grant is None:
        return (None, None, None, None)
    return (grant.at, grant.tokens, grant.starts, grant.spent)
