"""Redis clients: one factory, calls with timeouts, mapped errors, Lua scripts and a lock."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import ServiceError
from penstock.retry import CircuitBreaker

if TYPE_CHECKING:
    from redis import Redis
    from redis.commands.core import Script
    from redis.connection import Connection


log = logging.getLogger(__name__)
_DEFAULT_TIMEOUT_SECONDS = 5.0

T = TypeVar("T")


def build_redis_client(url: str, timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS) -> "Redis":
    """A client that decodes text and has timeouts."""
    from redis import Redis

    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
    )


def read_timeout(client: "Redis") -> float:
    """The seconds that the client waits for an answer."""
    seconds = client.connection_pool.connection_kwargs.get("socket_timeout")
    return float(seconds or _DEFAULT_TIMEOUT_SECONDS)


def read_address(client: "Redis") -> str:
    """The address of the server, without user and password."""
    kwargs = client.connection_pool.connection_kwargs
    if "path" in kwargs:
        return f"unix://{kwargs['path']}"
    host, port = kwargs.get("host", "localhost"), kwargs.get("port", 6379)
    return f"redis://{host}:{port}/{kwargs.get('db', 0)}"


def copy_client(client: "Redis", timeout_seconds: float) -> "Redis":
    """A client of the same server with another timeout, which also reads bytes that are no text."""
    from redis import ConnectionPool, Redis

    pool = client.connection_pool
    kwargs = pool.connection_kwargs | {
        "encoding_errors": "surrogateescape",
        "socket_timeout": timeout_seconds,
    }
    return Redis.from_pool(ConnectionPool(connection_class=pool.connection_class, **kwargs))


@contextmanager
def mapped_errors(client: "Redis") -> Iterator[None]:
    """Errors of Redis become ServiceError, with what to do about them."""
    from redis.exceptions import RedisError

    try:
        yield
    except (RedisError, TimeoutError) as error:
        raise ServiceError(
            f"Redis at {read_address(client)} cannot be used ({error}): check REDIS_URL and the "
            "server; `penstock doctor` looks at both"
        ) from error


def call_with_timeout(client: "Redis", work: Callable[[], T]) -> T:
    """The result, or `TimeoutError`; a call that is late goes on by itself and is ignored.

    The client's own timeout holds for each step of a call: lookup, connection, greeting, command.
    """
    seconds = read_timeout(client)
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="penstock-redis", daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except TimeoutError as error:
        raise TimeoutError(f"no answer in {seconds:g} s") from error


class OpenConnections:
    """Connections that are open already, for scripts called in the caller's own thread.

    Opening one takes several steps, each with the client's timeout, which is why
    `call_with_timeout` has a thread of its own for it; that takes longer than the call itself.
    """

    def __init__(self, client: "Redis") -> None:
        self._client = client
        self._idle: list[Connection] = []

    def keep_one(self) -> None:
        """Keep the connection that the client has just used, or another one, if none is kept."""
        if not self._idle:
            self._idle.append(self._client.connection_pool.get_connection())

    def run_script(self, name: str, arguments: Sequence[str | int]) -> Any:
        """What the script returns; None when it has to be called in another way."""
        from redis.exceptions import ConnectionError as NotConnected
        from redis.exceptions import NoScriptError

        connection = self._take()
        if connection is None:
            return None
        try:
            sha = _read_script("mirror", name).sha
            connection.send_command("EVALSHA", sha, 0, *arguments)  # type: ignore[no-untyped-call]
            found = connection.read_response()
        except (NotConnected, NoScriptError):
            self._drop(connection)
            return None
        except BaseException:
            self._drop(connection)
            raise
        self._idle.append(connection)
        return found

    def _take(self) -> "Connection | None":
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        # A forked process must not speak on its parent's connections.
        return connection if connection.pid == os.getpid() else None

    def _drop(self, connection: "Connection") -> None:
        connection.disconnect()  # type: ignore[no-untyped-call]
        self._client.connection_pool.release(connection)


class RedisBreaker:
    """A circuit breaker that opens at the first failure of Redis, and logs when it does."""

    def __init__(
        self,
        client: "Redis",
        consequence: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        open_seconds: float = 5.0,
    ) -> None:
        self._breaker = CircuitBreaker(failures=1, open_seconds=open_seconds, clock=clock)
        self._consequence = consequence
        self._address = read_address(client)

    def allows_call(self) -> bool:
        return self._breaker.check() is None

    def failed(self, error: Exception) -> None:
        if self._breaker.failed():
            log.warning(
                "Redis at %s cannot be used (%s): %s; check REDIS_URL and the server",
                self._address,
                error or type(error).__name__,
                self._consequence,
            )

    def succeeded(self) -> None:
        if self._breaker.succeeded():
            log.info("Redis at %s can be used again", self._address)


def run_script(
    client: "Redis",
    name: str,
    arguments: Sequence[str | int],
    *,
    library: str = "mirror",
    keys: Sequence[str] = (),
) -> Any:
    """What the script returns; it can call the functions of its library."""
    return _read_script(library, name)(keys, arguments, client)


@cache
def _read_script(*names: str) -> "Script":
    """Made once: a script computes its hash when it is made."""
    from redis import Redis
    from redis.commands.core import Script

    return Script(Redis(), _read_scripts(*names))


def _read_scripts(*names: str) -> str:
    folder = files(__package__).joinpath("lua")
    parts = (folder.joinpath(f"{name}.lua") for name in names)
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


@contextmanager
def try_lock(client: "Redis", key: str, expiry_seconds: int) -> Iterator[bool]:
    """Yields whether the lock was free; if so, it is held inside the block."""
    from redis.exceptions import RedisError

    lock = client.lock(key, timeout=expiry_seconds)
    held = lock.acquire(blocking=False)
    try:
        yield held
    finally:
        if held:
            # The lock expires by itself; an error inside the block is more important.
            with suppress(RedisError):
                lock.release()
